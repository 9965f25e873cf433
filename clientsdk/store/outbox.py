"""The outbox: the chains in the store, and which of their levels are due to be sent.

Functions and methods with a connection belong in a transaction that the caller has opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import repeat
from sqlite3 import Connection, Cursor

from clientsdk.store.device_secrets import Identity
from clientsdk.store.schema import NEVER
from mechanisms.frozen import NamedTuple

#: Bytes that a row takes beside its payloads, at most but for what pages leave free.
ROW = 80

_new = tuple.__new__
_INSERT = "INSERT INTO chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


_DUE = (
    "SELECT chain.* FROM pseudonym JOIN chain USING (period)"
    " WHERE due <= ? AND (? IS NULL OR period = ?) AND plan NOT IN ()"
    " ORDER BY period, due, id LIMIT ?"
)
_FORGET = {
    table: f"DELETE FROM {table} WHERE period < ? AND NOT EXISTS"
    f" (SELECT 1 FROM chain WHERE chain.period = {table}.period)"
    for table in ("pseudonym", "signing")
}


class StoredChain(NamedTuple):
    """The outputs for one recorded value, as stored, from which it cannot be computed."""

    #: The budget period in which the value was recorded, whose pseudonym it is sent under.
    period: int
    #: When the first level that was not delivered is due, in milliseconds since the epoch.
    due: int
    id: bytes  #: 16 bytes.
    plan: int  #: Its number in the store.
    metric: int  #: Its index in the plan.
    event: int  #: Time of the recording, truncated.
    jitter: int  #: Milliseconds by which all its reports are delayed beyond what the plan says.
    #: How many levels are charged for and delivered, from the weakest on. A level that was skipped
    #: because a newer one was sent counts as that one does.
    charged: int
    delivered: int
    payloads: bytes  #: Those of all levels, weakest first, equally wide.
    cell: int = 0  #: The cell of segments in which the value was recorded; sent in the clear.

    def __repr__(self) -> str:
        return f"Chain({self.id.hex()[:8]}, metric={self.metric}, charged={self.charged})"


class Recording(NamedTuple):
    tally: str
    seen: int  #: How many recordings the period has under this tally, with this one.
    cost: int  #: Micro-epsilon reserved for the chain.
    chain: StoredChain

    def __repr__(self) -> str:
        return f"Recording({self.tally}, {self.seen}, {self.chain!r})"


class Outbox:
    """This process's knowledge of the outbox of one store, whose file may have so many bytes."""

    def __init__(self, bytes: int) -> None:
        self._bytes = bytes
        #: When the first report that this process knows of is due (ms): never later than that.
        self.soonest: int = NEVER
        #: Bytes that may be added before the file is measured again.
        self.room: int = 0
        #: Whether the store has kept the identity of its period.
        self.named: bool = False

    def full(self, connection: Connection) -> bool:
        if self.room <= 0:
            self.room = self._bytes - _size(connection)
        return self.room <= 0

    def count(self, chain: StoredChain) -> None:
        self.room -= len(chain.payloads) + ROW
        self.soonest = min(self.soonest, chain.due)

    def add(
        self, connection: Connection, cursor: Cursor, chain: StoredChain, identity: Identity
    ) -> None:
        self.count(chain)
        if not self.named:
            remember(connection, chain.period, identity)
            self.named = True
        cursor.execute(_INSERT, chain)


def insert(connection: Connection, chains: Iterable[StoredChain]) -> None:
    connection.executemany(_INSERT, chains)


def due(
    connection: Connection,
    moment: int,
    limit: int,
    without: Collection[int] = (),
    period: int | None = None,
) -> list[StoredChain]:
    """Return at most ``limit`` chains with a level that is due, period by period."""
    query = _DUE.replace("()", f"({','.join('?' * len(without))})") if without else _DUE
    rows = connection.execute(query, (moment, period, period, *without, limit))
    return [*map(_new, repeat(StoredChain), rows)]


def due_plans(connection: Connection, moment: int, period: int) -> list[int]:
    rows = connection.execute(
        "SELECT DISTINCT plan FROM pseudonym JOIN chain USING (period)"
        " WHERE due <= ? AND period = ?",
        (moment, period),
    )
    return [number for (number,) in rows]


def due_events(
    connection: Connection, moment: int, oldest: int
) -> list[tuple[int, int, int, int, int | None, int]]:
    """Return period, plan, metric and event of due chains with two of their due times.

    These are the first from ``oldest`` on, and the last.
    """
    return connection.execute(
        "SELECT period, plan, metric, event, min(CASE WHEN due >= ? THEN due END), max(due)"
        " FROM pseudonym JOIN chain USING (period) WHERE due <= ?"
        " GROUP BY period, plan, metric, event",
        (oldest, moment),
    ).fetchall()


def due_jitters(
    connection: Connection, moment: int, period: int
) -> list[tuple[int, int, int, int]]:
    """Return plan, metric, event and jitter of the due chains of a period."""
    return connection.execute(
        "SELECT plan, metric, event, jitter FROM chain WHERE period = ? AND due <= ?",
        (period, moment),
    ).fetchall()


def _size(connection: Connection) -> int:
    pages, free, each = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * each


def totals(connection: Connection, moment: int) -> tuple[int, int, int]:
    """Return how many chains there are, how many bytes they take, and :func:`count_due`."""
    chains, payloads = connection.execute(
        "SELECT count(*), coalesce(sum(length(payloads)), 0) FROM chain"
    ).fetchone()
    return int(chains), int(payloads) + ROW * int(chains), count_due(connection, moment)


def count_due(connection: Connection, moment: int) -> int:
    (number,) = connection.execute(
        "SELECT count(*) FROM pseudonym JOIN chain USING (period) WHERE due <= ?", (moment,)
    ).fetchone()
    return int(number)


def next_due(connection: Connection, after: int | None = None) -> int | None:
    """Return when the next level is due, ``after`` a time, in ms since the epoch; None if none."""
    (moment,) = connection.execute(
        "SELECT min((SELECT min(due) FROM chain"
        " WHERE chain.period = pseudonym.period AND due > ?)) FROM pseudonym",
        (-(2**63) if after is None else after,),
    ).fetchone()
    return None if moment is None else int(moment)


_KEPT = (
    "SELECT 0, period, value, NULL FROM pseudonym WHERE value <> x''"
    " UNION ALL SELECT 1, period, pseudonym, seed FROM signing"
)


def identities(connection: Connection) -> dict[tuple[int, bool], Identity]:
    """Return the identities that chains are sent under, by period and whether these sign."""
    rows = connection.execute(_KEPT)
    return {(period, bool(signed)): Identity(*kept) for signed, period, *kept in rows}


def identity(connection: Connection, period: int, *, signed: bool) -> Identity | None:
    return identities(connection).get((period, signed))


def remember(connection: Connection, period: int, identity: Identity) -> None:
    """Keep the identity of a period for as long as that has chains."""
    pseudonym = identity.pseudonym
    if identity.seed is not None:
        connection.execute(
            "INSERT OR IGNORE INTO signing VALUES (?, ?, ?)", (period, pseudonym, identity.seed)
        )
        pseudonym = b""
    connection.execute(
        "INSERT INTO pseudonym VALUES (?, ?) ON CONFLICT (period)"
        " DO UPDATE SET value = excluded.value WHERE value = x''",
        (period, pseudonym),
    )


def forget(connection: Connection, period: int) -> bool:
    """Erase the identities of periods before ``period`` without a chain; return whether any was."""
    pseudonyms = connection.execute(_FORGET["pseudonym"], (period,)).rowcount
    keys = connection.execute(_FORGET["signing"], (period,)).rowcount
    return pseudonyms > 0 or keys > 0


def erase_after(connection: Connection, period: int) -> int:
    """Erase the chains and identities of periods after ``period``; return how many chains."""
    erased = [
        connection.execute(f"DELETE FROM {table} WHERE period > ?", (period,)).rowcount
        for table in ("chain", "pseudonym", "signing")
    ]
    return erased[0]


def write_charged(connection: Connection, chains: Iterable[StoredChain]) -> None:
    connection.executemany(
        "UPDATE chain SET charged = ? WHERE period = ? AND due = ? AND id = ?",
        [(chain.charged, chain.period, chain.due, chain.id) for chain in chains],
    )


def erase(connection: Connection, chains: Iterable[StoredChain]) -> None:
    """Erase chains, except those of which another process has charged more meanwhile."""
    connection.executemany(
        "DELETE FROM chain WHERE period = ? AND due = ? AND id = ? AND charged = ?",
        [(chain.period, chain.due, chain.id, chain.charged) for chain in chains],
    )


def postpone(connection: Connection, chains: Iterable[tuple[StoredChain, int]]) -> None:
    """Write that what was charged is delivered, and when the next level of each is due."""
    connection.executemany(
        "UPDATE chain SET due = ?, delivered = charged"
        " WHERE period = ? AND due = ? AND id = ? AND charged = ?",
        [(moment, chain.period, chain.due, chain.id, chain.charged) for chain, moment in chains],
    )


# Reservoirs: of all values of a metric in a period one chain is kept.


def in_reservoir(connection: Connection, tally: str) -> int | None:
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
