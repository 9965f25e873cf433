"""What is deleted leaves no trace in the file: the erasure is owed until it is done."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress

from clientsdk.store import schema
from clientsdk.store.database import WRITE, Database, Hold
from sotto.errors import StoreError


class Erasure:
    """What is still to be erased from one file: how often erasing was owed, and is done."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.owed = self.done = 0

    @property
    def pending(self) -> bool:
        return self.owed > self.done

    def schedule(self, connection: sqlite3.Connection) -> None:
        """Note that rows deleted in this transaction must leave no trace in the file."""
        if self._database.path is not None:
            connection.execute("UPDATE device SET erasures_owed = erasures_owed + 1")
            self.owed += 1

    def finish(self, erase_copies: Callable[[], bool]) -> bool:
        """Erase the traces that are owed, outside any transaction; return whether none is left.

        ``erase_copies`` also erases files that were set aside. What another process comes to owe
        meanwhile stays owed.
        """
        owed = self.owed
        if not self.pending:
            return True
        if not self.scrub(compact=True) or not erase_copies():
            return False
        try:
            with self._database.transaction(WRITE) as connection:
                connection.execute(
                    "UPDATE device SET erasures_done = max(erasures_done, ?)", (owed,)
                )
                self.done = max(self.done, owed)
                return not self.pending
        except StoreError:
            # The traces are gone; that they are could not be written and is tried again.
            return False

    def clean_log(self) -> None:
        """Erase what delivered chains left in the log; if that fails now, owe it."""
        if not self.scrub(compact=False):
            with suppress(StoreError), self._database.transaction(WRITE) as connection:
                self.schedule(connection)

    def scrub(self, *, compact: bool) -> bool:
        """Remove what deleted rows left in the log; False if another process reads, or the disk is
        full.

        Deleted content is overwritten at once in its page, but the write-ahead log still has the
        older page; ``compact`` also rewrites the file, since a page that was split may have kept a
        copy of rows that moved to another.
        """
        if self._database.path is None:
            return True
        try:
            with Hold(self._database):
                return not _scrub(self._database.recognize(), compact)
        except (*schema.FAULTS, StoreError):
            return False


def _scrub(connection: sqlite3.Connection, compact: bool) -> bool:
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
