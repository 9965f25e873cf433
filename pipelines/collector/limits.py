"""Limits of the collector: how many requests an app may make, how long one may take, how much may
wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sotto.errors import SottoError


class OverloadError(SottoError):
    """As many bytes wait as the collector may hold."""


@dataclass(frozen=True)
class Limits:
    """The most that the collector takes.

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
        Open at one time; further ones are answered with 503. Bodies may be arriving over half of
        them: one more has the oldest refused with 503.
    waiting_bytes : int
        Of the bodies of all requests that are not answered yet, where each message counts as a
        kilobyte at least; further ones are refused with 503.
    """

    body_bytes: int = 4 << 20
    body_seconds: float = 10.0
    requests_per_second: float = 1000.0
    burst: int = 2000
    connections: int = 2000
    waiting_bytes: int = 64 << 20


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


class Room:
    """The bytes that all requests may hold together.

    The largest of the bodies that are still arriving gives way, when it is full, to a request that
    holds less. The oldest of them gives way to a new one beyond ``bodies``. So slow senders lock
    nobody out, neither by large bodies nor by many.

    Examples
    --------
    >>> room = Room(10, bodies=2)
    >>> with room.share() as slow, room.share() as other:
    ...     slow.grow(9)
    ...     other.grow(5)
    ...     room.held, slow.size, slow.evicted
    (5, 0, True)
    >>> with room.share() as waiting, room.share() as other:
    ...     waiting.grow(9)
    ...     waiting.whole()
    ...     other.grow(5)
    Traceback (most recent call last):
    ...
    pipelines.collector.limits.OverloadError: too many bytes wait
    >>> with room.share() as oldest, room.share() as other, room.share() as newest:
    ...     oldest.evicted, other.evicted, newest.evicted, room.held
    (True, False, False, 0)
    """

    def __init__(self, most: int, bodies: int) -> None:
        self._most = most
        self.bodies = bodies
        self.held = 0
        #: The oldest first.
        self.arriving: dict[Share, None] = {}

    def share(self) -> Share:
        """Return what one request holds of it: nothing yet, and its body is still arriving."""
        return Share(self)

    def take(self, share: Share, size: int) -> None:
        """Hold so many bytes more; OverloadError if there are not as many."""
        while self.held + size > self._most:
            largest = max(self.arriving, key=lambda each: each.size, default=share)
            if largest.size <= share.size + size:
                raise OverloadError("too many bytes wait")
            largest.evict()
        self.held += size


class Share:
    """The share of one request; given back when its block ends."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0
        self.evicted = False
        self.on_eviction: Callable[[], None] = lambda: None

    def grow(self, size: int) -> None:
        """Hold so many bytes more; OverloadError if there are not as many, or it gave way."""
        if self.evicted:
            raise OverloadError("others need the room")
        self._room.take(self, size)
        self.size += size

    def whole(self) -> None:
        """Hold what it has until the end: the body has arrived."""
        self._room.arriving.pop(self, None)

    def evict(self) -> None:
        """Give back all at once, and call ``on_eviction``."""
        self.evicted = True
        self.__exit__()
        self.on_eviction()

    def __enter__(self) -> Share:
        if len(self._room.arriving) >= self._room.bodies:
            next(iter(self._room.arriving)).evict()
        self._room.arriving[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        self.whole()
        self._room.held -= self.size
        self.size = 0
