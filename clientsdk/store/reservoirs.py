"""Reservoirs: the one chain of a period that is kept of all values of a metric.

A chain that displaces an unsent one takes over its charge. All functions belong in a transaction of
the caller.
"""

from __future__ import annotations

from sqlite3 import Connection

from clientsdk.store.outbox import StoredChain


def reserved(connection: Connection, tally: str) -> int | None:
    """Return what a reservoir has reserved, its chain wiped or not; None if it is unused."""
    row = connection.execute("SELECT cost FROM reservoir WHERE tally = ?", (tally,)).fetchone()
    return None if row is None else int(row[0])


def displace(connection: Connection, tally: str, chain: StoredChain, cost: int) -> bool:
    """Register ``chain`` at ``cost``; return whether another one was in its place and is erased."""
    erased = connection.execute(
        "DELETE FROM chain WHERE (period, due, id) IN"
        " (SELECT ?, due, chain FROM reservoir WHERE tally = ?)",
        (chain.period, tally),
    )
    connection.execute(
        "INSERT OR REPLACE INTO reservoir VALUES (?, ?, ?, ?)", (tally, chain.due, chain.id, cost)
    )
    return erased.rowcount > 0
