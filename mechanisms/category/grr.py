"""Generalized randomized response: report the true category, or one of the others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from mechanisms.base import Prior, SymbolLadder
from mechanisms.chains.symbols import symbol_chain
from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.levels import certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.single import CategoryMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class GeneralizedRandomizedResponse(CategoryMechanism):
    """Report the true category, or with a smaller probability each of the others.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    domain_size : int
        In [2, 2**20], the number m of categories.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two categories are neighbours; the largest likelihood ratio is exactly p/q.

    Relaxation
    ----------
    Always: keep the reported category, or replace it by a uniform one.

    Utility
    -------
    The share of a category of true share π has variance
    [π p(1−p) + (1−π) q(1−q)] / (n (p−q)²), given the values.

    Use
    ---
    Where there are fewer than about e^ε categories; for a few more, subset selection has less
    noise, and for many local hashing or optimized unary encoding have.

    References
    ----------
    S. L. Warner, "Randomized Response", JASA 60(309), 1965 (two categories). P. Kairouz,
    K. Bonawitz, D. Ramage, "Discrete Distribution Estimation under Local Privacy", ICML 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.testing import SeededSource
    >>> grr = GeneralizedRandomizedResponse(epsilon=1.0, domain_size=4)
    >>> round(grr.p, 4), round(grr.q, 4), grr.certified
    (0.4754, 0.1749, 1000000)
    >>> reports = grr.randomize(np.array([0, 0, 3]), SeededSource(1))
    >>> reports.shape, reports.dtype
    ((3, 1), dtype('uint8'))
    """

    domain_size: int

    def _build(self, micro: int) -> GrrLadder:
        return grr_ladder(self.domain_size, [micro], "")


@frozen
class CategoryLadder(SymbolLadder):
    """A ladder that is drawn from the category itself, and counted by output."""

    @property
    @abstractmethod
    def domain_size(self) -> int:
        """The number of categories."""

    @property
    def count_length(self) -> int:
        """One count an output."""
        return self.chain.size

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return the category itself."""
        return category(symbol, self.domain_size)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the category itself, with weight one."""
        return ((category(symbol, self.domain_size), 1),)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return the categories as ``int64``."""
        return category_array(symbols, self.domain_size)

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at its output."""
        return reports


@frozen
class GrrLadder(CategoryLadder):
    """Generalized randomized response over ``domain_size`` categories, relaxed along a ladder."""

    name = "grr"

    @property
    def domain_size(self) -> int:
        """The number of categories."""
        return self.chain.size

    def matrix(self, level: int) -> NDArray[np.float64]:
        """Return the probability of each cell of a count vector, by category."""
        import numpy as np

        [(p, q)] = self.rung_probabilities(level)
        matrix = np.full((self.chain.size, self.chain.size), q)
        np.fill_diagonal(matrix, p)
        return matrix

    def supports(self, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A report supports the category that it names."""
        return table, table.sum(axis=1)

    def support_pairs(self) -> NDArray[np.float64]:
        """Return the probabilities of the true category and of another, by level."""
        from mechanisms.estimators.frequency import channel_pairs

        return channel_pairs(self, 0)


def category(symbol: Any, domain_size: int) -> int:
    """Return a category, after a check that it is an integer in its range."""
    whole = type(symbol) is int or (isinstance(symbol, Integral) and not isinstance(symbol, bool))
    if not (whole and 0 <= symbol < domain_size):
        raise ParameterError(f"a symbol must be an integer in [0, {domain_size})")
    return int(symbol)


def category_array(symbols: Any, domain_size: int) -> NDArray[np.int64]:
    """Return categories as an ``int64`` array, after a check of their range."""
    import numpy as np

    given = np.asarray(symbols)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ParameterError("symbols must be one row of integers")
    if given.size and not (given.min() >= 0 and given.max() < domain_size):
        raise ParameterError(f"symbols must lie in [0, {domain_size})")
    return given.astype(np.int64)


def grr_ladder(domain_size: int, ladder: Sequence[int], metric: str) -> GrrLadder:
    """Build a ladder of generalized randomized response."""
    rungs = check_ladder(ladder)
    chain = symbol_chain(domain_size, rungs)
    return GrrLadder(metric, certify(rungs, [rung.p / rung.q for rung in chain.rungs]), chain)
