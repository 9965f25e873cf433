"""Unary encoding: one bit a category, each randomized on its own.

References
----------
T. Wang, J. Blocki, N. Li, S. Jha, "Locally Differentially Private Protocols for Frequency
Estimation", USENIX Security 2017, section 4.3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Any, Words, np
from mechanisms.base import Epsilon
from mechanisms.category.oracle import FrequencyOracle, category, category_array
from mechanisms.chains.bits import BitChain, BitLadder, one_sided_bit, symmetric_bit
from mechanisms.chains.chain import spread
from mechanisms.errors import check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.randomness import Source

#: A vector has at most so many bits.
MAX_WIDTH = 1 << 16


class _UnaryEncoding(FrequencyOracle):
    """The vector whose only bit is the category's, randomized bit by bit."""

    @abstractmethod
    def _bit(self) -> BitLadder:
        """Return the levels of one bit."""

    @cached_property
    def chain(self) -> BitChain:
        return BitChain(self.domain_size, (self._bit(),))

    def _check(self) -> None:
        check_int("domain_size", self.domain_size, 2, MAX_WIDTH)

    def _ratios(self) -> Sequence[Fraction]:
        return self.chain.ladders[0].ratios()

    def realised_ratio(self, level: int) -> Fraction:
        [(p, q)] = self.chain.realised(level)
        return spread(p * (1 - q), q * (1 - p))

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return 1 << category(symbol, self.domain_size)

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Words:
        index = category_array(symbols, self.domain_size)
        out = np.zeros((len(index), self.chain.words), dtype=np.uint64)
        out[np.arange(len(index)), index >> 6] = np.uint64(1) << (index & 63).astype(np.uint64)
        return out

    @property
    def true_bits(self) -> tuple[int, int]:
        return 1, 1


@frozen
class SymmetricUnaryEncoding(_UnaryEncoding):
    """One bit a category, each flipped with the same probability whichever it is.

    ``epsilon`` lies in [1e-6, 80], ``domain_size`` in [2, 2**16].

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

    Examples
    --------
    >>> sue = SymmetricUnaryEncoding(epsilon=2.0, domain_size=10)
    >>> round(sue.p, 4), round(sue.q, 4), sue.certified()
    (0.7311, 0.2689, 2000000)
    """

    epsilon: Epsilon
    domain_size: int

    name = "sue"

    @property
    def _decisions(self) -> int:
        # Two bits differ between two categories: each has half of the epsilon.
        return 2

    def _bit(self) -> BitLadder:
        return symmetric_bit([Fraction(micro, 2 * MICRO) for micro in self.micros])


@frozen
class OptimizedUnaryEncoding(_UnaryEncoding):
    """One bit a category; a 1 is reported as a fair coin, a 0 rarely as 1.

    ``epsilon`` lies in [1e-6, 40], ``domain_size`` in [2, 2**16].

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

    Examples
    --------
    >>> oue = OptimizedUnaryEncoding(epsilon=2.0, domain_size=10)
    >>> oue.p, round(oue.q, 4), oue.certified()
    (0.5, 0.1192, 2000000)
    """

    epsilon: Epsilon
    domain_size: int

    name = "oue"

    def _bit(self) -> BitLadder:
        return one_sided_bit([Fraction(micro, MICRO) for micro in self.micros])
