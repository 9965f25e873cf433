"""Bipartite randomized response: the true value and its nearest are all equally likely."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import ArrayLike, Floats, Ints
from mechanisms.base import Epsilon
from mechanisms.category.oracle import CategoryMechanism
from mechanisms.chains.finite import FiniteChain, FiniteDraw, finite_chain
from mechanisms.chains.thresholds import MAX_SYMBOLS
from mechanisms.errors import ParameterError, check_positive
from mechanisms.exact import MICRO, ceil_fraction, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS
from mechanisms.noise import Noise
from mechanisms.ordinal.sizes import LARGEST, equidistant_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from mechanisms.items import Context, Item
    from mechanisms.ordinal.estimates import OrdinalEstimates
    from mechanisms.planner.targets import Assumed, Precision

#: The favoured candidates of every value.
Windows = tuple[tuple[int, ...], ...]


@frozen
class BipartiteRandomizedResponse(CategoryMechanism):
    """Report the true value or one of its nearest, all equally likely, or one of the others.

    Values are integers from 0 to below ``domain_size``, in order.

    Parameters
    ----------
    domain_size : int
        In [2, 1024], the number of values; they are equally far apart.
    subset_size : int
        In [1, points), how many candidates are favoured at all levels: m; points are the N values
        that are not missing. By default the largest number with which every value has at least the
        utility of randomized response, at the last level.
    missing : bool
        Whether the last value stands for a missing one. A report of it is what a whole window is
        for a point: so likely where it is true, and so unlikely for every other value.

    Privacy
    -------
    Any two values are neighbours. The largest likelihood ratio is that of a favoured candidate
    to another, at most e^ε for every size: the printed formulas for the size err, but not at the
    cost of privacy.

    Relaxation
    ----------
    Always with the same favoured candidates at all levels: keep the report with probability
    S₂(E₁−1)/(S₁(E₂−1)), S = mE + N − m, else draw a uniform one. With a size of its own at every
    level often not at all; see :mod:`papers.bipartite_randomized_response`.

    Utility
    -------
    A report's expected distance, averaged over the values, is
    [(E − 1) Σ_favoured λ + Σ λ] / (N (mE + N − m)); for many points and m as found,
    (7h + 9)/(4(h + 1)²) of randomized response's, h = e^{ε/2}. Frequencies have no unbiased
    estimate from m = 2 on, since the channel has rank N − m + 1.

    Use
    ---
    For a released value that should be near the true one: ratings, ages, places. Not to count
    how often each value occurs: take randomized response or unary encoding for that. The channel
    of least loss at the same epsilon, 17 % better for eight points at ε = 0.5, is
    :func:`papers.extremal_mechanisms.optimal_channel`.

    References
    ----------
    S. Zhang, H. Zhu, Z. Chen, H. Hu, "Bipartite Randomized Response Mechanism for Local
    Differential Privacy", Equation 7 and Algorithm 2. The construction with subsets of equal size
    is that of M. Ye, A. Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally
    Differential Privacy", IEEE Trans. Information Theory 64(8), 2018.

    Examples
    --------
    >>> brr = BipartiteRandomizedResponse(epsilon=1.0, domain_size=20)
    >>> brr.subset_size, round(brr.p, 4), round(brr.q, 4), brr.certified()
    (7, 0.0849, 0.0312, 1000000)
    """

    epsilon: Epsilon
    domain_size: int
    subset_size: int = 0
    missing: bool = False

    name = "brr"
    types = ("ordinal",)
    uncompared = "reports do not tell neighbouring values apart, whose shares are fitted together"
    gives = (
        "shares of {symbols}, the most likely ones where reports do not distinguish values, and "
        "biased there; without bias, the shares of those that they do, and bounds of the mean"
    )
    words: ClassVar[Mapping[str, str]] = {"subset_size": "{} favoured"}

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of candidates that serves the strongest level sent best."""
        points = given["domain_size"] - given["missing"]
        best = points > 2 and micro > 0
        return {"subset_size": equidistant_size(points, Fraction(micro, MICRO)) if best else 1}

    @property
    def points(self) -> int:
        return self.domain_size - self.missing

    def _check(self) -> None:
        if not (self.domain_size <= MAX_SYMBOLS and self.points >= 2):
            raise ParameterError(
                f"domain_size must lie in [2, {MAX_SYMBOLS}] beside missing, not {self.domain_size}"
            )
        _check_size(self.points, self.subset_size)

    @cached_property
    def chain(self) -> FiniteChain:
        windows = equidistant_windows(self.points, self.subset_size)
        return finite_chain(strongest_draw(windows, self.micros[-1], self.missing), self.micros)

    def matrix(self, level: int) -> Floats:
        return self.chain.matrix(level)

    def estimates(
        self, counts: ArrayLike, numbers: Sequence[float] | None = None
    ) -> OrdinalEstimates:
        """Estimate from counts; see :func:`mechanisms.ordinal.estimates.ordinal`."""
        from mechanisms.ordinal.estimates import ordinal

        return ordinal(self, counts, numbers, missing=self.missing)

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        from mechanisms.ordinal.estimates import ordinal_items

        return ordinal_items(self, counts, context)

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        from mechanisms.ordinal.estimates import mean_precision

        return mean_precision(self.matrix(level), assumed, scale, missing=self.missing)

    def noise(self, level: int) -> Noise | None:
        """Return None: the shares are no sums over reports."""
        return None

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        return self.chain.worst_inputs(level)


def equidistant_windows(points: int, size: int) -> Windows:
    """Return the windows of equidistant points: each value and its nearest.

    >>> equidistant_windows(4, 3)
    ((0, 1, 2), (0, 1, 2), (1, 2, 3), (1, 2, 3))
    """
    firsts = (min(max(x - size // 2, 0), points - size) for x in range(points))
    return tuple(tuple(range(first, first + size)) for first in firsts)


def probabilities(points: int, size: int, epsilon: float) -> tuple[float, float]:
    """Return the probability of a favoured candidate and that of another (Equation 7)."""
    check_positive(epsilon, LARGEST)
    _check_size(points, size)
    rest = math.exp(-epsilon)
    whole = size + (points - size) * rest
    return 1 / whole, rest / whole


def strongest_draw(windows: Windows, micro: int, missing: bool = False) -> FiniteDraw:
    """Return the integer rows of bipartite randomized response within an amount.

    Values with the same window have the same row. The remainder of a division by the window's size
    goes to its first candidates, a grain each.
    """
    points, size = len(windows), len(windows[0])
    bound = exp_micro(micro)[0]
    others = points if missing else points - size
    low = ceil_fraction((GRAINS + size - 1) / (size * bound + others))
    high, left = divmod(GRAINS - others * low, size)
    rows = {}
    for window in dict.fromkeys(windows):
        row = [low] * points
        for number, y in enumerate(window):
            row[y] = high + (number < left)
        rows[window] = (*row, size * low) if missing else tuple(row)
    weights = [rows[window] for window in windows]
    if missing:
        weights.append((*[low] * points, GRAINS - points * low))
    return FiniteDraw(tuple(weights))


def _check_size(points: int, size: int) -> None:
    if not 1 <= size < points:
        raise ParameterError(f"subset_size must lie in [1, {points}), not {size}")
