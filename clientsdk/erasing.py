"""Nothing that is deleted leaves a trace in the file: it is owed until it is done."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress

from clientsdk import notes, recovery, schema
from clientsdk.contents import Contents
from clientsdk.ledger import ALL_METRICS, Consent
from clientsdk.transactions import READ, WRITE, Hold
from sotto.errors import StoreError


class Erasing(Contents):
    """A store that knows what is still to be erased from its file."""

    def forget_periods(self, connection: sqlite3.Connection) -> bool:
        """Erase, of past periods that have no chain left, pseudonym and tallies by metric.

        How many values were recorded remains, as one sum, with what they cost.

        Returns
        -------
        bool
            Whether there was anything to be erased.
        """
        erased = connection.execute(
            "DELETE FROM pseudonym WHERE period < ? AND NOT EXISTS"
            " (SELECT 1 FROM chain WHERE chain.period = pseudonym.period)",
            (self.period,),
        )
        # Every tally by metric has a slash in its name.
        rows = connection.execute(
            "SELECT period, tallies FROM ledger WHERE period < ? AND tallies LIKE '%/%'"
            " AND NOT EXISTS (SELECT 1 FROM chain WHERE chain.period = ledger.period)",
            (self.period,),
        ).fetchall()
        connection.executemany(
            "UPDATE ledger SET tallies = ? WHERE period = ?",
            [(_folded(tallies), period) for period, tallies in rows],
        )
        return erased.rowcount > 0 or bool(rows)

    def owe_erasure(self, connection: sqlite3.Connection) -> None:
        """Note that rows deleted in this transaction must leave no trace in the file."""
        if self.path is not None:
            connection.execute("UPDATE device SET erasures_owed = erasures_owed + 1")
            self.owed += 1

    def settle(self) -> bool:
        """Erase the traces that are owed, outside any transaction; return whether none is left.

        What another process comes to owe while this one erases stays owed.
        """
        owed = self.owed
        if not self.erasure_owed:
            return True
        if not self.scrub(compact=True):
            return False
        path = self.path if self.consent is Consent.WITHDRAWN else None
        if path is not None and not recovery.erase_aside(path):
            # A file that was kept aside has chains too.
            return False
        try:
            with self.transaction(WRITE) as connection:
                connection.execute(
                    "UPDATE device SET erasures_done = max(erasures_done, ?)", (owed,)
                )
                self._done = max(self._done, owed)
                return not self.erasure_owed
        except StoreError:
            # The traces are gone; that they are could not be written and is tried again.
            return False

    def clean(self) -> None:
        """Erase what delivered chains left in the log; if that fails now, owe it."""
        if not self.scrub(compact=False):
            with suppress(StoreError), self.transaction(WRITE) as connection:
                self.owe_erasure(connection)

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
            with Hold(self):
                connection = self._connected()
                if self.version is None:
                    self._recognize(connection)
                busy = self._scrub(connection, compact)
        except (*schema.FAULTS, StoreError):
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

    def _recognize(self, connection: sqlite3.Connection) -> None:
        version = self._start(connection, READ)
        try:
            self._refresh(connection)
        finally:
            connection.execute("ROLLBACK")
        self.version = version


def _folded(tallies: str) -> str:
    """Return the tallies of all metrics as one."""
    return notes.written({ALL_METRICS: sum(json.loads(tallies).values())})
