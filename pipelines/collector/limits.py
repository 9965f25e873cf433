"""Limits of the collector: how many requests an app may make, and how long a request may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What the collector takes at most.

    Attributes
    ----------
    body_bytes : int
        Of a request.
    body_seconds : float
        Within which a request must have arrived.
    requests_per_second : float
        Of one app, on average.
    burst : int
        Requests of one app that may come at once.
    connections : int
        Open at one time; further ones are answered with 503.
    """

    body_bytes: int = 4 << 20
    body_seconds: float = 10.0
    requests_per_second: float = 1000.0
    burst: int = 2000
    connections: int = 2000


class TokenBucket:
    """Admits ``rate`` requests a second on average, and ``burst`` at once.

    Examples
    --------
    >>> now = [0.0]
    >>> bucket = TokenBucket(2.0, 1, lambda: now[0])
    >>> bucket.take(), bucket.take()
    (0.0, 0.5)
    >>> now[0] = 0.5
    >>> bucket.take()
    0.0
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic):
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock()

    def take(self) -> float:
        """Take one token; return 0, or the seconds after which there is one again."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0
