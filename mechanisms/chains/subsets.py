"""Uniform subsets of categories, and the chain that draws those with, or without, the true one."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import comb, perm
from typing import Any

from mechanisms.arrays import Bools, Bytes, Ints, np
from mechanisms.chains.chain import BitOutputs, bit_of
from mechanisms.chains.supporting import SupportChain
from mechanisms.frozen import frozen
from mechanisms.levels import Probabilities
from mechanisms.randomness import Source
from mechanisms.sampling import uniform_below

#: Random keys that are held at once.
_KEYS = 1 << 20
#: Where a category's own key goes: nowhere (0), among those taken, or behind all others.
_IN, _OUT = 1, 2


@frozen
class SubsetChain(SupportChain, BitOutputs):
    """The levels of subsets of ``k`` of ``width`` categories, as integers of so many bits."""

    width: int
    k: int

    @property
    def inputs(self) -> int:
        return self.width

    @property
    def total(self) -> int:
        return comb(self.width, self.k)

    @property
    def share(self) -> Fraction:
        return Fraction(self.k, self.width)

    def outputs(self) -> Iterable[int]:
        return (sum(1 << i for i in chosen) for chosen in combinations(range(self.width), self.k))

    def supports(self, x: int, output: int) -> bool:
        return bool(output >> x & 1)

    def supporting(self, x: Any, reports: Bytes) -> Bools:
        return bit_of(reports, x)

    def contains(self, output: int) -> bool:
        return super().contains(output) and output.bit_count() == self.k

    def valid(self, payloads: Bytes) -> Bools:
        sizes = np.bitwise_count(payloads).sum(axis=1, dtype=np.int64)
        right: Bools = super().valid(payloads) & (sizes == self.k)
        return right

    def payloads(self, values: Ints, source: Source) -> Bytes:
        return self.randomize(values, source)

    def pair(self, p: Fraction) -> Probabilities:
        return Probabilities(p, (self.k - p) / (self.width - 1))

    def uniform(self, source: Source) -> int:
        return sum(1 << i for i in uniform_subset(self.width, self.k, source))

    def uniform_within(self, x: int, supporting: bool, source: Source) -> int:
        others = uniform_subset(self.width - 1, self.k - supporting, source)
        return sum((1 << (i + (i >= x)) for i in others), supporting << x)

    def uniform_many(self, n: int, source: Source) -> Bytes:
        none = np.zeros(n, dtype=np.int64)
        return self._packed(none, np.zeros(n, dtype=np.uint8), source)

    def uniform_within_many(self, xs: Ints, supporting: Bools, source: Source) -> Bytes:
        return self._packed(xs, np.where(supporting, _IN, _OUT).astype(np.uint8), source)

    def _packed(self, xs: Ints, place: Bytes, source: Source) -> Bytes:
        """Take the ``k`` smallest of random keys; a category's own key is moved to one end.

        Rows in which the last key taken equals another are drawn again. What remains treats all
        other categories alike, so that the subset is exactly uniform.
        """
        n, width = len(xs), self.width
        out = np.empty((n, -(-width // 8)), dtype=np.uint8)
        some = max(1, _KEYS // width)
        left = [np.arange(start, min(start + some, n)) for start in range(0, n, some)]
        while left:
            rows = left.pop()
            words = source.words(-(-len(rows) * width // 4)).view(np.uint16)
            keys = words[: len(rows) * width].reshape(-1, width).copy()
            for end, key in ((_IN, 0), (_OUT, 2**16 - 1)):
                moved = np.flatnonzero(place[rows] == end)
                keys[moved, xs[rows[moved]]] = key
            last = np.partition(keys, self.k - 1, axis=1)[:, self.k - 1]
            taken = keys <= last[:, None]
            good = taken.sum(axis=1) == self.k
            out[rows[good]] = np.packbits(taken[good], axis=1, bitorder="little")
            if not good.all():
                left.append(rows[~good])
        return out


def uniform_subset(n: int, k: int, source: Source) -> set[int]:
    """Draw a uniform subset of ``k`` of ``n`` numbers from one uniform integer, by Floyd's method.

    J. Bentley, B. Floyd, "Programming Pearls: A Sample of Brilliance", CACM 30(9), 1987.
    """
    chosen: set[int] = set()
    left = uniform_below(_orders(n, k), source)
    for last in range(n - k, n):
        left, index = divmod(left, last + 1)
        chosen.add(last if index in chosen else index)
    return chosen


@lru_cache(maxsize=256)
def _orders(n: int, k: int) -> int:
    return perm(n, k)
