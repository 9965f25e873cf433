"""Transactions on the device's file: between threads, between processes, and across forks."""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
import time
from enum import Enum
from pathlib import Path
from types import TracebackType

from clientsdk import forks, schema
from sotto.errors import StoreError

_turns = itertools.count(1)


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
        The file; None keeps everything in memory. A relative path or a link is resolved once,
        here: what lies beside the file has one place, by whatever name it is opened.

    Raises
    ------
    StoreError
        The file cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = None if path is None else Path(os.path.realpath(path))
        #: Held by whoever sends, so that one process sends one batch at a time.
        self.sending = threading.RLock()
        #: Whether the holder of ``sending`` is at it.
        self.flushing = False
        # Reentrant so that an interrupted thread never waits for itself; ``_holder`` is what
        # keeps a thread from using the store in the middle of a use of its own.
        self._lock = threading.RLock()
        self._holder: int | None = None
        self._turn: int | None = None
        self._suspended = False
        self._process = os.getpid()
        self._unusable: str | None = None
        self._version: int | None = None
        self._synchronous = Access.WRITE
        self._place: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._connect(create=True)
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
        try:
            with _Hold(self):
                connection = self._connected()
                if self._version is None:
                    self._recognize(connection)
                busy = self._scrub(connection, compact)
        except (sqlite3.Error, StoreError):
            return False
        return not busy

    def _scrub(self, connection: sqlite3.Connection, compact: bool) -> bool:
        # SQLite waits better here than we could: while it waits no reader begins to use the log.
        # Without waiting, a log that several processes use all the time would never be emptied.
        connection.execute(f"PRAGMA busy_timeout = {schema.SCRUB_PATIENCE}")
        try:
            if compact:
                connection.execute("VACUUM")
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return bool(busy)
        finally:
            connection.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Close the connection; the store cannot be used any more.

        Raises
        ------
        StoreError
            It is in use, by this very thread or for very long by another.
        """
        with _Hold(self):
            self._unusable = "it is closed"
            self._disconnect()

    def check_process(self) -> None:
        """Notice a fork that ran no hooks, and open the file anew in the child."""
        if self._process == os.getpid():
            return
        with forks.alone():
            if self._process != os.getpid():
                self._revive()

    def before_fork(self) -> None:
        """Close the connection and keep everybody out."""
        self._suspended = self._lock.acquire(timeout=schema.LOCK_PATIENCE)
        if self._suspended and self.path is not None:
            self._disconnect()

    def after_fork_in_parent(self) -> None:
        """Let everybody in again."""
        if self._suspended:
            self._suspended = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Let everybody in again, unless the store is in memory and now exists twice."""
        self._revive()

    def _seal(self, connection: sqlite3.Connection) -> None:
        """Add to a transaction whose commit is to survive a loss of power."""

    def _vouch(self) -> None:
        """Note beside the file that such a commit has come through, while it is still locked."""

    def _refresh(self, connection: sqlite3.Connection) -> None:
        """Read again whatever is kept in memory: the file may have changed, or be another."""

    def _recognize(self, connection: sqlite3.Connection) -> None:
        version = self._start(connection, Access.READ)
        try:
            self._refresh(connection)
        finally:
            connection.execute("ROLLBACK")
        self._version = version

    def _revive(self) -> None:
        # What is held here is held by a thread of the parent, in the middle of a transaction:
        # neither closing nor using its connection is safe then.
        interrupted = self._holder is not None
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
        self._synchronous = Access.WRITE
        self._lock = threading.RLock()
        self._holder = self._turn = None
        self._suspended = False
        self.sending = threading.RLock()
        self.flushing = False
        self._process = os.getpid()

    def _connected(self) -> sqlite3.Connection:
        if self._unusable is not None:
            raise sqlite3.ProgrammingError(self._unusable)
        return self._connection or self._connect(create=False)

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        # Before: of a file that cannot be opened it must be known which one it was.
        self._place = self._where()
        self._connection = connection = schema.connect(self.path, create=create)
        self._place = self._place or self._where()
        return connection

    def _where(self) -> tuple[int, int] | None:
        """Return what tells the file that is there now from any other, None if there is none."""
        if self.path is None:
            return None
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._version = None
        self._synchronous = Access.WRITE
        if connection is not None:
            connection.close()

    def _begin(self, access: Access) -> sqlite3.Connection:
        connection = self._connected()
        if access is Access.DURABLE and self._where() != self._place:
            # The file was renamed or replaced: what is sent must be charged in the one that others
            # find. If it is not this store's, reading it again says so.
            self._disconnect()
            connection = self._connected()
        version = self._start(connection, access)
        if version != self._version:
            self._refresh(connection)
            self._version = version
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

    def _refuse_reentry(self) -> None:
        self.check_process()
        if self._holder == threading.get_ident():
            # A signal handler or a finalizer that records, in the middle of a recording.
            raise StoreError("the device's store is in use by the same thread")

    def _hold(self, turn: int) -> None:
        """Keep other threads out; what follows must end in :meth:`_let_go`, come what may."""
        thread = threading.get_ident()
        if not self._lock.acquire(timeout=schema.LOCK_PATIENCE):
            raise StoreError("the device's store is in use by another thread")
        self._holder, self._turn = thread, turn

    def _let_go(self) -> None:
        """Roll back what was not committed and let others in, if this thread kept them out."""
        mine = self._holder == threading.get_ident()
        try:
            if mine:
                self._roll_back()
        finally:
            # No call from here to the release: an interrupt arrives at calls.
            if mine:
                self._holder = self._turn = None
            try:
                self._lock.release()
            except RuntimeError:
                mine = False

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            self._version = None
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                # Closing rolls back what is left; the next use connects again.
                if self.path is not None:
                    self._disconnect()


class _Hold:
    """Exclusive use of a database by one thread, for one ``with`` statement."""

    _turn = 0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = next(_turns)

    def __enter__(self) -> None:
        self._database._refuse_reentry()
        try:
            self._database._hold(self._turn)
        except BaseException:
            self._database._let_go()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database._let_go()

    def __del__(self) -> None:
        # Interrupted at the very entry of what should have let go.
        if self._turn and self._database._turn == self._turn:
            self._database._version = None
            self._database._let_go()


class _Transaction:
    __slots__ = ("_access", "_database", "_hold")

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access
        self._hold = _Hold(database)

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        self._hold.__enter__()
        try:
            return database._begin(self._access)
        except BaseException as error:
            database._version = None
            database._let_go()
            if isinstance(error, sqlite3.Error):
                raise _unusable(error) from error
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        database, committed = self._database, False
        try:
            if error is None:
                durable = self._access is Access.DURABLE
                connection = database._connected()
                if durable:
                    database._seal(connection)
                connection.execute("COMMIT")
                committed = True
                if durable:
                    database._vouch()
        except sqlite3.Error as failure:
            raise _unusable(failure) from failure
        finally:
            if not committed:
                # What is kept in memory may be ahead of the file: read it again next time.
                database._version = None
            database._let_go()
        if isinstance(error, sqlite3.Error):
            raise _unusable(error) from error


def _unusable(error: sqlite3.Error) -> StoreError:
    kind = schema.DamagedError if schema.is_damage(error) else StoreError
    return kind(f"the device's store cannot be used: {error}")
