"""The place at which a condition turns false, found by halving an interval."""

from __future__ import annotations

from collections.abc import Callable


def turning(
    holds: Callable[[float], bool], start: float, end: float, times: int = 40
) -> tuple[float, float]:
    """Return ends of the interval where ``holds`` turns false, halved so many times.

    It is taken to hold at ``start``, which may be the larger one, and not to hold at ``end``.

    >>> turning(lambda x: x * x < 2, 0.0, 2.0, times=4)
    (1.375, 1.5)
    """
    for _ in range(times):
        middle = (start + end) / 2
        start, end = (middle, end) if holds(middle) else (start, middle)
    return start, end
