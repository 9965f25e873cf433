"""The lock by which one process at a time sends from a state file.

Two that sent at once would send the same bytes twice; they would be counted once, and cost twice.
The lock is the operating system's, on a file beside the state file: it ends with the process that
holds it, however that ends, and no clock decides. The file holds which pseudonym's reports went
last by themselves, and until when those of others rest, so that neither a restart nor another
process sends them right behind; and until when each pseudonym waits that could not be sent.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress

from clientsdk.lifecycle import Forkable, watch_forks
from mechanisms.frozen import NamedTuple
from sotto.files import open_file, read_at, try_lock, unlock, write_at

#: The suffix of the state file's name.
SUFFIX = "-sending"
_PAUSE = 0.01
_REST = struct.Struct("<qqq?")
#: How many waits follow, and each of them.
_COUNT = struct.Struct("<H")
_WAIT = struct.Struct("<q?qqI")
#: The most waits that are kept. A device has as many pseudonyms as a horizon has periods.
_MOST = 256


class Pseudonym(NamedTuple):
    """A pseudonym of this device: of a budget period, in messages that are signed or not."""

    period: int
    signed: bool


class Rest(NamedTuple):
    """Reports of other pseudonyms than this rest from ``since`` until then, ms since the epoch."""

    pseudonym: Pseudonym
    since: int
    until: int


class Wait(NamedTuple):
    """An attempt for a pseudonym failed: what was due at ``since`` is sent at ``until``, in ms."""

    since: int
    until: int
    failures: int  #: In a row.


class SendLock(Forkable):
    """The right to send from one state file, or from a store in memory, for one client."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else f"{path}{SUFFIX}"
        self._process = os.getpid()
        # The file is an attribute before it is locked: after an interrupt the next flush of this
        # client finds the lock, and it is never lost.
        self._descriptor: int | None = None
        # The rest is kept here if there is no file to write it to.
        self._rest: Rest | None = None
        self._waits: dict[Pseudonym, Wait] = {}
        if path is not None:
            watch_forks(self)

    def take(self, seconds: float) -> bool:
        """Wait for the lock; False if another client has had it all the time.

        Everybody may send if the file cannot be opened or the file system has no locks.
        """
        if self._path is None:
            return True
        if self._process != os.getpid():
            self.after_fork_in_child()
        try:
            if self._descriptor is None:
                self._descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT)
            return _locked(self._descriptor, time.monotonic() + seconds)
        except OSError:
            return True

    def release(self) -> None:
        descriptor = self._descriptor
        if descriptor is not None and self._process == os.getpid():
            # A copy in the child of a fork would go on holding the lock if it were only closed.
            unlock(descriptor)
            self._descriptor = None
            os.close(descriptor)

    @property
    def rest(self) -> Rest | None:
        """Which reports rest; to be read and set by the holder of the lock."""
        if self._descriptor is not None:
            with suppress(OSError):
                data = read_at(self._descriptor, _REST.size, 0)
                if len(data) == _REST.size:
                    period, since, until, signed = _REST.unpack(data)
                    return Rest(Pseudonym(period, signed), since, until)
        return self._rest

    @rest.setter
    def rest(self, rest: Rest) -> None:
        self._rest = rest
        if self._descriptor is not None:
            with suppress(OSError):
                (period, signed), since, until = rest
                write_at(self._descriptor, _REST.pack(period, since, until, signed), 0)

    @property
    def waits(self) -> dict[Pseudonym, Wait]:
        """The pseudonyms that wait; to be read and set by the holder of the lock."""
        if self._descriptor is not None:
            with suppress(OSError):
                data = read_at(self._descriptor, _COUNT.size + _MOST * _WAIT.size, _REST.size)
                if len(data) >= _COUNT.size:
                    (number,) = _COUNT.unpack_from(data)
                    data = data[_COUNT.size :][: min(number, _MOST) * _WAIT.size]
                    whole = data[: len(data) - len(data) % _WAIT.size]
                    return {
                        Pseudonym(period, signed): Wait(*wait)
                        for period, signed, *wait in _WAIT.iter_unpack(whole)
                    }
        return dict(self._waits)

    @waits.setter
    def waits(self, waits: dict[Pseudonym, Wait]) -> None:
        self._waits = dict(waits)
        if self._descriptor is not None:
            kept = sorted(waits.items())[-_MOST:]
            rows = (_WAIT.pack(*pseudonym, *wait) for pseudonym, wait in kept)
            with suppress(OSError):
                if len(read_at(self._descriptor, _REST.size, 0)) < _REST.size:
                    write_at(self._descriptor, bytes(_REST.size), 0)
                data = _COUNT.pack(len(kept)) + b"".join(rows)
                write_at(self._descriptor, data, _REST.size)

    def after_fork_in_child(self) -> None:
        """Close the copy of the descriptor, without releasing the parent's lock."""
        descriptor, self._descriptor = self._descriptor, None
        self._process = os.getpid()
        if descriptor is not None:
            os.close(descriptor)


def _locked(descriptor: int, deadline: float) -> bool:
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True
