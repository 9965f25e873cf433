"""What a store writes down of losses, and the mark by which they are noticed."""

from __future__ import annotations

import sqlite3

from clientsdk import mark, panels, permanent
from clientsdk.contents import Contents
from sotto.errors import StoreError


class Losses(Contents):
    """A store that vouches for itself beside its file. In a transaction."""

    def fill(self, connection: sqlite3.Connection, ceiling: int, room: int) -> None:
        """Count the current period as spent, all of it, and of the lifetime at most ``room``."""
        full = max(self.reserved, ceiling)
        unpaid = full - self.reserved - room
        connection.execute(
            "INSERT INTO ledger (period, reserved, spent, tallies) VALUES (?1, ?2, ?2, ?3)"
            " ON CONFLICT (period) DO UPDATE SET reserved = ?2, spent = ?2",
            (self.period, full, self._tallied()),
        )
        self.reserved = full
        if unpaid > 0:
            permanent.reserve(connection, self.period, unpaid)
            permanent.spend(connection, self.period, unpaid)
        self._add_up(connection)

    def carry(self, connection: sqlite3.Connection, amount: int) -> None:
        """Count ``amount`` micro-epsilon more as spent, of the lifetime and of no period."""
        connection.execute("UPDATE mark SET carried = carried + ?", (amount,))
        self._add_up(connection)

    def wait_for_a_cycle(self, connection: sqlite3.Connection) -> None:
        """Have no turn in a panel before the next cycle: the lost file may have had one in this."""
        panels.begin_after(connection, self.period)
        self.panel = panels.read(connection)

    def count_loss(
        self, connection: sqlite3.Connection, known: mark.Mark | None, *, damaged: bool
    ) -> None:
        """Count one more file that was damaged or lost, or older; go on where the mark is."""
        if known is not None:
            self.generation = max(self.generation, known.generation)
            self.damaged = max(self.damaged, known.damaged)
            self.restored = max(self.restored, known.restored)
        # A mark of the first generation is one of a store of which nothing is known to be lost.
        self.generation = max(self.generation, 1)
        self.damaged += damaged
        self.restored += not damaged
        connection.execute(
            "UPDATE mark SET generation = ?, damaged = ?, restored = ?",
            (self.generation, self.damaged, self.restored),
        )
        self.refusals.clear()

    def seal(self, connection: sqlite3.Connection) -> mark.Mark:
        """Begin another generation; return what its mark says."""
        self.generation += 1
        connection.execute("UPDATE mark SET generation = ?", (self.generation,))
        (degraded,) = connection.execute(
            "SELECT coalesce(sum(reserved), 0) FROM degraded WHERE period = ?", (self.period,)
        ).fetchone()
        return mark.Mark(
            self.identity,
            self.budget,
            self.generation,
            self.period,
            self.lifetime_reserved,
            self.reserved - degraded,
            self.ceilings.period,
            self.ceilings.lifetime,
            self.damaged,
            self.restored,
        )

    def _seal(self, connection: sqlite3.Connection) -> None:
        if self.path is not None:
            self._sealed = self.seal(connection)

    def vouch(self) -> None:
        if self.path is not None:
            self._vouched = self._sealed.generation
            try:
                mark.advance(self.path, self._sealed)
            except mark.ForeignError:
                self._disown()
            except StoreError as error:
                raise mark.UnmarkedError(f"it is written, but {error}") from error
