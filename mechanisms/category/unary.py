"""Unary encoding: one bit a category, each randomized on its own."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mechanisms.base import Prior, VectorLadder
from mechanisms.category.grr import category, category_array
from mechanisms.chains.bits import BitChain, one_sided_bit, symmetric_bit
from mechanisms.errors import check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.levels import certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.single import CategoryMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A vector has at most so many bits.
MAX_WIDTH = 1 << 16


@frozen
class SymmetricUnaryEncoding(CategoryMechanism):
    """One bit a category, each flipped with the same probability whichever it is.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 80], the nominal amount.
    domain_size : int
        In [2, 2**16], the number of categories.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two categories are neighbours. Two bits differ between them, each randomized at half of
    epsilon; the largest likelihood ratio is p(1−q) / (q(1−p)).

    Relaxation
    ----------
    Always: flip each reported bit with a small probability.

    Utility
    -------
    The share of a category has variance q(1−q) / (n (p−q)²), given the values, whatever it is.

    Use
    ---
    Where the noise should be the same for all shares; optimized unary encoding has less of it in
    rare categories from epsilon 1 on.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha, "Locally Differentially Private Protocols for Frequency
    Estimation", USENIX Security 2017, section 4.3.

    Examples
    --------
    >>> sue = SymmetricUnaryEncoding(epsilon=2.0, domain_size=10)
    >>> round(sue.p, 4), round(sue.q, 4), sue.certified
    (0.7311, 0.2689, 2000000)
    """

    domain_size: int

    def _build(self, micro: int) -> UnaryLadder:
        return unary_ladder("sue", self.domain_size, [micro], "")


@frozen
class OptimizedUnaryEncoding(CategoryMechanism):
    """One bit a category; a 1 is reported as a fair coin, a 0 rarely as 1.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    domain_size : int
        In [2, 2**16], the number of categories.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two categories are neighbours; the largest likelihood ratio is p(1−q) / (q(1−p)) with
    p = 1/2.

    Relaxation
    ----------
    Always: flip each reported bit with a small probability, the same for ones and zeros.

    Utility
    -------
    The share of a category of true share π has variance
    [π/4 + (1−π) q(1−q)] / (n (1/2−q)²), given the values: 4e^ε/(n(e^ε−1)²) for a rare one.

    Use
    ---
    For some tens to thousands of categories where a bit a category is no burden; local hashing has
    the same error in a byte.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha, "Locally Differentially Private Protocols for Frequency
    Estimation", USENIX Security 2017, section 4.3.

    Examples
    --------
    >>> oue = OptimizedUnaryEncoding(epsilon=2.0, domain_size=10)
    >>> oue.p, round(oue.q, 4), oue.certified
    (0.5, 0.1192, 2000000)
    """

    domain_size: int

    def _build(self, micro: int) -> UnaryLadder:
        return unary_ladder("oue", self.domain_size, [micro], "")


@frozen
class UnaryLadder(VectorLadder):
    """Unary encoding of ``domain_size`` categories, relaxed along a ladder."""

    name: str

    @property
    def domain_size(self) -> int:
        """The number of categories, and of bits."""
        return self.chain.width

    def encode(self, symbol: Any, pseudonym: bytes, source: Source) -> int:
        """Return the vector whose only bit is the category's."""
        return 1 << category(symbol, self.chain.width)

    def prior(self, symbol: Any, pseudonym: bytes) -> Prior:
        """Return the vector whose only bit is the category's, with weight one."""
        return ((1 << category(symbol, self.chain.width), 1),)

    def encode_many(
        self, symbols: Any, pseudonyms: NDArray[np.uint64], source: Source
    ) -> NDArray[np.uint64]:
        """Return packed vectors with one bit each."""
        import numpy as np

        index = category_array(symbols, self.chain.width)
        out = np.zeros((len(index), self.lanes), dtype=np.uint64)
        out[np.arange(len(index)), index >> 6] = np.uint64(1) << (index & 63).astype(np.uint64)
        return out

    def supports(self, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A report supports the categories whose bits are set."""
        return table[:, :-1], table[:, -1]

    def support_pairs(self) -> NDArray[np.float64]:
        """Return the probabilities that the bit of the category, and of another, is set."""
        from mechanisms.estimators.frequency import channel_pairs

        return channel_pairs(self, 0)


def unary_ladder(name: str, domain_size: int, ladder: Sequence[int], metric: str) -> UnaryLadder:
    """Build a ladder of symmetric (``sue``) or optimized (``oue``) unary encoding."""
    check_int("domain_size", domain_size, 2, MAX_WIDTH)
    rungs = check_ladder(ladder, 2 if name == "sue" else 1)
    if name == "sue":
        # Two bits differ between two categories: each has half of the epsilon.
        bit = symmetric_bit([Fraction(micro, 2 * MICRO) for micro in rungs])
    else:
        bit = one_sided_bit([Fraction(micro, MICRO) for micro in rungs])
    chain = BitChain(domain_size, (bit,))
    return UnaryLadder(metric, certify(rungs, bit.ratios()), chain, name)


def sue_ladder(domain_size: int, ladder: Sequence[int], metric: str) -> UnaryLadder:
    """Build a ladder of symmetric unary encoding."""
    return unary_ladder("sue", domain_size, ladder, metric)


def oue_ladder(domain_size: int, ladder: Sequence[int], metric: str) -> UnaryLadder:
    """Build a ladder of optimized unary encoding."""
    return unary_ladder("oue", domain_size, ladder, metric)
