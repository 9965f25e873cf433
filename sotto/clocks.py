"""The time as both sides write it down."""

from __future__ import annotations

import time
from collections.abc import Callable

#: The years 2020 and 2100, in milliseconds since the epoch: no clock that is right is outside.
EARLIEST, LATEST = 1_577_836_800_000, 4_102_444_800_000
#: The time of a device's clock that cannot be right: earlier than any, in ms since the epoch.
BEGINNING = -(1 << 62)


def now_ms() -> int:
    """Return the time in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def plausible(clock: Callable[[], int], earliest: int = EARLIEST) -> Callable[[], int]:
    """Return a clock that says :data:`BEGINNING` where the one given cannot be right.

    Such a reading moves nothing on: nothing is recorded, sent or erased by it. One that could be
    right, and is not, is taken back as soon as the clock is
    (:meth:`clientsdk.store.store.Store.follow`).
    """

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


def day(time: int) -> str:
    """Return the day of a time in milliseconds since the epoch, in UTC."""
    return _written(time, "%Y-%m-%d")


def minute(time: int) -> str:
    """Return the minute of a time in milliseconds since the epoch, in UTC."""
    return _written(time, "%Y-%m-%d %H:%M")


def _written(time: int, form: str) -> str:
    # The module is imported here so that an app that shows no time starts sooner.
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(time // 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        # A broken clock may say any time, also one that is no date.
        return f"{time} ms"
