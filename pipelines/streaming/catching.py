"""What was told before a job was restored is not told anew before as much has been read again.

A job that has gone back to a checkpoint lacks at first what came since, and has published it. A
lane that was restored is therefore behind until it gives records that the broker took after the
start, or nothing for a while, and says so at every tick to all who make documents; these wait. That
is bounded: whatever a lane says, documents are made again after the minutes of
:mod:`pipelines.streaming.settling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pipelines.streaming.settling import SETTLED

#: From a lane's last tick at which it is behind what it has read has so long, beside the time for
#: which rows wait, to arrive in the sums: at the next tick shards take what waits.
ARRIVAL = 2_000

_Key = TypeVar("_Key")


@dataclass
class _Restored:
    """A lane that was restored: when it was first ticked, and when it was last seen to move."""

    began: int | None = None
    offset: int = -1
    moved: int = 0


class CatchingUp(Generic[_Key]):
    """Tells which lanes are behind; it lives as long as its operator.

    Parameters
    ----------
    quiet : int
        A lane that gives nothing for so long has no more to give, ms.
    """

    def __init__(self, quiet: int) -> None:
        self._quiet = quiet
        self._lanes: dict[_Key, _Restored | None] = {}

    def meet(self, lane: _Key, restored: bool) -> None:
        """Note a lane when it is first met: whether it has a state then."""
        if lane not in self._lanes:
            self._lanes[lane] = _Restored() if restored else None

    def behind(self, lane: _Key, clock: int, offset: int, now: int) -> bool:
        """Tell whether a lane is behind.

        Parameters
        ----------
        lane : key
            One that has been met.
        clock : int
            The append time of its last record, ms.
        offset : int
            Its next.
        now : int
            The wall clock, ms, which never falls.

        Examples
        --------
        >>> lanes = CatchingUp[str](quiet=5)
        >>> lanes.meet("restored", True)
        >>> said = [(70, 1, 100), (80, 2, 104), (99, 3, 108), (100, 4, 109), (100, 4, 110)]
        >>> [lanes.behind("restored", *each) for each in said]
        [True, True, True, False, False]
        """
        known = self._lanes[lane]
        if known is None:
            return False
        if known.began is None:
            known.began = now
        if offset != known.offset:
            known.offset, known.moved = offset, now
        began, moved = known.began, known.moved
        if clock < began and now - moved < self._quiet and now - began < SETTLED:
            return True
        self._lanes[lane] = None
        return False


class Waiting:
    """Tells who is to wait with documents; it lives as long as its operator.

    Parameters
    ----------
    linger : int
        As of the deployment, ms.
    """

    def __init__(self, linger: int) -> None:
        self._lease = linger + ARRIVAL
        self._until: dict[int, int] = {}

    def meet(self, key: int, restored: bool, now: int) -> None:
        """Note a key when it is first met: one that has a state waits for what lanes say."""
        if key not in self._until:
            self._until[key] = now + self._lease if restored else now

    def hear(self, key: int, now: int) -> None:
        """Note that a lane has said to a key that it is behind."""
        self._until[key] = now + self._lease

    def waits(self, key: int, now: int) -> bool:
        """Tell whether a key is to wait.

        Examples
        --------
        >>> waiting = Waiting(linger=1_000)
        >>> waiting.meet(7, False, now=50)
        >>> waiting.waits(7, now=50)
        False
        >>> waiting.hear(7, now=60)
        >>> waiting.waits(7, now=60 + 2_999), waiting.waits(7, now=60 + 3_000)
        (True, False)
        """
        return now < self._until[key]

    def knows(self, key: int) -> bool:
        """Tell whether a key has been met."""
        return key in self._until
