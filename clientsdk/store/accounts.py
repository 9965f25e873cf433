"""Amounts that a device has reserved and spent, in its store's memory and in its file.

``reserved`` is charged with each chain when it is recorded, ``spent`` before a report of it is
sent. Amounts are in micro-epsilon. All methods belong in a transaction, or while the store is held.
"""

from __future__ import annotations

import json
from functools import lru_cache
from sqlite3 import Connection, Cursor

from sotto.plan.compiled import Ceilings

#: The name of the sum of all metrics' recordings, of periods that are through.
ALL_METRICS = "all metrics"

_quoted = lru_cache(maxsize=1024)(json.dumps)
_compact = json.JSONEncoder(separators=(",", ":")).encode
_RESERVE = (
    "INSERT INTO ledger (reserved, tallies, period, spent) VALUES (?, ?, ?, 0)"
    " ON CONFLICT (period) DO UPDATE SET reserved = excluded.reserved, tallies = excluded.tallies"
)


class Accounts:
    """The current budget period's account and the lifetime's.

    ``tallies`` counts the recordings of the period by ``"plan/metric"``. The lifetime counts a
    permanent response once, and leaves out what is drawn from it.
    """

    def __init__(self) -> None:
        self.period: int = 0
        self.reserved = self.lifetime_reserved = self.lifetime_spent = 0
        self.tallies: dict[str, int] = {}
        # The tallies as JSON, piece by piece: only the one that changes is written anew.
        self._pieces: dict[str, str] = {}

    def refresh(self, connection: Connection, period: int) -> None:
        row = connection.execute(
            "SELECT reserved, tallies FROM ledger WHERE period = ?", (period,)
        ).fetchone()
        reserved, tallies = 0, {}
        if row is not None:
            reserved, text = row
            tallies = {name: int(seen) for name, seen in json.loads(text).items()}
        self.period, self.reserved, self.tallies = period, int(reserved), tallies
        self._pieces = {name: f"{_quoted(name)}:{seen}" for name, seen in tallies.items()}
        self._add_up(connection)

    @property
    def closed(self) -> bool:
        """Whether the period was left and has no chain; its tallies are then one sum."""
        return ALL_METRICS in self.tallies

    def allow(self, pinned: Ceilings, own: Ceilings, cost: int, lifetime: int) -> bool:
        """Whether both ceilings leave ``cost`` in the period and ``lifetime`` in the lifetime."""
        if cost == 0:
            return True
        within = self.reserved + cost <= min(pinned.period, own.period)
        return within and self.lasts(pinned, own, lifetime)

    def lasts(self, pinned: Ceilings, own: Ceilings, lifetime: int) -> bool:
        """Whether both ceilings leave so much in the lifetime."""
        return self.lifetime_reserved + lifetime <= min(pinned.lifetime, own.lifetime)

    def count(self, tally: str, seen: int, cost: int) -> None:
        """Reserve ``cost`` in memory alone, with the ``seen``-th recording under ``tally``."""
        self.reserved += cost
        self.lifetime_reserved += cost
        self.tallies[tally] = seen
        self._pieces[tally] = f"{_quoted(tally)}:{seen}"

    def reserve(
        self, cursor: Cursor, tally: str, seen: int, cost: int, lifetime: int | None = None
    ) -> None:
        """Reserve ``cost`` with the ``seen``-th recording.

        The lifetime reserves ``lifetime`` instead where that is given.
        """
        if lifetime is not None:
            _reserve_degraded(cursor, self.period, cost)
            self.lifetime_reserved += lifetime - cost
            self.lifetime_spent += lifetime
        self.count(tally, seen, cost)
        tallies = f"{{{','.join(self._pieces.values())}}}"
        cursor.execute(_RESERVE, (self.reserved, tallies, self.period))

    def spend(
        self, connection: Connection, period: int, cost: int, ceilings: Ceilings, degraded: int
    ) -> bool:
        """Add to what was spent in ``period``, unless a ceiling lowered since then forbids it.

        The lifetime has paid the ``degraded`` part of the cost already, for permanent responses.
        """
        lifetime = cost - degraded
        if self.lifetime_spent + lifetime > ceilings.lifetime:
            return False
        charged = connection.execute(
            "UPDATE ledger SET spent = spent + ?"
            " WHERE period = ? AND spent + ? <= min(reserved, ?)",
            (cost, period, cost, ceilings.period),
        )
        if charged.rowcount == 0:
            return False
        if degraded:
            _spend_degraded(connection, period, degraded)
        self.lifetime_spent += lifetime
        return True

    def fill(self, connection: Connection, ceiling: int, room: int) -> None:
        """Count all of the current period as spent, and at most ``room`` more of the lifetime."""
        full = max(self.reserved, ceiling)
        unpaid = full - self.reserved - room
        connection.execute(
            "INSERT INTO ledger (period, reserved, spent, tallies) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (period) DO UPDATE SET reserved = excluded.reserved,"
            " spent = excluded.spent",
            (self.period, full, full, _compact(self.tallies)),
        )
        self.reserved = full
        if unpaid > 0:
            _reserve_degraded(connection, self.period, unpaid)
        connection.execute("UPDATE degraded SET spent = reserved WHERE period = ?", (self.period,))
        self._add_up(connection)

    def carry(self, connection: Connection, amount: int) -> None:
        """Count ``amount`` more of the lifetime as spent, in no period."""
        connection.execute("UPDATE mark SET carried = carried + ?", (amount,))
        self._add_up(connection)

    def fold_other_periods(self, connection: Connection) -> bool:
        """Sum up the recordings of other periods without a chain; return whether there were any.

        Such a period is closed: nothing is recorded in it again, wherever the clock goes.
        """
        # Every tally by metric has a slash in its name.
        rows = connection.execute(
            "SELECT period, tallies FROM ledger WHERE period <> ? AND tallies LIKE '%/%'"
            " AND NOT EXISTS (SELECT 1 FROM chain WHERE chain.period = ledger.period)",
            (self.period,),
        ).fetchall()
        for period, tallies in rows:
            folded = f"{{{_quoted(ALL_METRICS)}:{sum(json.loads(tallies).values())}}}"
            connection.execute("UPDATE ledger SET tallies = ? WHERE period = ?", (folded, period))
        return bool(rows)

    def _add_up(self, connection: Connection) -> None:
        """Sum up the lifetime; permanent responses and what is carried over count as spent."""
        reserved, spent = connection.execute(
            "SELECT coalesce(sum(reserved), 0), coalesce(sum(spent), 0) FROM ("
            " SELECT reserved, spent FROM ledger"
            " UNION ALL SELECT -reserved, -spent FROM degraded"
            " UNION ALL SELECT cost, cost FROM permanent"
            " UNION ALL SELECT carried, carried FROM mark)"
        ).fetchone()
        self.lifetime_reserved, self.lifetime_spent = int(reserved), int(spent)


def tally_name(plan: str, metric: str) -> str:
    return f"{plan}/{metric}"


def write_counted(
    connection: Connection, period: int, counted: list[tuple[str, int, int]]
) -> list[bool]:
    """Write recordings ``(tally, seen, cost)`` of one period; return which were not written yet."""
    reserved, text = connection.execute(
        "SELECT reserved, tallies FROM ledger WHERE period = ?", (period,)
    ).fetchone()
    written: dict[str, int] = json.loads(text)
    new = [seen > written.get(tally, 0) for tally, seen, _ in counted]
    written.update(
        (tally, seen) for (tally, seen, _), fresh in zip(counted, new, strict=True) if fresh
    )
    added = sum(cost for (_, _, cost), fresh in zip(counted, new, strict=True) if fresh)
    connection.execute(
        "UPDATE ledger SET reserved = ?, tallies = ? WHERE period = ?",
        (reserved + added, _compact(written), period),
    )
    return new


def _reserve_degraded(connection: Connection | Cursor, period: int, cost: int) -> None:
    connection.execute(
        "INSERT INTO degraded VALUES (?, ?, 0)"
        " ON CONFLICT (period) DO UPDATE SET reserved = reserved + excluded.reserved",
        (period, cost),
    )


def _spend_degraded(connection: Connection, period: int, cost: int) -> None:
    connection.execute("UPDATE degraded SET spent = spent + ? WHERE period = ?", (cost, period))
