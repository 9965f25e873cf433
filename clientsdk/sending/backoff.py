"""How long to wait before the next attempt: longer after each failure, with full jitter.

M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import os

#: Seconds: the most that is waited after one failure, after many, and because a receiver asks.
FIRST = 2.0
LONGEST = 600.0
LONGEST_HINT = 86_400.0

_BITS = 53


def chance() -> float:
    """Return a uniform number in [0, 1), from the operating system; 1 where that gives none."""
    try:
        drawn = os.urandom(7)
    except OSError:
        return 1.0
    return (int.from_bytes(drawn, "little") >> (56 - _BITS)) / (1 << _BITS)


def delay(failures: int, hint: float | None = None, longest: float | None = None) -> float:
    """Return how many seconds to wait after so many failures in a row.

    ``hint`` is how long the receiver asks to be left alone, no more than a day; the rest, at most
    ``longest``, is added.
    """
    most = LONGEST if longest is None else longest
    ceiling = min(most, FIRST * 2.0 ** min(failures - 1, 30))
    least = min(hint, LONGEST_HINT) if hint is not None and hint > 0 else 0.0
    return least + ceiling * chance()
