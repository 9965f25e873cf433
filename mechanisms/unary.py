"""Unary encoding: one bit a category, each randomized on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mechanisms.bits import BitChain, one_sided_bit, symmetric_bit
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.grr import category_array
from mechanisms.laddered import Prior, VectorLadder
from mechanisms.randomness import Source
from mechanisms.rungs import certify, check_ladder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A vector has at most so many bits.
MAX_WIDTH = 1 << 16


@dataclass(frozen=True)
class UnaryLadder(VectorLadder):
    """Unary encoding of ``domain_size`` categories, relaxed along a ladder."""

    name: str

    @property
    def domain_size(self) -> int:
        """The number of categories, and of bits."""
        return self.chain.width

    def encode(self, symbol: Any, pseudonym: bytes, source: Source) -> int:
        """Return the vector whose only bit is the category's."""
        if not 0 <= symbol < self.chain.width:
            raise ParameterError(f"a symbol must lie in [0, {self.chain.width})")
        return 1 << int(symbol)

    def prior(self, symbol: Any, pseudonym: bytes) -> Prior:
        """Return the vector whose only bit is the category's, with weight one."""
        if not 0 <= symbol < self.chain.width:
            raise ParameterError(f"a symbol must lie in [0, {self.chain.width})")
        return ((1 << int(symbol), 1),)

    def encode_many(
        self, symbols: Any, pseudonyms: NDArray[np.uint64], source: Source
    ) -> NDArray[np.uint64]:
        """Return packed vectors with one bit each."""
        import numpy as np

        index = category_array(symbols, self.chain.width)
        out = np.zeros((len(index), self.lanes), dtype=np.uint64)
        out[np.arange(len(index)), index >> 6] = np.uint64(1) << (index & 63).astype(np.uint64)
        return out


def unary_ladder(name: str, domain_size: int, ladder: Sequence[int], metric: str) -> UnaryLadder:
    """Build a ladder of symmetric (``sue``) or optimized (``oue``) unary encoding."""
    if not 2 <= domain_size <= MAX_WIDTH:
        raise ParameterError(f"domain_size must lie in [2, {MAX_WIDTH}], not {domain_size}")
    rungs = check_ladder(ladder, 2 if name == "sue" else 1)
    if name == "sue":
        # Two bits differ between two categories: each has half of the epsilon.
        bit = symmetric_bit([Fraction(micro, 2 * MICRO) for micro in rungs])
    else:
        bit = one_sided_bit([Fraction(micro, MICRO) for micro in rungs])
    chain = BitChain(domain_size, (bit,))
    return UnaryLadder(metric, certify(rungs, bit.ratios()), chain, name)
