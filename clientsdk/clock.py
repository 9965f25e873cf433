"""The device's clock, as far as it can be right.

A reading that cannot be right moves nothing on: nothing is recorded, sent or erased by it. One that
could be right, and is not, is taken back as soon as the clock is
(:meth:`clientsdk.store.store.Store.follow`).
"""

from __future__ import annotations

from collections.abc import Callable

from clientsdk.settings import BEGINNING

#: The years 2020 and 2100, in milliseconds since the epoch: no clock that is right is outside.
EARLIEST, LATEST = 1_577_836_800_000, 4_102_444_800_000


def plausible(clock: Callable[[], int], earliest: int = EARLIEST) -> Callable[[], int]:
    """Return a clock that says :data:`BEGINNING` where the one given cannot be right."""

    def now() -> int:
        time = int(clock())
        return time if earliest <= time < LATEST else BEGINNING

    return now


def if_known(clock: Callable[[], int]) -> Callable[[], int]:
    """Return a clock that says :data:`BEGINNING` where the one given, which is an app's, raises."""

    def now() -> int:
        try:
            return clock()
        except Exception:
            return BEGINNING

    return now
