"""Clients of simulated devices: the SDK's own, over dictionaries instead of a file.

What only matters where processes die, meet on one file or are forked is left out, below the SDK: no
locks, no journal, nothing rolled back.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from clientsdk import Client
from clientsdk.settings import BEGINNING
from clientsdk.store.database import Access, Contents, Database
from clientsdk.store.store import Store
from mechanisms.randomness import Source, SystemSource
from sotto.cli.replay.statements import SimulatedConnection

if TYPE_CHECKING:
    from mechanisms.arrays import Words


class PooledSource:
    """The operating system's CSPRNG, asked for many bits at once; each is returned once.

    For simulated devices alone: in an app a fork would return them twice.
    """

    _POOL = 1 << 16

    def __init__(self) -> None:
        self._pool = b""
        self._used = 0

    def bits(self, n: int) -> int:
        """Return a uniform integer in ``[0, 2**n)``."""
        size = (n + 7) >> 3
        start = self._used
        self._used = end = start + size
        if end > len(self._pool):
            self._pool = os.urandom(max(self._POOL, size))
            start, self._used = 0, size
            end = size
        return int.from_bytes(self._pool[start:end], "little") >> (8 * size - n)

    def words(self, n: int) -> Words:
        """Return ``(n,)`` 64-bit words."""
        return SystemSource().words(n)


class SimulatedDatabase(Database):
    """A database of one thread of one process, and the context of each of its transactions.

    What fails in the middle of one is not rolled back, and the next one is refused.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.sending = threading.RLock()
        self.flushing = False
        self.version = None
        self.connection = self.cursor = SimulatedConnection()  # type: ignore[assignment]
        self._failed = False

    def open(self, contents: Contents) -> None:
        """Begin to be used by a store."""
        self._contents = contents

    def close(self) -> None:
        """Let the store go, which has this database."""
        del self._contents

    def check_process(self) -> None:
        """Do nothing: a simulated device is not forked."""

    def __enter__(self) -> Any:
        if self.version is None:
            if self._failed:
                raise RuntimeError("an earlier transaction of this simulated device has failed")
            self._contents.refresh(self.connection)  # type: ignore[arg-type]
            self.version = 0
        return self.connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._failed, self.version = True, None


class SimulatedStore(Store):
    """The SDK's store over a :class:`SimulatedDatabase`."""

    kind_of_database = SimulatedDatabase
    database: SimulatedDatabase

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Nothing is gained by a buffer in front of dictionaries.
        self.buffers = False

    def prepare(self, connection: Any) -> bool:
        """Return whether the store is new: its tables need not be made."""
        return not connection.store

    def transaction(self, access: Access) -> Any:
        """Return a context in which the store changes: the database itself, which has one user."""
        return self.database


class Device(Client):
    """A client that lives for as long as its table lasts, at whatever time, and no longer."""

    _earliest = BEGINNING + 1
    _simulated = True

    def __init__(self, *arguments: Any, source: Source | None = None, **options: Any) -> None:
        self._randomness = source or SystemSource()
        super().__init__(*arguments, **options)

    def _source(self) -> Source:
        return self._randomness

    def _warn_that_it_forgets(self) -> None:
        """Do not: nothing of a simulated device is lost with the process."""

    def ignore_panels(self) -> None:
        """Answer in every period, whatever the plan's panels."""
        self._recorder.decisions.ignore_panels()


class SimulatedDevice(Device):
    """A device whose store is simulated."""

    _kind_of_store = SimulatedStore
