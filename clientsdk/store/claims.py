"""The process that counts the items of a budget period: one client of one process, for each metric.

The client that holds the claim has the count in memory. It gives the claim up in the transaction
that stores what was drawn, so that there is never a second chain for what was reserved once, in
whatever process, and whether or not that could tell that its commit came through. All functions
belong in a transaction of the caller.
"""

from __future__ import annotations

from sqlite3 import Connection

from mechanisms.frozen import frozen

#: Holds the claim of a count that is lost, whose reservation another client may use.
NOBODY = b""


@frozen
class CountingClaim:
    """A row of the table ``counting``."""

    holder: bytes  #: 16 random bytes that the client alone knows, or :data:`NOBODY`.
    cost: int  #: Micro-epsilon reserved and not yet used; none after a withdrawal of consent.


def find(connection: Connection, period: int, tally: str) -> CountingClaim | None:
    """Return the claim to a metric's items in a period, None if counting was not begun."""
    row = connection.execute(
        "SELECT holder, cost FROM counting WHERE period = ? AND tally = ?", (period, tally)
    ).fetchone()
    return None if row is None else CountingClaim(*row)


def take(connection: Connection, period: int, tally: str, claim: CountingClaim, last: int) -> None:
    """Give the claim to a holder; after the period ``last`` it is of no use to anybody."""
    connection.execute(
        "INSERT OR REPLACE INTO counting VALUES (?, ?, ?, ?, ?)",
        (period, tally, claim.holder, claim.cost, last),
    )


def use(connection: Connection, period: int, tally: str, holder: bytes) -> bool:
    """Give up a claim for good, to draw a chain in its stead; False if it is not the holder's."""
    used = connection.execute(
        "DELETE FROM counting WHERE period = ? AND tally = ? AND holder = ?",
        (period, tally, holder),
    )
    return used.rowcount == 1


def release(connection: Connection, period: int, tally: str, holder: bytes) -> None:
    """Give up a claim whose count is forgotten; another client may count in its stead."""
    connection.execute(
        "UPDATE counting SET holder = ? WHERE period = ? AND tally = ? AND holder = ?",
        (NOBODY, period, tally, holder),
    )


def abandon(connection: Connection, tally: str | None = None) -> None:
    """Take every claim, or those to one metric, from its holder; who counts again pays again."""
    connection.execute(
        "UPDATE counting SET holder = ?, cost = 0 WHERE ? IS NULL OR tally = ?",
        (NOBODY, tally, tally),
    )


def forget(connection: Connection, period: int) -> None:
    """Remove the claims that are of no use in ``period``: of long before it, or of after it."""
    connection.execute("DELETE FROM counting WHERE last < ? OR period > ?", (period, period))
