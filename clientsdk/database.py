"""Transactions on the device's file: between threads, between processes, and across forks."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from enum import Enum
from pathlib import Path
from types import TracebackType

from clientsdk import forks, schema
from sotto.errors import StoreError


class Access(Enum):
    """What a transaction may do, and what its commit survives."""

    READ = "read"
    """Sees one moment of the store."""
    WRITE = "write"
    """Excludes all other writers; the commit survives the death of the process."""
    DURABLE = "durable"
    """As ``WRITE``, and the commit survives a loss of power."""


class Database:
    """A connection, one object a process and client, and the discipline around it.

    Parameters
    ----------
    path : Path or None
        The file; None keeps everything in memory.

    Raises
    ------
    StoreError
        The file cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        #: Held by whoever sends, so that one process sends one batch at a time.
        self.sending = threading.Lock()
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._process = os.getpid()
        self._unusable: str | None = None
        self._version: int | None = None
        self._synchronous = Access.WRITE
        self._connection: sqlite3.Connection | None = schema.connect(path)
        forks.watch(self)

    def transaction(self, access: Access) -> _Transaction:
        """Return a context in which the store is locked and changes as a whole or not at all.

        Raises
        ------
        StoreError
            At entry or exit: the store cannot be used now. Nothing has changed.
        """
        return _Transaction(self, access)

    def scrub(self, *, compact: bool) -> bool:
        """Remove what deleted rows left behind in the file and its log.

        Deleted content is overwritten at once in its page, but the write-ahead log still has the
        older page; ``compact`` also rewrites the file, since a page that was split may have kept
        a copy of rows that moved to another.

        Returns
        -------
        bool
            False if another process was reading, or the disk is full: try again later.
        """
        if self.path is None:
            return True
        self.check_process()
        with self._lock:
            try:
                connection = self._connected()
                if compact:
                    connection.execute("VACUUM")
                (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except (sqlite3.Error, StoreError):
                return False
        return not busy

    def close(self) -> None:
        """Close the connection; the store cannot be used any more."""
        self.check_process()
        with self._lock:
            self._unusable = "it is closed"
            self._disconnect()

    def check_process(self) -> None:
        """Notice a fork that ran no hooks, and open the file anew in the child."""
        if self._process == os.getpid():
            return
        with forks.guard:
            if self._process != os.getpid():
                self._revive()

    def before_fork(self) -> None:
        """Close the connection and keep everybody out."""
        self._lock.acquire()
        if self.path is not None:
            self._disconnect()

    def after_fork_in_parent(self) -> None:
        """Let everybody in again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Let everybody in again, unless the store is in memory and now exists twice."""
        self._lock.release()
        self._revive()

    def _refresh(self, connection: sqlite3.Connection) -> None:
        """Read again whatever is kept in memory: another process has changed the store."""

    def _revive(self) -> None:
        # A lock that is held here was held by a thread of the parent, in the middle of a
        # transaction: neither closing nor using its connection is safe then.
        interrupted = self._lock.locked()
        connection = self._connection
        if self.path is None:
            self._unusable = "a store in memory stays with the process that was forked"
        elif connection is not None:
            self._connection = None
            if interrupted:
                self._unusable = "the process was forked in the middle of a transaction"
                forks.abandoned.append(connection)
            else:
                connection.close()
        self._version = None
        self._lock = threading.Lock()
        self._holder = None
        self.sending = threading.Lock()
        self._process = os.getpid()

    def _connected(self) -> sqlite3.Connection:
        if self._unusable is not None:
            raise sqlite3.ProgrammingError(self._unusable)
        if self._connection is None:
            self._connection = schema.connect(self.path)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._version = None
        self._synchronous = Access.WRITE
        if connection is not None:
            connection.close()

    def _begin(self, access: Access) -> sqlite3.Connection:
        self.check_process()
        thread = threading.get_ident()
        if self._holder == thread:
            # A signal handler or a finalizer that records, in the middle of a recording.
            raise StoreError("the device's store is in use by the same thread")
        self._lock.acquire()
        self._holder = thread
        try:
            connection = self._connected()
            version = self._start(connection, access)
            if version != self._version:
                self._refresh(connection)
                self._version = version
        except BaseException as error:
            self._roll_back()
            self._leave()
            if isinstance(error, sqlite3.Error):
                raise _unusable(error) from error
            raise
        return connection

    def _start(self, connection: sqlite3.Connection, access: Access) -> int:
        """Begin a transaction, once no other process is in the way; return the file's version."""
        if access is not Access.READ and access is not self._synchronous and self.path is not None:
            level = "FULL" if access is Access.DURABLE else "NORMAL"
            connection.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = access
        statement = "BEGIN" if access is Access.READ else "BEGIN IMMEDIATE"
        deadline = None
        while True:
            try:
                connection.execute(statement)
                return self._file_version(connection)
            except sqlite3.OperationalError as error:
                # SQLite's own waiting goes up to 100 ms a step, which starves whoever is late.
                deadline = deadline or time.monotonic() + schema.PATIENCE
                if not schema.is_busy(error) or time.monotonic() > deadline:
                    raise
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                time.sleep(schema.PAUSE)

    def _file_version(self, connection: sqlite3.Connection) -> int:
        """Return a number that another connection's commit changes."""
        if self.path is None:
            return 0
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _end(self, error: BaseException | None) -> None:
        try:
            if error is None:
                self._commit()
            else:
                self._roll_back()
                if isinstance(error, sqlite3.Error):
                    raise _unusable(error) from error
        finally:
            self._leave()

    def _commit(self) -> None:
        try:
            self._connected().execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise _unusable(error) from error

    def _leave(self) -> None:
        self._holder = None
        self._lock.release()

    def _roll_back(self) -> None:
        # What is kept in memory may be ahead of the file: read it again next time.
        self._version = None
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                # Closing rolls back what is left; the next use connects again.
                if self.path is not None:
                    self._disconnect()


class _Transaction:
    __slots__ = ("_access", "_database")

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access

    def __enter__(self) -> sqlite3.Connection:
        return self._database._begin(self._access)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database._end(error)


def _unusable(error: sqlite3.Error) -> StoreError:
    return StoreError(f"the device's store cannot be used: {error}")
