"""What a recording adds to a store, and what sending charges. All belongs in a transaction."""

from __future__ import annotations

import sqlite3

from clientsdk import permanent, spool
from clientsdk.contents import quoted
from clientsdk.erasing import Erasing
from clientsdk.ledger import lowered
from clientsdk.notes import MOST, Note
from clientsdk.quota import Quota
from clientsdk.spool import Chain

_BOOK = (
    "INSERT INTO ledger (reserved, tallies, period, spent) VALUES (?1, ?2, ?3, 0)"
    " ON CONFLICT (period) DO UPDATE SET reserved = ?1, tallies = ?2"
)


class Booking(Erasing):
    """A store that is charged for each chain that it keeps."""

    _quota: Quota

    def full(self, connection: sqlite3.Connection) -> bool:
        """Whether the quota is used up."""
        if self.room <= 0:
            self.room = self._quota.bytes - spool.size(connection)
        return self.room <= 0

    def keep(self, connection: sqlite3.Connection, chain: Chain) -> None:
        """Store a chain of this period, which :meth:`book` charges in the same transaction.

        Its plan may be one that a clock that leapt had seen expire: then it will once more.
        """
        self.room -= len(chain.payloads) + spool.ROW
        if chain.due < self.soonest:
            self.soonest = chain.due
        if self.expires < self.expiry:
            self.expiry = self.expires
        if not self._named:
            spool.remember(connection, self.period, self.name)
            self._named = True
        spool.insert(self.cursor, chain)

    def book(
        self,
        connection: sqlite3.Connection,
        tally: str,
        seen: int,
        cost: int,
        lifetime: int | None = None,
    ) -> None:
        """Reserve ``cost`` micro-epsilon, with the ``seen``-th recording under ``tally``.

        Of the lifetime the same, unless ``lifetime`` says how much: what is drawn from a
        permanent response costs nothing beyond that response.
        """
        self.reserved += cost
        self.tallies[tally] = seen
        self._pieces[tally] = f"{quoted(tally)}:{seen}"
        if lifetime is None:
            self.lifetime_reserved += cost
        else:
            permanent.reserve(connection, self.period, cost)
            self.lifetime_reserved += lifetime
            self.lifetime_spent += lifetime
        tallies = ",".join(self._pieces.values())
        self.cursor.execute(_BOOK, (self.reserved, f"{{{tallies}}}", self.period))

    @property
    def noting(self) -> bool:
        """Whether a recording may be noted, while the store is held: :meth:`note`.

        Only in memory, where no other process reads it, and only where nothing else is to be
        written: the first of a period goes into the tables.
        """
        return (
            self.path is None
            and self.version is not None
            and self._named
            and self.room > 0
            and len(self.notes) < MOST
        )

    def note(self, tally: str, seen: int, cost: int, chain: Chain) -> bool:
        """Note a recording in memory; False if it cannot be noted any more.

        Charge and chain are one entry. What is counted in memory comes first: an interrupt in
        between can only have counted too much.
        """
        note = Note(tally, seen, cost, chain)
        self.room -= len(chain.payloads) + spool.ROW
        if chain.due < self.soonest:
            self.soonest = chain.due
        self.reserved += cost
        self.lifetime_reserved += cost
        self.tallies[tally] = seen
        self._pieces[tally] = f"{quoted(tally)}:{seen}"
        if self.expires < self.expiry:
            self.expiry = self.expires
        if self.version is None:
            # A signal handler has forked, and this is the child.
            return False
        self.notes.append(note)
        return True

    def incumbent_cost(self, connection: sqlite3.Connection, tally: str) -> int | None:
        """Return what the chain in a reservoir has reserved, None if it was not used so far.

        Zero once its chain was wiped: what that had reserved stays reserved.
        """
        row = connection.execute("SELECT cost FROM reservoir WHERE tally = ?", (tally,)).fetchone()
        return None if row is None else int(row[0])

    def displace(self, connection: sqlite3.Connection, tally: str, chain: Chain, cost: int) -> None:
        """Erase the chain in a reservoir, if any, and put ``chain`` there, which cost ``cost``."""
        erased = connection.execute(
            "DELETE FROM chain WHERE (period, due, id) IN"
            " (SELECT ?, due, chain FROM reservoir WHERE tally = ?)",
            (chain.period, tally),
        )
        connection.execute(
            "INSERT OR REPLACE INTO reservoir VALUES (?, ?, ?, ?)",
            (tally, chain.due, chain.id, cost),
        )
        if erased.rowcount:
            self.owe_erasure(connection)

    def charge(
        self, connection: sqlite3.Connection, period: int, cost: int, *, degraded: bool = False
    ) -> bool:
        """Add to what was spent in ``period``, unless a ceiling lowered since then forbids it.

        That is one of those pinned, or of this client's own. What is ``degraded`` from a permanent
        response adds nothing to the lifetime.
        """
        lifetime = 0 if degraded else cost
        ceilings = lowered(self.ceilings, self.own)
        if self.lifetime_spent + lifetime > ceilings.lifetime:
            return False
        charged = connection.execute(
            "UPDATE ledger SET spent = spent + ?1"
            " WHERE period = ?2 AND spent + ?1 <= min(reserved, ?3)",
            (cost, period, ceilings.period),
        )
        if charged.rowcount == 0:
            return False
        if degraded:
            permanent.spend(connection, period, cost)
        self.lifetime_spent += lifetime
        return True
