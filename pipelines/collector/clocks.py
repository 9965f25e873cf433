"""A clock that is checked before a record of the log is given its time."""

from __future__ import annotations

import time
from collections.abc import Callable

from sotto.clocks import now_ms
from sotto.errors import PublishError

#: By how much, in ms, the wall clock may be set while a process runs, and how long a log may rest.
LEAP, REST = 600_000, 366 * 86_400_000
#: A clock that goes on while the machine sleeps; macOS has it under the other name.
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def steady_ms() -> int:
    """Return the time of a clock that nobody sets, in milliseconds."""
    ns = time.monotonic_ns() if _STEADY is None else time.clock_gettime_ns(_STEADY)
    return ns // 1_000_000


class CheckedClock:
    """The wall clock, compared with a steady one and with the time of the last record.

    Parameters
    ----------
    wall, steady : callable
        Return milliseconds: since the epoch, and of a clock that is never set.
    last : int, optional
        When a process before this one wrote its last record, ms since the epoch.

    Examples
    --------
    >>> now = [0, 0]
    >>> clock = CheckedClock(lambda: now[0], lambda: now[1])
    >>> now[:] = [9 * LEAP, 1000]
    >>> clock()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    sotto.errors.PublishError: this machine's clock has leapt by 5,399 s: set it; ...
    >>> now[:] = [2000, 2000]
    >>> clock()
    2000
    """

    def __init__(
        self,
        wall: Callable[[], int] = now_ms,
        steady: Callable[[], int] = steady_ms,
        last: int | None = None,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._last = last
        now = wall()
        self._offset = None if self._rested(now) else now - steady()

    def __call__(self) -> int:
        """Return the time in milliseconds since the epoch.

        Raises PublishError if the clock has leapt, until it is back.
        """
        now = self._wall()
        offset = now - self._steady()
        if self._offset is None:
            if self._rested(now):
                raise PublishError(
                    "by this machine's clock the last record is more than a year old: set the "
                    "clock; if it is right, write to another partition"
                )
        elif abs(offset - self._offset) > LEAP:
            raise PublishError(
                f"this machine's clock has leapt by {(offset - self._offset) // 1000:,} s: set it; "
                "if it is right now, start again"
            )
        self._offset = offset
        return now

    def _rested(self, now: int) -> bool:
        return self._last is not None and now - self._last > REST
