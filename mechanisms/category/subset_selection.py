"""Subset selection: report a set of categories that more likely than not has the true one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import expm1
from typing import TYPE_CHECKING, Any

from mechanisms.base import Ladder, Prior, check_columns
from mechanisms.category.grr import category, category_array
from mechanisms.chains.subsets import SubsetChain
from mechanisms.chains.supporting import support_thresholds
from mechanisms.errors import ParameterError, check_int
from mechanisms.frozen import frozen
from mechanisms.levels import Rung, certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.single import CategoryMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A report has a bit a category: larger domains are for local hashing or Hadamard response.
MAX_DOMAIN = 1024


@frozen
class SubsetSelection(CategoryMechanism):
    """Report a random subset of k categories, with the true one in it more often than not.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    domain_size : int
        In [2, 1024], the number m of categories.
    subset_size : int, optional
        In [1, m/2], the number k of categories in a report; by default the one of least variance,
        close to m / (e^ε + 1).

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two categories are neighbours. The true one is in the set with p; given that, all sets are
    equally likely. The largest likelihood ratio is exactly p (m−k) / ((1−p) k).

    Relaxation
    ----------
    Always, with fixed k: keep the set, or replace it by a uniform one.

    Utility
    -------
    Another category is in the set with q = (k−p)/(m−1). The share of a category of true share π has
    variance [π p(1−p) + (1−π) q(1−q)] / (n (p−q)²): of all mechanisms, the least worst-case one for
    the sum over categories, to leading order.

    Use
    ---
    For domains of some tens to a thousand categories where the payload, a bit a category, is
    acceptable: never worse than generalized randomized response (k = 1) or unary encoding.

    References
    ----------
    M. Ye, A. Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally Differential
    Privacy", IEEE Transactions on Information Theory 64(8), 2018, eq. 9. S. Wang, L. Huang, P.
    Wang, Y. Nie, H. Xu, W. Yang, X. Li, C. Qiao, "Mutual Information Optimally Local Private
    Discrete Distribution Estimation", arXiv:1607.08025.

    Examples
    --------
    >>> subset = SubsetSelection(epsilon=1.0, domain_size=10)
    >>> subset.subset_size, round(subset.p, 4), round(subset.q, 4), subset.certified
    (3, 0.5381, 0.2735, 1000000)
    """

    domain_size: int
    subset_size: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        if self.subset_size == 0:
            best = best_subset_size(self.epsilon, self.domain_size)
            object.__setattr__(self, "subset_size", best)
        super().__post_init__()

    def _build(self, micro: int) -> SubsetLadder:
        return subset_ladder(self.domain_size, self.subset_size, [micro], "")


@frozen
class SubsetLadder(Ladder):
    """Subset selection over ``domain_size`` categories, relaxed along a ladder."""

    name = "subset"
    chain: SubsetChain

    @property
    def domain_size(self) -> int:
        """The number of categories, and of bits."""
        return self.chain.width

    @property
    def subset_size(self) -> int:
        """The number of categories in a report."""
        return self.chain.k

    @property
    def count_length(self) -> int:
        """The sums of the bits, and the number of reports."""
        return self.chain.width + 1

    @cached_property
    def payload_width(self) -> int:
        """Bytes of a payload."""
        return -(-self.chain.width // 8)

    def rungs(self, level: int) -> tuple[Rung, ...]:
        """Return the probabilities that the category, and that another, is in the subset."""
        return (self.chain.rungs[level],)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the category itself, with weight one."""
        return ((category(symbol, self.domain_size), 1),)

    @property
    def _outputs(self) -> int:
        return 1 << self.chain.width

    def _output(self, payload: bytes) -> int:
        output = super()._output(payload)
        if output.bit_count() != self.chain.k:
            raise ParameterError("the payload is none of this mechanism")
        return output

    def _encoded(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return category(symbol, self.domain_size)

    def _prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        return self.prior(symbol, chain)

    def randomize(
        self,
        symbols: Any,
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        source: Source,
    ) -> NDArray[np.uint8]:
        """Draw chains for ``(n,)`` values: ``(n, levels, payload_width)`` ``uint8``."""
        check_columns(symbols, chains, pseudonyms)
        return self.chain.randomize(category_array(symbols, self.domain_size), source)

    def valid(self, payloads: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of ``(n, payload_width)`` payloads are subsets of the right size."""
        import numpy as np

        sizes = np.bitwise_count(payloads).sum(axis=1, dtype=np.int64)
        spare = payloads[:, -1] & (0xFF ^ (0xFF >> (-self.chain.width % 8)))
        right: NDArray[np.bool_] = (sizes == self.chain.k) & (spare == 0)
        return right

    def accumulate(
        self,
        payloads: NDArray[np.uint8],
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        groups: NDArray[np.int64],
        n_groups: int,
    ) -> NDArray[np.int64]:
        """Count valid payloads by group: ``(n_groups, count_length)`` ``int64``."""
        import numpy as np

        from mechanisms.estimators.counting import grouped_bit_sums

        sums = grouped_bit_sums(payloads, groups, n_groups)[:, : self.chain.width]
        return np.column_stack([sums, np.bincount(groups, minlength=n_groups)])

    def supports(self, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A report supports the categories in it."""
        return table[:, :-1], table[:, -1]

    def support_pairs(self) -> NDArray[np.float64]:
        """Return the probabilities that the category, and that another, is in the subset."""
        from mechanisms.estimators.frequency import channel_pairs

        return channel_pairs(self, 0)


def subset_ladder(
    domain_size: int, subset_size: int, ladder: Sequence[int], metric: str
) -> SubsetLadder:
    """Build a ladder of subset selection."""
    check_int("domain_size", domain_size, 2, MAX_DOMAIN)
    if not (type(subset_size) is int and 1 <= subset_size <= domain_size // 2):
        raise ParameterError(
            f"subset_size must lie in [1, {domain_size // 2}], half of the domain, "
            f"not {subset_size!r}"
        )
    rungs = check_ladder(ladder)
    thresholds = support_thresholds(Fraction(subset_size, domain_size), rungs)
    chain = SubsetChain(*thresholds, domain_size, subset_size)
    amounts = certify(rungs, [chain.ratio(level) for level in range(chain.levels)])
    return SubsetLadder(metric, amounts, chain)


def best_subset_size(epsilon: float, domain_size: int) -> int:
    """Return the subset size of least variance, summed over categories.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    References
    ----------
    M. Ye, A. Barg, IEEE Transactions on Information Theory 64(8), 2018, section III.

    Examples
    --------
    >>> [best_subset_size(epsilon, 100) for epsilon in (0.01, 1.0, 2.0, 8.0)]
    [50, 27, 12, 1]
    """
    if not 2 <= domain_size <= MAX_DOMAIN:
        raise ParameterError(f"domain_size must lie in [2, {MAX_DOMAIN}], not {domain_size}")
    if not 0 < epsilon <= 1000:
        raise ParameterError(f"epsilon must lie in (0, 1000], not {epsilon}")
    gain = expm1(min(epsilon, 300.0))
    ideal = domain_size / (gain + 2)
    nearby = {min(max(int(ideal) + step, 1), domain_size // 2) for step in (-1, 0, 1, 2)}
    return min(sorted(nearby), key=lambda k: _variance(gain, domain_size, k))


def _variance(gain: float, m: int, k: int) -> float:
    """Return n times the variance, summed over categories, up to a factor that k leaves alone."""
    # p (k e + m − k) = k e, and p − q = k (m − k) gain / ((m − 1) (k e + m − k)).
    weight = k * gain + m
    p, rest = k * (gain + 1) / weight, (m - k) / weight
    q = (k - p) / (m - 1)
    return (p * rest + (m - 1) * q * (1 - q)) * (weight / (k * (m - k))) ** 2
