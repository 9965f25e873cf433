"""Bipartite randomized response: the true value and its nearest are all equally likely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms.category.oracle import category, category_array
from mechanisms.chains.chain import Prior
from mechanisms.chains.finite import FiniteDraw, finite_chain
from mechanisms.chains.thresholds import MAX_SYMBOLS
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, ceil_fraction, exp_micro
from mechanisms.frozen import frozen
from mechanisms.ladders import FiniteLadder
from mechanisms.levels import GRAINS, certify, check_ladder
from mechanisms.ordinal.losses import Number, loss_matrix
from mechanisms.ordinal.search import check_epsilon, equidistant_size, general_size
from mechanisms.randomness import Source
from mechanisms.single import SymbolMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.ordinal.estimates import OrdinalEstimates

#: The favoured candidates of every value.
Windows = tuple[tuple[int, ...], ...]


def windows_of(loss: Sequence[Sequence[Number]], size: int) -> Windows:
    """Return the ``size`` nearest candidates of every value, of equally near ones the smaller.

    Examples
    --------
    >>> windows_of([[0, 1, 2], [1, 0, 1], [2, 1, 0]], 2)
    ((0, 1), (0, 1), (1, 2))
    """
    return tuple(
        tuple(sorted(sorted(range(len(row)), key=lambda y: (row[y], y))[:size])) for row in loss
    )


def equidistant_windows(points: int, size: int) -> Windows:
    """Return :func:`windows_of` of equidistant points.

    Examples
    --------
    >>> equidistant_windows(4, 3)
    ((0, 1, 2), (0, 1, 2), (1, 2, 3), (1, 2, 3))
    """
    firsts = (min(max(x - size // 2, 0), points - size) for x in range(points))
    return tuple(tuple(range(first, first + size)) for first in firsts)


def probabilities(points: int, size: int, epsilon: float) -> tuple[float, float]:
    """Return the probability of a favoured candidate and that of another (Equation 7).

    Examples
    --------
    >>> high, low = probabilities(7, 3, 0.5)
    >>> round(high, 6), round(low, 6)
    (0.184294, 0.11178)
    """
    check_epsilon(epsilon)
    _check_size(points, size)
    rest = math.exp(-epsilon)
    whole = size + (points - size) * rest
    return 1 / whole, rest / whole


def equidistant_row(points: int, epsilon: float, value: int) -> list[float]:
    """Return the law of the report of one of N equidistant points (Equation 7).

    Parameters
    ----------
    points : int
        N, at least 2.
    epsilon : float
        In (0, 700].
    value : int
        In [0, N).

    Returns
    -------
    list of float
        Of length N; the size is :func:`~mechanisms.ordinal.search.equidistant_size`.
    """
    category(value, points)
    size = equidistant_size(points, epsilon)
    high, low = probabilities(points, size, epsilon)
    first = min(max(value - size // 2, 0), points - size)
    return [high if first <= y < first + size else low for y in range(points)]


def channel_rank(points: int, size: int) -> int:
    """Return the rank of the channel of equidistant points, N − m + 1.

    Values at the ends share the window of m candidates there. From m = 2 on the channel has
    no inverse: reports do not say how often each value occurs.

    Examples
    --------
    >>> channel_rank(20, equidistant_size(20, 1.0))
    14
    """
    _check_size(points, size)
    return points - size + 1


@frozen
class BipartiteRandomizedResponse(SymbolMechanism):
    """Report the true value or one of its nearest, all equally likely, or one of the others.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    points : int
        In [2, 1024], the number N of values, in order and equally far apart unless there is a
        loss.
    loss : sequence of sequence of number, optional
        What each value costs in place of each other, ``(N, N)``; see
        :mod:`mechanisms.ordinal.losses`. By default the distance of equidistant points.
    subset_size : int, optional
        In [1, N), how many candidates are favoured: m. By default the largest number with which
        every value has at least the utility of randomized response.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two values are neighbours. The largest likelihood ratio is that of a favoured candidate
    to another, at most e^ε for every loss and size: the printed formulas for the size err, but
    not at the cost of privacy. The set of values and their loss are public.

    Relaxation
    ----------
    Always with the same favoured candidates at all rungs: keep the report with probability
    S₂(E₁−1)/(S₁(E₂−1)), S = mE + N − m, else draw a uniform one. With a size of its own at every
    rung often not at all; see :mod:`mechanisms.ordinal.relaxing`.

    Utility
    -------
    A report's expected loss, averaged over the values, is
    [(E − 1) Σ_favoured λ + Σ λ] / (N (mE + N − m)); for many equidistant points and m as found,
    (7h + 9)/(4(h + 1)²) of randomized response's, h = e^{ε/2}. Frequencies have no unbiased
    estimate from m = 2 on, since the channel has rank N − m + 1.

    Use
    ---
    For a released value that should be near the true one: ratings, ages, places. Not to count
    how often each value occurs: take randomized response or unary encoding for that. The channel
    of least loss at the same epsilon, 17 % better for eight points at ε = 0.5, is
    :func:`mechanisms.ordinal.optimal.optimal_channel`.

    References
    ----------
    S. Zhang, H. Zhu, Z. Chen, H. Hu, "Bipartite Randomized Response Mechanism for Local
    Differential Privacy", Equation 7 and Algorithm 2. The construction with subsets of equal size
    is that of M. Ye, A. Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally
    Differential Privacy", IEEE Trans. Information Theory 64(8), 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.testing import SeededSource
    >>> brr = BipartiteRandomizedResponse(epsilon=1.0, points=20)
    >>> brr.size, round(brr.p, 4), round(brr.q, 4), brr.certified
    (7, 0.0849, 0.0312, 1000000)
    >>> brr.randomize(np.array([0, 19]), SeededSource(1)).shape
    (2, 1)
    """

    points: int
    loss: Sequence[Sequence[Number]] | None = None
    subset_size: int | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if self.loss is not None:
            object.__setattr__(self, "loss", loss_matrix(self.loss))
        super().__post_init__()

    @cached_property
    def size(self) -> int:
        """How many candidates are favoured."""
        if self.subset_size is not None:
            return self.subset_size
        if self.loss is not None:
            return general_size(self.loss, self.epsilon)
        return equidistant_size(self.points, self.epsilon)

    def _build(self, micro: int) -> BrrLadder:
        if self.loss is None:
            return brr_ladder(self.points, self.size, False, [micro], "")
        if len(self.loss) != self.points:
            raise ParameterError(f"the loss has {len(self.loss)} values, not {self.points}")
        return loss_ladder(self.loss, self.size, [micro], "")

    def estimate(self, counts: ArrayLike) -> OrdinalEstimates:
        """Estimate from counts; see :func:`mechanisms.ordinal.estimates.ordinal`."""
        import numpy as np

        from mechanisms.ordinal.estimates import ordinal

        return ordinal(self.ladder, np.asarray(counts)[np.newaxis])


@frozen
class BrrLadder(FiniteLadder):
    """Bipartite randomized response with the same favoured candidates at all rungs."""

    name = "brr"
    missing: bool = False

    @property
    def domain_size(self) -> int:
        """The number of symbols, a missing value included, which is the last."""
        return self.chain.inputs

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return the value itself."""
        return category(symbol, self.chain.inputs)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the value itself, with weight one."""
        return ((category(symbol, self.chain.inputs), 1),)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return the values as ``int64``."""
        return category_array(symbols, self.chain.inputs)


def brr_ladder(
    domain_size: int, subset_size: int, missing: bool, ladder: Sequence[int], metric: str
) -> BrrLadder:
    """Build a ladder of bipartite randomized response over equidistant points.

    Parameters
    ----------
    domain_size : int
        In [2, 1024], the number of symbols.
    subset_size : int
        In [1, points), the same at all rungs, where points are the symbols that are not missing;
        :func:`best_subset_size` of the last rung serves that rung best.
    missing : bool
        Whether the last symbol is a missing value. A report of it is what a whole window is for a
        point: so likely where it is true, and so unlikely for every other symbol.
    ladder : sequence of int
        Micro-epsilons, increasing.
    metric : str
        The metric's name.

    Raises
    ------
    ParameterError
        A parameter is outside its range, or 64-bit thresholds cannot honour the ladder.
    """
    points = domain_size - missing
    if not (domain_size <= MAX_SYMBOLS and points >= 2):
        raise ParameterError(
            f"domain_size must lie in [2, {MAX_SYMBOLS}] beside missing, not {domain_size}"
        )
    _check_size(points, subset_size)
    return _ladder(equidistant_windows(points, subset_size), missing, ladder, metric)


def loss_ladder(
    loss: Sequence[Sequence[Number]], size: int, ladder: Sequence[int], metric: str
) -> BrrLadder:
    """Build a ladder of bipartite randomized response for any loss of up to 1024 values."""
    if not 2 <= len(loss) <= MAX_SYMBOLS:
        raise ParameterError(f"a loss must have 2 to {MAX_SYMBOLS} values, not {len(loss)}")
    _check_size(len(loss), size)
    return _ladder(windows_of(loss, size), False, ladder, metric)


def best_subset_size(points: int, micro: int) -> int:
    """Return the size of the search for equidistant points at an amount in micro-epsilon."""
    return equidistant_size(points, Fraction(micro, MICRO))


def _ladder(windows: Windows, missing: bool, ladder: Sequence[int], metric: str) -> BrrLadder:
    rungs = check_ladder(ladder)
    chain = finite_chain(strongest_draw(windows, rungs[-1], missing), rungs)
    amounts = certify(rungs, [rung.p / rung.q for rung in chain.exact])
    return BrrLadder(metric, amounts, chain, missing)


def strongest_draw(windows: Windows, micro: int, missing: bool = False) -> FiniteDraw:
    """Return the integer rows of bipartite randomized response within an amount.

    Values with the same window have the same row. What does not divide by the window's size goes
    to its first candidates, a grain each.
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
