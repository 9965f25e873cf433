"""Which mechanism answers a question best: all that can, ranked by their predicted error.

Predictions come from the realised probabilities of the last rung of the ladder asked for
(:mod:`mechanisms.predictions`), for a question, a domain, a number of reports and, where that
matters, a picture of the data; without one, for the data that are worst for each mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.ladders import LadderedMechanism, build
from mechanisms.predictions import mean_variance, share_variances

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Spec = Mapping[str, Any]

#: Points of a grid, bits and draws with which mechanisms for a mean are tried.
GRID_POINTS, SAMPLED_BITS, DRAWS, SPLIT_BITS = 65, 10, (2, 4), (4, 8)


@dataclass(frozen=True)
class Candidate:
    """A mechanism and how well it would do.

    Attributes
    ----------
    spec : mapping
        Its name and parameters, as :func:`mechanisms.ladders.build` takes them.
    error : float
        Predicted root mean squared error: of a share, averaged over the categories; of a mean or
        a quantile, in parts of the range.
    excess : float
        By what part the error is larger than that of the best candidate.
    payload : int
        Bytes of a report's payload.
    certified : int
        Micro-epsilon of the last rung.
    relaxable : bool
        Whether the ladder asked for has more than one rung, all of them degradations of the last.
    advice : str
        One sentence.
    """

    spec: Spec
    error: float
    excess: float
    payload: int
    certified: int
    relaxable: bool
    advice: str


@dataclass(frozen=True)
class Ranking:
    """All candidates for a question, the one with the least predicted error first.

    Attributes
    ----------
    question : str
    n : int
        Reports.
    candidates : tuple of Candidate
    refused : mapping of str to str
        Mechanisms that cannot be had, and why.
    """

    question: str
    n: int
    candidates: tuple[Candidate, ...]
    refused: Mapping[str, str]

    @property
    def best(self) -> Candidate:
        """The candidate with the least predicted error."""
        return self.candidates[0]

    @property
    def sentence(self) -> str:
        """What to do, and what the next best would cost."""
        best = self.best
        text = f"{best.spec['name']}: predicted error {best.error:.3g} of {self.question}"
        text += f" from {self.n} reports at epsilon {best.certified / MICRO:g}"
        if len(self.candidates) > 1:
            other = self.candidates[1]
            text += f"; {other.spec['name']} would have {100 * other.excess:.3g} % more"
        return f"{text}. {best.advice}"


def for_frequencies(
    domain_size: int, ladder: Sequence[int], n: int, shares: ArrayLike | None = None
) -> Ranking:
    """Rank the mechanisms for the shares of categories.

    Parameters
    ----------
    domain_size : int
        Categories, ``other`` and ``missing`` included.
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    shares : array_like, shape (domain_size,), optional
        The true shares; by default all alike. The sum of the variances over all categories hardly
        depends on them (not at all, but for Hadamard response).

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder and the domain, or the shares are no distribution.

    Examples
    --------
    >>> [for_frequencies(m, [1_000_000], 10_000).best.spec["name"] for m in (2, 4)]
    ['grr', 'grr']
    """
    import numpy as np

    _check_reports(n)
    if shares is None:
        true = np.full(max(domain_size, 1), 1 / max(domain_size, 1))
    else:
        true = np.asarray(shares, dtype=np.float64)
    if true.shape != (domain_size,) or not (true >= 0).all() or not abs(true.sum() - 1) <= 1e-9:
        raise ParameterError("shares must be non-negative, one a category, with sum 1")

    def error(mechanism: LadderedMechanism, level: int) -> float:
        return sqrt(float(share_variances(mechanism, level, true).mean()) / n)

    specs = _category_specs(domain_size, ladder)
    return _rank("a share", specs, ladder, n, error)


def for_mean(
    ladder: Sequence[int],
    n: int,
    values: ArrayLike | None = None,
    *,
    missing: bool = False,
    public_coins: bool = True,
) -> Ranking:
    """Rank the mechanisms for the mean of a number.

    Parameters
    ----------
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    values : array_like, shape (N,), optional
        In [0, 1], a picture of the data; by default for each mechanism those that are worst.
    missing : bool
        Whether it must be possible to say that a value is missing.
    public_coins : bool
        Whether mechanisms with coins from the chain id can be had.

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder, or the values are no numbers in [0, 1].

    Examples
    --------
    >>> [for_mean([e * 1_000_000], 10_000).best.spec["name"] for e in (1, 2, 4)]
    ['threshold', 'hybrid', 'hybrid']
    """
    _check_reports(n)
    picture = _picture(values)

    def error(mechanism: LadderedMechanism, level: int) -> float:
        return sqrt(mean_variance(mechanism, level, picture, n) / n)

    specs = _number_specs(missing)
    if not public_coins:
        specs = [spec for spec in specs if spec["name"] not in _COINS]
    return _rank("a mean, in parts of the range,", specs, ladder, n, error)


def for_distribution(
    ladder: Sequence[int], n: int, values: ArrayLike, *, runs: int = 20, seed: int = 0
) -> Ranking:
    """Rank the mechanisms for the quantiles of a number, by simulation.

    The errors of quantiles after isotonic regression or smoothing have no closed form: counts
    are drawn from the realised probabilities ``runs`` times, the estimator is run on each, and
    the root mean square over the quantiles 0.1, 0.25, 0.5, 0.75 and 0.9 is what it was.

    Parameters
    ----------
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    values : array_like, shape (N,)
        In [0, 1], a picture of the data.
    runs : int, at least 2
    seed : int
        Equal seeds give equal rankings.

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder, or the values are no numbers in [0, 1].
    """
    from mechanisms.simulation import quantile_error

    _check_reports(n)
    picture = _picture(values)
    if picture is None or not runs >= 2:
        raise ParameterError("quantiles need a picture of the data and at least 2 runs")

    def error(mechanism: LadderedMechanism, level: int) -> float:
        return quantile_error(mechanism, level, picture, n, runs, seed)

    specs: list[Spec] = [
        {"name": "threshold", "missing": False},
        {"name": "square_wave", "points": GRID_POINTS, "missing": False},
    ]
    specs += [{"name": name, "domain_size": 16} for name in ("grr", "oue")]
    return _rank("a quantile, in parts of the range,", specs, ladder, n, error)


def crossover(first: Spec, second: Spec, low: int, high: int, *, n: int = 10**9) -> int:
    """Return the micro-epsilon from which on ``second`` has the smaller worst-case variance.

    Parameters
    ----------
    first, second : mapping
        Mechanisms for a number, as :func:`mechanisms.ladders.build` takes them.
    low, high : int
        Micro-epsilon at which ``first`` is better, and at which ``second`` is.
    n : int
        Reports.

    Examples
    --------
    >>> threshold = {"name": "threshold", "missing": False}
    >>> crossover(threshold, {"name": "duchi", "missing": False}, 1, 2)
    Traceback (most recent call last):
    mechanisms.errors.ParameterError: the first must be better at low, the second at high
    """

    def better(micro: int) -> bool:
        one, other = (build(spec, [micro], "") for spec in (first, second))
        return mean_variance(one, 0, n=n) <= mean_variance(other, 0, n=n)

    if not (low < high and better(low) and not better(high)):
        raise ParameterError("the first must be better at low, the second at high")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if better(middle) else (low, middle)
    return high


def _rank(
    question: str,
    specs: Iterable[Spec],
    ladder: Sequence[int],
    n: int,
    error: Callable[[LadderedMechanism, int], float],
) -> Ranking:
    found: list[tuple[float, Spec, LadderedMechanism]] = []
    refused: dict[str, str] = {}
    for spec in specs:
        try:
            mechanism = build(spec, ladder, "choice")
        except ParameterError as problem:
            refused[str(spec["name"])] = str(problem)
            continue
        found.append((error(mechanism, len(ladder) - 1), spec, mechanism))
    if not found:
        raise ParameterError("; ".join(dict.fromkeys(refused.values())) or "no mechanism")
    # Of those that are alike but for rounding, the smaller payload, then the one named first.
    found.sort(key=lambda item: (float(f"{item[0]:.9g}"), item[2].payload_width))
    least = found[0][0]
    candidates = tuple(
        Candidate(
            spec,
            each,
            max(each / least - 1, 0.0),
            mechanism.payload_width,
            mechanism.certified(len(ladder) - 1),
            len(ladder) > 1,
            _ADVICE[str(spec["name"])],
        )
        for each, spec, mechanism in found
    )
    return Ranking(question, n, candidates, refused)


def _category_specs(domain_size: int, ladder: Sequence[int]) -> list[Spec]:
    """Return the mechanisms for categories with the parameters that are best at the last rung."""
    from mechanisms.hadamard import best_blocks
    from mechanisms.local_hashing import best_buckets
    from mechanisms.subset_selection import best_subset_size

    epsilon = ladder[-1] / MICRO if ladder else 0.0
    specs: list[Spec] = [
        {"name": name, "domain_size": domain_size} for name in ("grr", "oue", "sue")
    ]
    tuned: tuple[tuple[str, str, Callable[[float, int], int]], ...] = (
        ("local_hashing", "buckets", best_buckets),
        ("subset", "subset_size", best_subset_size),
        ("hadamard", "blocks", best_blocks),
    )
    for name, field, best in tuned:
        try:
            parameter = best(epsilon, domain_size)
        except ParameterError:
            continue
        specs.append({"name": name, "domain_size": domain_size, field: parameter})
    return specs


def _number_specs(missing: bool) -> list[Spec]:
    specs: list[Spec] = [{"name": name, "missing": missing} for name in ("threshold", "duchi")]
    specs += [
        {"name": name, "points": GRID_POINTS, "missing": missing}
        for name in ("hybrid", "piecewise", "square_wave")
    ]
    specs.append({"name": "sampled_bit", "bits": SAMPLED_BITS, "missing": missing})
    specs += [
        {"name": "sampled_bits", "bits": SAMPLED_BITS, "count": count, "missing": missing}
        for count in DRAWS
    ]
    specs += [{"name": "split_bits", "bits": bits, "missing": missing} for bits in SPLIT_BITS]
    return specs


def _picture(values: ArrayLike | None) -> Any:
    import numpy as np

    if values is None:
        return None
    picture = np.asarray(values, dtype=np.float64)
    if picture.ndim != 1 or not picture.size or not ((picture >= 0) & (picture <= 1)).all():
        raise ParameterError("values must be one row of numbers in [0, 1]")
    return picture


def _check_reports(n: int) -> None:
    if not n >= 1:
        raise ParameterError(f"n must be at least 1, not {n}")


#: Mechanisms whose reports are read with a coin that is hashed from the chain id.
_COINS = frozenset({"threshold", "sampled_bit", "sampled_bits"})

_ADVICE = {
    "grr": "The least payload and the simplest; best for few categories or a large epsilon.",
    "oue": "A bit a category; as good as local hashing, and counted fastest.",
    "sue": "A bit a category; never better than oue at the same epsilon.",
    "local_hashing": "A few bits whatever the domain; the aggregator works for every category.",
    "subset": "The least error of all in theory; a report names many categories.",
    "hadamard": "A few bits and a fast transform; close to the least error.",
    "threshold": "Also gives the distribution with intervals; needs a coin from the chain id.",
    "duchi": "One bit without a coin; nothing but the mean.",
    "hybrid": "The least worst case without a coin; nothing but the mean.",
    "piecewise": "Better than the hybrid where values are near the middle of the range.",
    "square_wave": "Made for the shape of a smooth distribution, which it estimates with a bias.",
    "sampled_bit": "Also gives the means of the bits; better than one bit only on skewed data.",
    "sampled_bits": "Also gives the means of the bits; more draws pay at a large epsilon.",
    "split_bits": "For the means of all bits at once; the mean itself varies much more.",
}
