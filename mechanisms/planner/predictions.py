"""What the error of an estimate will be, from the realised probabilities of a mechanism.

All variances are n times that of the estimate from n reports, the values fixed and the
randomization random, numbers being in [0, 1]; all clients report the same rung, and no value is
missing, though it may be possible to say that it is.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import bit_means, grid_variance, split_bits_variance
from mechanisms.number.duchi import DuchiLadder
from mechanisms.number.grid import BINS
from mechanisms.number.gridded import GridLadder
from mechanisms.number.laws import Law, Shape, balance, moments, worst_variance
from mechanisms.number.random_threshold import ThresholdLadder
from mechanisms.number.sampled_bit import SampledBitLadder
from mechanisms.number.sampled_bits import SampledBitsLadder
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.number.strata import EXPECTED_REPORTS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.base import Mechanism


def mean_variance(
    mechanism: Mechanism, level: int, values: ArrayLike | None = None, n: int = 1_000_000
) -> float:
    """Return the variance of the estimated mean of a number.

    Parameters
    ----------
    mechanism : Mechanism
        One for a number.
    level : int
    values : array_like, shape (N,), optional
        In [0, 1], a picture of the data; by default those for which the variance is largest.
    n : int
        Reports, on which the number of strata of random thresholds depends.

    Raises
    ------
    ParameterError
        The mechanism is none of a number.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> threshold = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    >>> round(4 * mean_variance(threshold, 0), 2)
    4.02
    """
    import numpy as np

    x = None if values is None else np.asarray(values, dtype=np.float64)
    if isinstance(mechanism, ThresholdLadder):
        return _threshold_variance(mechanism, level, x, n)
    if isinstance(mechanism, SampledBitLadder | SampledBitsLadder):
        draws = mechanism.count if isinstance(mechanism, SampledBitsLadder) else 1
        return _bit_variance(mechanism, level, x, n) / draws
    if isinstance(mechanism, SplitBitsLadder):
        return _split_variance(mechanism, level, x)
    if isinstance(mechanism, GridLadder | DuchiLadder):
        if x is not None:
            return grid_variance(mechanism, level, x)
        # What a report adds is quadratic in its number, but for the rounding: the worst is that
        # all are the same, at an input or half-way between two, or that all are 0 or 1.
        same = np.linspace(0, 1, 2 * mechanism.shape.steps + 1)[:, None]
        apart = (np.arange(20) < np.arange(1, 20)[:, None]).astype(float)
        return max(grid_variance(mechanism, level, each) for each in (*same, *apart))
    raise ParameterError("the mechanism is none of a number")


def worst_mean_variance(mechanism: Mechanism, level: int) -> float:
    """Return :func:`mean_variance` of the worst data, by the standard library alone.

    For choices in a plan, and for many reports. Of the mechanisms on a grid the rounding is taken
    at its most, which is a little too much.

    Parameters
    ----------
    mechanism : Mechanism
        ``threshold``, ``duchi``, ``piecewise``, ``hybrid`` or ``square_wave``.
    level : int

    Raises
    ------
    ParameterError
        The mechanism is another one.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> threshold = build({"name": "threshold", "missing": False}, [1_000_000], "delay")
    >>> round(4 * worst_mean_variance(threshold, 0), 6)
    4.016028
    """
    if isinstance(mechanism, ThresholdLadder):
        pair, symbols = mechanism.probabilities(level)[0], 2 + mechanism.missing
        # Uniform up to a point, the rest at 0 or at 1: F(x) = x + s has ∫ F(1 − F) − Var(X) of it.
        return max(
            answer_noise(pair, symbols, mean) + rest
            for mean, rest in (_uniform_and_atom(step / 20) for step in range(-20, 21))
        )
    if isinstance(mechanism, GridLadder | DuchiLadder):
        rounding = 1 / (4 * mechanism.shape.steps**2) if mechanism.shape.cells else 0.0
        shape, law = mechanism.shape, mechanism.laws[level]
        return float(max(worst_variance(shape, law), _ends_variance(shape, law))) + rounding
    raise ParameterError("mechanism must be threshold or one on a grid")


def _ends_variance(shape: Shape, law: Law) -> Fraction:
    """Return n times the variance of the mean if half of the numbers are 0 and half are 1.

    Where values can be missing this can be more than that of any number which all have: what
    reports say of being present then counts for nothing, since it is multiplied by the mean.
    """
    given = moments(shape, law)
    part = balance(given)
    cells = part**2 / given.slope**2 if part else Fraction(0)
    ends = (1 - part) ** 2 * given.end_base / given.end_slope**2 if part != 1 else Fraction(0)
    return cells * given.base + ends + (cells * given.curve - 1) / 4


def _uniform_and_atom(shift: float) -> tuple[float, float]:
    """Return mean and E|X − X′|/2 − Var(X) of numbers with the distribution function x + shift."""
    size = abs(shift)
    length = 1 - size
    mean, square = length**2 / 2, length**3 / 3
    apart = length**2 / 2 - length**3 / 3
    return (mean if shift >= 0 else 1 - mean), apart - (square - mean**2)


def _threshold_variance(
    mechanism: ThresholdLadder, level: int, values: NDArray[np.float64] | None, n: int
) -> float:
    import numpy as np

    strata = 1 << (min(max(n // EXPECTED_REPORTS, 1), BINS).bit_length() - 1)
    pair, symbols = mechanism.probabilities(level)[0], 2 + mechanism.missing

    def variance(x: NDArray[np.float64]) -> float:
        above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
        between = float((above * (1 - above)).mean())
        noise = answer_noise(pair, symbols, float(x.mean()))
        # Reports fall into strata at random, which costs the number of strata over n.
        return (noise + between) * (1 + (strata - 1) / n) - float(x.var())

    if values is not None:
        return variance(values)
    # Of a given mean, the worst are uniform up to a point, the rest being at the other end.
    middles = (np.arange(strata) + 0.5) / strata
    shifts = np.arange(-10, 11) / 10 if mechanism.missing else np.zeros(1)
    return max(variance(np.clip(middles - shift, 0.0, 1.0)) for shift in shifts)


def _bit_variance(
    mechanism: SampledBitLadder | SampledBitsLadder,
    level: int,
    values: NDArray[np.float64] | None,
    n: int,
) -> float:
    import numpy as np

    bits, pair = mechanism.bits, mechanism.probabilities(level)[0]
    symbols = 2 + mechanism.missing
    if values is None:
        # Bits of a number vary most if all have its mean.
        same = (mean / 20 for mean in range(21))
        return max(answer_noise(pair, symbols, mean) + mean * (1 - mean) for mean in same)
    means = bit_means(values, bits)
    weights = np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)
    between = float(weights @ (means * (1 - means)))
    noise = answer_noise(pair, symbols, float(values.mean()))
    alone = int((n * np.cumsum(weights[::-1])[::-1] >= EXPECTED_REPORTS).sum())
    return (noise + between) * (1 + max(alone - 1, 0) / n) - float(values.var())


def _split_variance(
    mechanism: SplitBitsLadder, level: int, values: NDArray[np.float64] | None
) -> float:
    pairs = mechanism.probabilities(level)
    # Half-way between two points the rounding adds most; the presence bit does where all are 1.
    found = split_bits_variance(pairs[: mechanism.bits], [0.5] if values is None else values)
    if mechanism.missing:
        p, q = pairs[-1]
        mean = 1.0 if values is None else float(values.mean())
        found += mean**2 * p * (1 - p) / (p - q) ** 2
    return found


def answer_noise(pair: tuple[float, float], symbols: int, mean: float) -> float:
    """Return the variance of the debiased answers no, yes and, of three, missing, less the mean.

    Parameters
    ----------
    pair : (float, float)
        Probability that an answer is kept, and that it becomes a given other one.
    symbols : int
        2 or 3.
    mean : float in [0, 1]
        Share of yes, all being present. An answer "missing" is read as such and compared with
        the estimated share of those present.

    Examples
    --------
    >>> answer_noise((0.75, 0.25), 2, 0.1), answer_noise((0.5, 0.25), 3, 0.5)
    (0.75, 2.75)
    """
    p, q = pair
    gap = p - q
    yes = [-q / gap, (1 - q) / gap, -q / gap][:symbols]
    present = [1.0] * symbols
    if symbols == 3:
        present = [1 + q / gap, 1 + q / gap, 1 - (1 - q) / gap]
    each = [one - mean * here for one, here in zip(yes, present, strict=True)]
    total = 0.0
    for truth, share in ((0, 1 - mean), (1, mean)):
        law = [p if symbol == truth else q for symbol in range(symbols)]
        centre = sum(weight * value for weight, value in zip(law, each, strict=True))
        total += share * sum(
            weight * (value - centre) ** 2 for weight, value in zip(law, each, strict=True)
        )
    return total
