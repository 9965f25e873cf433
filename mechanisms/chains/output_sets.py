"""The output sets of Hadamard response, the chain over them, and the transform that counts them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Any, Bools, Bytes, Floats, Ints, np
from mechanisms.chains.chain import SymbolOutputs
from mechanisms.chains.supporting import SupportChain
from mechanisms.frozen import frozen
from mechanisms.levels import Probabilities
from mechanisms.randomness import Source


@frozen
class HadamardChain(SupportChain, SymbolOutputs):
    """The levels of places in ``blocks`` blocks of ``order`` places, both powers of two."""

    domain_size: int
    blocks: int
    order: int

    @property
    def inputs(self) -> int:
        return self.domain_size

    @cached_property
    def size(self) -> int:
        return self.blocks * self.order

    @property
    def total(self) -> int:
        return self.size

    @property
    def share(self) -> Fraction:
        return Fraction(1, 2 * self.blocks)

    def outputs(self) -> Iterable[int]:
        return range(self.size)

    def place(self, x: int) -> tuple[int, int]:
        """Return the block of a category, and its row in the matrix, from 1 on."""
        row, block = divmod(x, self.blocks)
        return block, row + 1

    def supports(self, x: int, output: int) -> bool:
        block, row = self.place(x)
        return output // self.order == block and (output & row).bit_count() % 2 == 0

    def supporting(self, x: Any, reports: Bytes) -> Bools:
        places, (block, row) = self.symbols(reports), self.place(x)
        odd = np.bitwise_count(places & row) % 2 == 1
        found: Bools = (places // self.order == block) & ~odd
        return found

    def pair(self, p: Fraction) -> Probabilities:
        return Probabilities(p, (1 - p) / (2 * self.blocks - 1))

    def limits(self, level: int) -> tuple[Floats, Floats]:
        """Return the probabilities of a single place, in the output set and out of it."""
        p, share = self.supported[level], self.share
        ends = ((1 - p) / ((1 - share) * self.size), p / (share * self.size))
        low, high = (np.full(self.size, float(end)) for end in ends)
        return low, high

    def uniform(self, source: Source) -> int:
        return source.bits(self.size.bit_length() - 1)

    def uniform_within(self, x: int, supporting: bool, source: Source) -> int:
        if not supporting:
            while self.supports(x, output := self.uniform(source)):
                pass
            return output
        block, row = self.place(x)
        column = source.bits(self.order.bit_length() - 1)
        if (column & row).bit_count() % 2:
            # Flipping a bit of the row maps the negative places onto the positive ones.
            column ^= row & -row
        return block * self.order + column

    def uniform_many(self, n: int, source: Source) -> Ints:
        return (source.words(n) & np.uint64(self.size - 1)).astype(np.int64)

    def uniform_within_many(self, xs: Ints, supporting: Bools, source: Source) -> Ints:
        row, block = np.divmod(xs, self.blocks)
        row += 1
        out = self.uniform_many(len(xs), source)
        inside = out & (self.order - 1)
        inside ^= np.where(np.bitwise_count(inside & row) & 1, row & -row, 0)
        out = np.where(supporting, block * self.order + inside, out)
        left = np.flatnonzero(~supporting)
        while left.size:
            there = out[left]
            own = there // self.order == block[left]
            left = left[own & (np.bitwise_count(there & row[left]) % 2 == 0)]
            out[left] = self.uniform_many(len(left), source)
        return out


def block_order(domain_size: int, blocks: int) -> int:
    """Return the smallest power of two with a row for each category of a block, and one more."""
    return 1 << (-(-domain_size // blocks)).bit_length()


def walsh_hadamard(values: Ints) -> Ints:
    """Return the Walsh-Hadamard transform of int64 along the last axis, a power of two b long.

    Entry r is the sum of the values times row r of the Hadamard matrix, whose entry at c is −1 to
    the number of bits that r and c share.
    """
    shape = values.shape
    out = values.astype(np.int64)
    half = 1
    while half < shape[-1]:
        pairs = out.reshape(*shape[:-1], -1, 2, half)
        upper, lower = pairs[..., 0, :], pairs[..., 1, :]
        out = np.stack([upper + lower, upper - lower], axis=-2).reshape(shape)
        half *= 2
    return out
