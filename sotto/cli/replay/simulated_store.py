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
    """A database of one thread of one process, which loses nothing because nothing can stop it.

    What fails in the middle of a transaction is not rolled back, and the next one is refused.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.sending = threading.RLock()
        self.flushing = False
        self.use = None
        self.version = None
        self.look_again = 0.0
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

    def hold(self, use: int) -> None:
        """Do nothing: nobody else uses the database."""

    def begin(self, access: Access) -> Any:
        """Begin a transaction, and return what stands for the connection."""
        if self._failed:
            raise RuntimeError("an earlier transaction of this simulated device has failed")
        connection = self.connection
        if self.version is None:
            self._contents.refresh(connection)  # type: ignore[arg-type]
            self.version = 0
        return connection

    def commit(self, access: Access) -> None:
        """Do nothing: what a statement has changed is changed."""

    def write_guard(self) -> None:
        """Do nothing: nothing can be replaced by an older copy."""

    def let_go(self) -> None:
        """Note whether a transaction has failed."""
        self._failed = self._failed or self.version is None

    def release(self) -> None:
        """Do nothing: nobody waits."""


class SimulatedStore(Store):
    """The SDK's store over a :class:`SimulatedDatabase`."""

    kind_of_database = SimulatedDatabase
    #: Nothing is gained by a buffer in front of tables in memory.
    buffering = False


class Device(Client):
    """A client that lives for as long as its table lasts, at whatever time, and no longer."""

    _earliest = BEGINNING + 1

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
