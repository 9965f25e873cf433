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
        The bytes of a request's body.
    body_seconds : float
        The seconds within which a request must have arrived.
    requests_per_second : float
        The requests of one app, on average.
    burst : int
        The requests of one app that may come at once.
    connections : int
        The connections that are open at one time; further ones are answered with 503. Bodies may be
        arriving over half of them; if one more begins, the oldest is refused with 503.
    waiting_bytes : int
        The bytes of the bodies of all requests that are not answered yet, each message counting as
        a kilobyte at least; further requests are refused with 503.
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

    If the room is full, the largest body that is still arriving gives way to a request that holds
    less. If more than ``bodies`` bodies are arriving, the oldest gives way. So slow senders cannot
    lock others out, neither by large bodies nor by many.

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
        #: The shares whose bodies are still arriving, the oldest first.
        self.arriving: dict[Share, None] = {}

    def share(self) -> Share:
        """Return the share of a new request, which holds nothing yet."""
        return Share(self)

    def take(self, share: Share, size: int) -> None:
        """Take ``size`` bytes for a share; OverloadError if there are not as many."""
        while self.held + size > self._most:
            largest = max(self.arriving, key=lambda each: each.size, default=share)
            if largest.size <= share.size + size:
                raise OverloadError("too many bytes wait")
            largest.evict()
        self.held += size


class Share:
    """The bytes that one request holds of the room; they are given back when its block ends."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0
        self.evicted = False
        self.on_eviction: Callable[[], None] = lambda: None

    def grow(self, size: int) -> None:
        """Take ``size`` more bytes; OverloadError if there are too few, or the share gave way."""
        if self.evicted:
            raise OverloadError("others need the room")
        self._room.take(self, size)
        self.size += size

    def whole(self) -> None:
        """Note that the body has arrived: the share gives way to no other any more."""
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
