"""Given randomness, and devices that draw from it: for vectors alone.

A client of production takes no source of randomness from anywhere; these are subclasses of what
tests use, and nothing in the library imports them.
"""

from __future__ import annotations

import random
from typing import Any

from clientsdk.testing import FakeClock, SeededClient
from mechanisms.randomness import Source


class UsedUpError(Exception):
    """More random bits were drawn than a vector gives."""


class GivenBits:
    """A source whose bits are given: a little-endian number, drawn from its lowest bit on."""

    def __init__(self, stream: bytes) -> None:
        self._stream = int.from_bytes(stream, "little")
        self.left = 8 * len(stream)
        self.drawn = 0

    def bits(self, n: int) -> int:
        if n > self.left:
            raise UsedUpError(f"{n} bits are drawn and {self.left} are left")
        found = self._stream & ((1 << n) - 1)
        self._stream >>= n
        self.left -= n
        self.drawn += n
        return found

    def words(self, n: int) -> Any:
        raise NotImplementedError("a device draws one value at a time")


class DeviceBits:
    """The source of a device in a scenario: what a step gives, or any bits, which are noted.

    ``dies`` is how often may still be drawn before the process ends, None for any number.
    """

    def __init__(self, death: type[BaseException]) -> None:
        self._random = random.Random("device")
        self._death = death
        self._given: GivenBits | None = None
        self._drawn = self._size = 0
        self.dies: int | None = None

    def begin(self, given: bytes | None) -> None:
        """Begin a step; without bits that are given any are drawn."""
        self._given = None if given is None else GivenBits(given)
        self._drawn = self._size = 0
        self.dies = None

    @property
    def drawn(self) -> bytes:
        """All bits that the step has drawn."""
        return self._drawn.to_bytes(-(-self._size // 8), "little")

    def bits(self, n: int) -> int:
        if self.dies is not None:
            if self.dies == 0:
                raise self._death
            self.dies -= 1
        found = self._random.getrandbits(n) if self._given is None else self._given.bits(n)
        self._drawn |= found << self._size
        self._size += n
        return found

    def words(self, n: int) -> Any:
        raise NotImplementedError("a device draws one value at a time")


class Device(SeededClient):
    """A client that draws from a source of the test's, with whatever clock and publisher."""

    def __init__(self, plan: bytes, *, source: DeviceBits, clock: FakeClock, **more: Any) -> None:
        self._given = source
        super().__init__(plan, seed=0, clock=clock, consent=False, **more)

    def _source(self) -> Source:
        return self._given
