"""Transactions on the device's file: between threads, between processes, and across forks."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from os import getpid
from threading import get_ident
from time import monotonic

from clientsdk import forks, notes, schema
from clientsdk.notes import Note
from clientsdk.transactions import DURABLE, READ, WRITE, Access, Hold, Transaction
from sotto.errors import StoreError

__all__ = ["Access", "Database"]


class Database:
    """A connection, one object a process and client, and the discipline around it.

    Parameters
    ----------
    path : str or None
        The file; None keeps everything in memory. A relative path or a link is resolved once,
        here: what lies beside the file has one place, by whatever name it is opened.

    Raises
    ------
    StoreError
        The file cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else os.path.realpath(path)
        #: Held by whoever sends, so that one process sends one batch at a time.
        self.sending = threading.RLock()
        #: Whether the holder of ``sending`` is at it.
        self.flushing = False
        # Reentrant so that an interrupted thread never waits for itself; ``_holder`` is what
        # keeps a thread from using the store in the middle of a use of its own.
        self._lock = threading.RLock()
        self._holder: int | None = None
        #: Whose use it is, by the number of a :class:`~clientsdk.transactions.Hold`.
        self.turn: int | None = None
        self._suspended = False
        self.process = getpid()
        self._unusable: str | None = None
        #: Of the file, as far as memory agrees with it; None if it may not.
        self.version: int | None = None
        self._synchronous = WRITE
        #: When to look next for a note beside the file, on the monotonic clock.
        self._look_again = 0.0
        #: What is recorded and not in the tables, of a store in memory.
        self.notes: list[Note] = []
        self._place: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        #: One for all that a recording executes: to make one for each statement takes longer.
        self.cursor: sqlite3.Cursor
        self._used: sqlite3.Connection
        self._connect(create=True)
        forks.watch(self)

    def transaction(self, access: Access) -> Transaction:
        """Return a context in which the store is locked and changes as a whole or not at all.

        Raises
        ------
        StoreError
            At entry or exit: the store cannot be used now. Nothing has changed.
        """
        return Transaction(self, access)

    def close(self) -> None:
        """Close the connection; the store cannot be used any more.

        Raises
        ------
        StoreError
            It is in use, by this very thread or for very long by another.
        """
        with Hold(self):
            self._unusable = "it is closed"
            self._disconnect()

    def check_process(self) -> None:
        """Notice a fork that ran no hooks, and open the file anew in the child."""
        if self.process == getpid():
            return
        with forks.alone():
            if self.process != getpid():
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

    def vouch(self) -> None:
        """Note beside the file that such a commit has come through, while it is still locked."""

    def _refresh(self, connection: sqlite3.Connection) -> None:
        """Read again whatever is kept in memory: the file may have changed, or be another."""

    def _honour(self, connection: sqlite3.Connection, access: Access) -> None:
        """Do what a note beside the file asks for, in the transaction that has just begun."""

    def _revive(self) -> None:
        # What is held here is held by a thread of the parent, in the middle of a transaction:
        # neither closing nor using its connection is safe then.
        interrupted = self._holder is not None
        connection = self._connection
        if self.path is None:
            self._unusable = "a store in memory stays with the process that was forked"
            self.notes = []
        elif connection is not None:
            self._connection = None
            if interrupted:
                self._unusable = "the process was forked in the middle of a transaction"
                forks.abandoned += connection, self.cursor
            else:
                connection.close()
        self.version = None
        self._synchronous = WRITE
        self._lock = threading.RLock()
        self._holder = self.turn = None
        self._suspended = False
        self.sending = threading.RLock()
        self.flushing = False
        self.process = getpid()

    def _connected(self) -> sqlite3.Connection:
        if self._unusable is not None:
            raise sqlite3.ProgrammingError(self._unusable)
        return self._connection or self._connect(create=False)

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        # Before: of a file that cannot be opened it must be known which one it was.
        self._place = self._where()
        self._connection = connection = schema.connect(self.path, create=create)
        self.cursor, self._used = connection.cursor(), connection
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
        self.version = None
        self._synchronous = WRITE
        if connection is not None:
            connection.close()

    def begin(self, access: Access) -> sqlite3.Connection:
        """Begin a transaction, in which memory agrees with the file, and return its connection."""
        connection = self._connection
        if connection is None or self._unusable is not None:
            connection = self._connected()
        if access is DURABLE and self._where() != self._place:
            # The file was renamed or replaced: what is sent must be charged in the one that others
            # find. If it is not this store's, reading it again says so.
            self._disconnect()
            connection = self._connected()
        if self.notes:
            notes.write(connection, self.notes)
        version = self._start(connection, access)
        if version != self.version:
            self._refresh(connection)
            self.version = version
        if self.path is not None and (access is DURABLE or monotonic() >= self._look_again):
            self._honour(connection, access)
        return connection

    def commit(self, access: Access) -> None:
        """Make what the transaction has changed last."""
        if self._unusable is not None or access is DURABLE:
            self._seal(self._connected())
        if self.process != getpid():
            # Of a fork without hooks there are two that would write to the same place.
            raise sqlite3.ProgrammingError("the process was forked in the middle of a transaction")
        self.cursor.execute("COMMIT")

    def _start(self, connection: sqlite3.Connection, access: Access) -> int:
        """Begin a transaction, once no other process is in the way.

        Returns
        -------
        int
            A number that another connection's commit changes.
        """
        if access is not self._synchronous and access is not READ and self.path is not None:
            level = "FULL" if access is DURABLE else "NORMAL"
            # An interrupt in between leaves neither noted, and the next commit says it again.
            self._synchronous = READ
            connection.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = access
        if connection is not self._used:
            self.cursor, self._used = connection.cursor(), connection
        execute = self.cursor.execute
        deadline = None
        while True:
            try:
                execute("BEGIN" if access is READ else "BEGIN IMMEDIATE")
                if self.path is None:
                    return 0
                version: int = execute("PRAGMA data_version").fetchone()[0]
                return version
            except sqlite3.OperationalError as error:
                # SQLite's own waiting goes up to 100 ms a step, which starves whoever is late.
                deadline = deadline or time.monotonic() + schema.PATIENCE
                if not schema.is_busy(error) or time.monotonic() > deadline:
                    raise
                if connection.in_transaction:
                    execute("ROLLBACK")
                time.sleep(schema.PAUSE)

    def hold(self, turn: int) -> None:
        """Keep other threads out; what follows must end in :meth:`let_go`, come what may.

        Raises
        ------
        StoreError
            The store is in use, by this very thread or for very long by another. Nothing is held.
        """
        if self.process != getpid():
            self.check_process()
        thread = get_ident()
        if self._holder == thread:
            # A signal handler or a finalizer that records, in the middle of a recording.
            raise StoreError("the device's store is in use by the same thread")
        lock = self._lock
        try:
            if not (lock.acquire(False) or lock.acquire(timeout=schema.LOCK_PATIENCE)):
                raise StoreError("the device's store is in use by another thread")
            self._holder, self.turn = thread, turn
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Roll back what was not committed and let others in, if this thread kept them out."""
        mine = self._holder == get_ident()
        try:
            if mine:
                self._roll_back()
        finally:
            if mine:
                self._holder = self.turn = None
            # No call from here to the release: an interrupt arrives at calls.
            try:
                self._lock.release()
            except RuntimeError:
                mine = False

    def release(self) -> None:
        """Let others in after a commit; what follows no other use by this thread is not its."""
        self._holder = self.turn = None
        try:
            self._lock.release()
        except RuntimeError:
            # A signal handler has forked, and this is the child, with a lock of its own.
            return

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            self.version = None
            try:
                connection.execute("ROLLBACK")
            except schema.FAULTS:
                # Closing rolls back what is left; the next use connects again.
                if self.path is not None:
                    self._disconnect()
