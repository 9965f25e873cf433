"""Sources of randomness, and exact draws from them: no floating point before a draw."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from mechanisms.arrays import Any, Words, np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


class Source(Protocol):
    """A source of independent uniform bits."""

    def bits(self, n: int) -> int:
        """Return a uniform integer in ``[0, 2**n)``."""

    def words(self, n: int) -> Words:
        """Return ``(n,)`` independent uniform 64-bit words."""


class SystemSource:
    """The operating system's cryptographically secure generator: what protects a person draws here.

    It keeps no pool, so that neither a fork nor a copied process can hand out the same bits twice.
    """

    __slots__ = ()

    def bits(self, n: int) -> int:
        size = (n + 7) >> 3
        return int.from_bytes(os.urandom(size), "little") >> (8 * size - n)

    def words(self, n: int) -> Words:
        return np.frombuffer(os.urandom(8 * n), dtype="<u8").astype(np.uint64, copy=False)


class _NoSource:
    """Refuses: a value that is rounded at random has more than one encoding."""

    def bits(self, n: int) -> Any:
        raise NotImplementedError("a mechanism that rounds at random must define its prior")

    words = bits


#: For a value that is not rounded at random.
NO_SOURCE = _NoSource()


def uniform_below(bound: int, source: Source) -> int:
    """Return a uniform integer in ``[0, bound)`` by rejection."""
    bits = (bound - 1).bit_length()
    if bits == 0:
        return 0
    while True:
        value = source.bits(bits)
        if value < bound:
            return value


def choose(weights: Mapping[int, int], source: Source) -> int:
    """Return a key with probability exactly proportional to its integer weight."""
    keys = list(weights)
    totals = list(accumulate(weights.values()))
    return keys[bisect_right(totals, uniform_below(totals[-1], source))]


def some_below(bound: int, count: int, source: Source) -> Sequence[int]:
    """Return all numbers below ``bound``, rising; or ``count`` of them, drawn at random."""
    if bound <= count:
        return range(bound)
    chosen: set[int] = set()
    while len(chosen) < count:
        chosen.add(uniform_below(bound, source))
    return sorted(chosen)
