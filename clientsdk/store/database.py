"""Transactions on the device's file: between threads, between processes, and across forks.

An interrupt may arrive at any call. Wherever it does, the lock is released and what was not
committed is rolled back: by the ``with`` statement itself, or, where that was interrupted at its
very entry, when its context object is deleted.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from enum import Enum
from os import getpid
from sqlite3 import Connection, Cursor
from threading import get_ident
from time import monotonic

from clientsdk import diagnostics, lifecycle
from clientsdk.outcomes import CLOSED
from clientsdk.store import rollback_guard, schema
from sotto.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol
else:
    Protocol = object

_uses = itertools.count(1)
#: How often each file was opened in this process; often if an app makes a client for each request.
_opened: dict[str, int] = {}
_MANY = 100
_CLIENTS = "many clients were made for one state file: make one when the app starts, and share it"
_DROPPED = "its client is being deleted, as in __del__"
_GONE = "its file is gone; put it back, or start the app again"


class TransactionAccess(Enum):
    """Rights of a transaction, and the losses that its commit survives."""

    READ = "read"
    """Sees one moment of the store."""
    WRITE = "write"
    """Excludes all other writers; the commit survives the death of the process."""
    DURABLE = "durable"
    """As ``WRITE``, and the commit survives a loss of power."""


#: Every recording looks these up, and names of a module are found sooner than members of an Enum.
READ, WRITE, DURABLE = TransactionAccess


class Contents(Protocol):
    """Hooks at the edges of a database's transactions; the store says what each does."""

    def write_buffered(self, connection: Connection) -> None: ...
    def refresh(self, connection: Connection) -> None: ...
    def apply_noted_withdrawal(self, connection: Connection, access: TransactionAccess) -> None: ...
    def prepare_guard(self, connection: Connection) -> None: ...
    def write_guard(self) -> None: ...
    def drop_buffered(self) -> None: ...


class DeviceDatabase(lifecycle.Forkable):
    """A connection, one object a process and client, and the discipline around it.

    A ``path`` (None keeps everything in memory) that is relative or a link is resolved once, here:
    what lies beside the file has one place, by whatever name it is opened.
    """

    def __init__(self, path: str | None) -> None:
        self.path: str | None = None if path is None else os.path.realpath(path)
        self.name = diagnostics.store_name(self.path)
        #: Held by the thread that sends, so that one process sends one batch at a time.
        self.sending = threading.RLock()
        #: Whether the holder of ``sending`` is sending.
        self.flushing: bool = False
        # Reentrant so that an interrupted thread never waits for itself; ``_holder`` is what
        # keeps a thread from using the store in the middle of a use of its own.
        self._lock = threading.RLock()
        self._holder: int | None = None
        #: The number of the :class:`Hold` that has the lock.
        self.use: int | None = None
        self._suspended = False
        self.process: int = getpid()
        self._unforked = lifecycle.wiped_by_forks()
        self._unusable: str | None = None
        #: The file's data version when the cache was read; None when the cache may be stale.
        self.version: int | None = None
        self._synchronous = WRITE
        #: When to look next for the file and for a note beside it, on the monotonic clock.
        self.look_again: float = 0.0
        #: Device and inode of the file that was opened.
        self.place: tuple[int, int] | None = None
        self.connection: Connection | None = None
        #: One for all that a recording executes: to make one for each statement takes longer.
        self.cursor: Cursor
        self._cursor_of: Connection
        self._contents: Contents

    def open(self, contents: Contents) -> None:
        """Open the file, made if absent; StoreError if that cannot be done."""
        # No cycle: the connection of a client that is dropped is closed at once.
        self._contents = weakref.proxy(contents)
        if self.path is not None:
            _opened[self.path] = _opened.get(self.path, 0) + 1
            if _opened[self.path] == _MANY:
                diagnostics.warn("clients", _CLIENTS)
        self._connect(create=True)
        lifecycle.watch_forks(self)

    def close(self) -> None:
        """Close the connection; StoreError if this very thread is using the store."""
        with Hold(self):
            self._unusable = CLOSED
            self.disconnect()

    if sys.version_info >= (3, 13):

        def __del__(self) -> None:
            # A client that is dropped leaves a connection that these warn of.
            connection = getattr(self, "connection", None)
            if connection is not None:
                connection.close()

    def disown(self, what: str = "another file") -> StoreError:
        """Make the store unusable: the file is not the one that was opened. Return the error."""
        self._unusable = f"{what} has taken its place; start the app again"
        return self.unusable(self._unusable)

    def unusable(self, why: str | BaseException) -> StoreError:
        """Return the error that says why the store cannot be used, with its file's name."""
        what = f"{self.name} cannot be used"
        return StoreError(f"{what}: {why}") if isinstance(why, str) else schema.unusable(what, why)

    def forked(self) -> bool:
        """Whether a fork that ran no hooks has made this another process."""
        unforked = self._unforked
        if unforked is None:
            return self.process != getpid()
        if unforked[0]:
            return False
        # This is set before the comparison: after a fork in between, the child finds zero again.
        # The flag that spares later calls the comparison is set after it: in a child several
        # threads may come here at once.
        unforked[1] = 1
        if self.process != getpid():
            return True
        unforked[0] = unforked[1]
        return False

    def check_process(self) -> None:
        """Notice a fork that ran no hooks, and open the file anew in the child."""
        if self.forked():
            with lifecycle.NoFork():
                if self.process != getpid():
                    self.after_fork_in_child()

    def before_fork(self) -> None:
        self._suspended = self._lock.acquire(timeout=schema.LOCK_PATIENCE)
        if self._suspended and self.path is not None:
            self.disconnect()

    def after_fork_in_parent(self) -> None:
        if self._suspended:
            self._suspended = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Let everybody in again, unless the store is in memory and now exists twice."""
        # If a thread of the parent was in the middle of a transaction, neither closing nor using
        # its connection is safe.
        interrupted = self._holder is not None
        connection = self.connection
        if self.path is None:
            self._unusable = "a store in memory stays with the process that was forked"
            # The store may be gone already, and other stores are still to be called.
            with suppress(ReferenceError):
                self._contents.drop_buffered()
        elif connection is not None:
            self.connection = None
            if interrupted:
                self._unusable = "the process was forked in the middle of a transaction"
                lifecycle.abandoned += connection, self.cursor
            else:
                connection.close()
        self.version = None
        self._synchronous = WRITE
        self._lock = threading.RLock()
        self._holder = self.use = None
        self._suspended = False
        self.sending = threading.RLock()
        self.flushing = False
        self.process = getpid()

    def connected(self) -> Connection:
        if self._unusable is not None:
            raise sqlite3.ProgrammingError(self._unusable)
        return self.connection or self._connect(create=False)

    def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        self.version = None
        self._synchronous = WRITE
        if connection is not None:
            connection.close()

    def _connect(self, *, create: bool) -> Connection:
        # The place is noted first: recovery must know which file could not be opened.
        found = self._where()
        if found is None and not create:
            raise self.unusable(_GONE)
        self.place = found
        with self.alone() if found is None else nullcontext():
            # A file that was found and has gone since is not made here, but under the lock.
            self.connection = connection = schema.connect(self.path, create=found is None)
        self.cursor, self._cursor_of = connection.cursor(), connection
        self.place = self._where()
        if found not in (None, self.place):
            # The file was replaced, or copied: a file system of layers copies at the first write.
            self.disconnect()
            return self._connect(create=create)
        return connection

    def alone(self, *, anyway: bool = False) -> AbstractContextManager[object]:
        """Keep others from setting a damaged file aside while a new one is made in its place.

        They would remove the new file's index. If the lock cannot be had in time, the body of the
        ``with`` statement is executed ``anyway``, or StoreError is raised.
        """
        if self.path is None or not os.path.exists(self.path + rollback_guard.SUFFIX):
            return nullcontext()
        return rollback_guard.locked(self.path, anyway=anyway)

    def moved(self) -> bool:
        """Whether the file that was opened is not in its place any more."""
        return self.place not in (None, self._where())

    def _where(self) -> tuple[int, int] | None:
        if self.path is None:
            return None
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def begin(self, access: TransactionAccess) -> Connection:
        """Begin a transaction, in which memory agrees with the file, and return its connection."""
        connection = self.connection
        if connection is None or self._unusable is not None:
            connection = self.connected()
        look = self.path is not None and (access is DURABLE or monotonic() >= self.look_again)
        if look and (found := self._where()) != self.place:
            self.disconnect()
            if found is not None:
                # Everything stored or sent must be in the file that others find.
                raise self.disown()
            connection = self.connected()
        if self.path is None:
            self._contents.write_buffered(connection)
        if access is DURABLE and self.path is not None:
            # Cached pages would be written over an older copy that was put into the same file.
            connection.execute("PRAGMA shrink_memory")
            self.version = None
        version = self._start(connection, access)
        if version != self.version:
            self._contents.refresh(connection)
            self.version = version
        if look:
            self._contents.apply_noted_withdrawal(connection, access)
        return connection

    def commit(self, access: TransactionAccess) -> None:
        if self._unusable is not None or access is DURABLE:
            connection = self.connected()
            self._contents.prepare_guard(connection)
        if self.forked():
            # A fork without hooks leaves two processes that would write to the same place.
            raise sqlite3.ProgrammingError("the process was forked in the middle of a transaction")
        self.cursor.execute("COMMIT")

    def write_guard(self) -> None:
        self._contents.write_guard()

    def recognize(self) -> Connection:
        """Return the connection once memory agrees with the file, while the store is held."""
        connection = self.connected()
        if self.version is None:
            version = self._start(connection, READ)
            try:
                self._contents.refresh(connection)
            finally:
                connection.execute("ROLLBACK")
            self.version = version
        return connection

    def _start(self, connection: Connection, access: TransactionAccess) -> int:
        """Begin once no other process is in the way, and return SQLite's data version.

        A commit of any other connection changes it; it is 0 for a store in memory.
        """
        if access is not self._synchronous and access is not READ and self.path is not None:
            level = "FULL" if access is DURABLE else "NORMAL"
            # After an interrupt in between neither level is noted, and the next commit sets one.
            self._synchronous = READ
            connection.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = access
        if connection is not self._cursor_of:
            self.cursor, self._cursor_of = connection.cursor(), connection
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

    def hold(self, use: int) -> None:
        """Keep other threads out, or raise StoreError; what follows must end in :meth:`let_go`."""
        if self.forked():
            self.check_process()
        thread = get_ident()
        if self._holder == thread:
            # A signal handler or a finalizer records in the middle of a recording.
            raise StoreError(f"{self.name} is in use by the same thread")
        lock = self._lock
        try:
            if not (lock.acquire(False) or lock.acquire(timeout=schema.LOCK_PATIENCE)):
                raise StoreError(f"{self.name} is in use by another thread")
            self._holder, self.use = thread, use
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
                self._holder = self.use = None
            # There is no call before the release, since interrupts arrive at calls.
            try:
                self._lock.release()
            except RuntimeError:
                mine = False

    def release(self) -> None:
        """Let others in after a commit; the caller holds the lock, which is not checked here."""
        self._holder = self.use = None
        try:
            self._lock.release()
        except RuntimeError:
            # A signal handler has forked, and this is the child, with a lock of its own.
            return

    def _roll_back(self) -> None:
        connection = self.connection
        if connection is not None and connection.in_transaction:
            self.version = None
            try:
                connection.execute("ROLLBACK")
            except schema.FAULTS:
                # Closing rolls back what is left; the next use connects again.
                if self.path is not None:
                    self.disconnect()


class Hold:
    """Exclusive use of a database by one thread, for one ``with`` statement."""

    __slots__ = ("_database", "_use")

    def __init__(self, database: DeviceDatabase) -> None:
        self._use: int = next(_uses)
        self._database: DeviceDatabase = database

    def __enter__(self) -> object:
        self._database.hold(self._use)
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._database.let_go()

    def __del__(self) -> None:
        try:
            database = self._database
            interrupted = database.use == self._use
        except AttributeError:
            # The object was not even initialized.
            return
        if interrupted:
            # An interrupt came at the very entry of `__exit__`, which should have let go.
            database.version = None
            database.let_go()


class Transaction(Hold):
    """A context in which a database is locked and changes as a whole or not at all.

    At entry or exit a StoreError says that the store cannot be used now and nothing has changed; at
    exit a GuardError, that all has changed and the guard beside the file could not follow.
    """

    __slots__ = ("_access",)

    def __init__(self, database: DeviceDatabase, access: TransactionAccess) -> None:
        self._use = next(_uses)
        self._database = database
        self._access = access

    def __enter__(self) -> Connection:
        database = self._database
        try:
            database.hold(self._use)
            return database.begin(self._access)
        except BaseException as error:
            if database.use == self._use:
                database.version = None
                database.let_go()
            if isinstance(error, schema.FAULTS):
                raise database.unusable(error) from error
            if isinstance(error, ReferenceError):
                raise database.unusable(_DROPPED) from None
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        database, committed = self._database, False
        try:
            if error is None:
                database.commit(self._access)
                committed = True
                if self._access is DURABLE:
                    database.write_guard()
        except schema.FAULTS as failure:
            raise database.unusable(failure) from failure
        finally:
            if committed:
                database.release()
            else:
                # The memory may be ahead of the file: read it again next time.
                database.version = None
                database.let_go()
        if isinstance(error, schema.FAULTS):
            raise database.unusable(error) from error


class Erasure:
    """The erasure of traces from one file: how often it was owed, and how far that is done."""

    def __init__(self, database: DeviceDatabase) -> None:
        self._database = database
        self.owed = self.done = 0

    @property
    def pending(self) -> bool:
        return self.owed > self.done

    def schedule(self, connection: Connection) -> None:
        """Note that rows deleted in this transaction must leave no trace in the file."""
        if self._database.path is not None:
            connection.execute("UPDATE device SET erasures_owed = erasures_owed + 1")
            self.owed += 1

    def finish(self, erase_copies: Callable[[], bool]) -> bool:
        """Erase the traces that are owed, outside any transaction; return whether none is left."""
        owed = self.owed
        if not self.pending:
            return True
        if not self.scrub(compact=True) or not erase_copies():
            return False
        try:
            with Transaction(self._database, WRITE) as connection:
                connection.execute(
                    "UPDATE device SET erasures_done = max(erasures_done, ?)", (owed,)
                )
                self.done = max(self.done, owed)
                return not self.pending
        except StoreError:
            # The traces are gone, but this could not be written: erasing is tried again.
            return False

    def clean_log(self) -> None:
        """Erase what delivered chains left in the log; if that fails now, note that it is owed."""
        if not self.scrub(compact=False):
            with suppress(StoreError), Transaction(self._database, WRITE) as connection:
                self.schedule(connection)

    def scrub(self, *, compact: bool) -> bool:
        """Remove what deleted rows left in the log; False if that cannot be done now.

        Deleted content is overwritten in its page, but the log still has the older page;
        ``compact`` also rewrites the file, since a page that was split may have kept a copy of rows
        that moved.
        """
        if self._database.path is None:
            return True
        try:
            with Hold(self._database):
                return not _scrub(self._database.recognize(), compact)
        except (*schema.FAULTS, StoreError):
            return False


def _scrub(connection: Connection, compact: bool) -> bool:
    # SQLite does the waiting: while it waits, no reader begins to use the log. Without that, a log
    # that several processes use all the time would never be emptied.
    connection.execute(f"PRAGMA busy_timeout = {schema.SCRUB_PATIENCE}")
    try:
        if compact:
            connection.execute("VACUUM")
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return bool(busy)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")
