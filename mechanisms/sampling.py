"""Exact sampling from integers: no floating point between a probability and a draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from mechanisms.randomness import Source


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
    # No mechanism of a plan needs it.
    from bisect import bisect_right

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
