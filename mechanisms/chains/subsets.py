"""Uniform subsets of categories, and the chain that draws those with, or without, the true one."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import comb, perm

from mechanisms.arrays import Any, Bools, Bytes, Ints, Words, np
from mechanisms.chains.chain import BitOutputs, bit_of
from mechanisms.chains.supporting import SupportChain
from mechanisms.frozen import frozen
from mechanisms.levels import Probabilities
from mechanisms.randomness import Source, uniform_below

#: Bytes of rows that are held at once, and random bits behind a coin.
_HELD, _PLANES = 1 << 20, 5


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
        return self._packed(np.full(n, -1), np.full(n, self.k), source)

    def uniform_within_many(self, xs: Ints, supporting: Bools, source: Source) -> Bytes:
        out = self._packed(xs, self.k - supporting.astype(np.int64), source)
        out[np.arange(len(xs)), xs >> 3] |= (supporting << (xs & 7)).astype(np.uint8)
        return out

    def _packed(self, without: Ints, sizes: Ints, source: Source) -> Bytes:
        """Draw uniform subsets of given sizes; the category ``without`` is in none, −1 is no such.

        Every category is taken by a coin, and then uniform ones are added, or taken away, until
        the size is right. Both treat all categories alike, so that the subset is exactly uniform,
        whatever the coins' probability is: it is a little below that of the size.
        """
        n = len(sizes)
        out = np.empty((n, self.payload_width), dtype=np.uint8)
        some = max(1, _HELD // (8 * self.words))
        for start in range(0, n, some):
            part = slice(start, min(start + some, n))
            rows = self._coins(len(sizes[part]), source)
            barred = without[part]
            self._assign(rows, np.flatnonzero(barred >= 0), barred[barred >= 0], False)
            self._resize(rows, barred, sizes[part], source)
            out[part] = rows.astype("<u8").view(np.uint8)[:, : self.payload_width]
        return out

    def _coins(self, n: int, source: Source) -> Words:
        """Return ``(n, words)`` rows of bits, each 1 with about the share of a subset, or less."""
        share = self.k / self.width
        aim = int((share - (share * (1 - share) / self.width) ** 0.5) * 2**_PLANES)
        rows = np.zeros((n, self.words), dtype=np.uint64)
        for plane in range(_PLANES) if aim > 0 else ():
            bits = source.words(n * self.words).reshape(n, self.words)
            rows = rows | bits if aim >> plane & 1 else rows & bits
        rows[:, -1] &= np.uint64(2**64 - 1 >> (-self.width % 64))
        return rows

    def _resize(self, rows: Words, barred: Ints, sizes: Ints, source: Source) -> None:
        """Add uniform categories to rows with too few, and take some from those with too many."""
        missing = sizes - np.bitwise_count(rows).sum(axis=1, dtype=np.int64)
        while (left := np.flatnonzero(missing)).size:
            words = source.words(len(left))
            # Words beyond the last multiple of the width would favour the first categories.
            fair = words <= np.uint64(2**64 - 1 - 2**64 % self.width)
            place = (words % np.uint64(self.width)).astype(np.int64)
            add = missing[left] > 0
            there = rows[left, place >> 6] >> (place & 63).astype(np.uint64) & np.uint64(1) == 1
            change = fair & (there != add) & (place != barred[left])
            for adding in (True, False):
                these = change & (add == adding)
                self._assign(rows, left[these], place[these], adding)
            missing[left[change]] -= np.where(add[change], 1, -1)

    def _assign(self, rows: Words, which: Ints, places: Ints, value: bool) -> None:
        """Set or clear one place in each of some rows."""
        bits = np.uint64(1) << (places & 63).astype(np.uint64)
        if value:
            rows[which, places >> 6] |= bits
        else:
            rows[which, places >> 6] &= ~bits


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
