"""Permanent responses: what a constant metric says about a device, drawn once.

The first value recorded is randomized by the ladder's last rung. That response is kept, never
sent, and what every later period sends is drawn from it alone, weaker rung by weaker rung, under
a fresh chain id (:meth:`mechanisms.base.Ladder.weaker`). However many periods there are, all
of it says no more about the value than the response does, so the lifetime is charged for the
response once, when it is drawn, and a period for the strongest rung that it sends, as its
aggregator sees it. The sum over the periods may exceed what the lifetime was charged; the part
of each period that is so paid for is kept apart (the table ``degraded``).

All functions belong in a transaction that the caller has opened.

References
----------
Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: Randomized Aggregatable Privacy-Preserving Ordinal
Response", CCS 2014, section 3: a permanent randomized response, then instantaneous ones.
"""

from __future__ import annotations

import json
import sqlite3
from typing import NamedTuple

from mechanisms.digests import sha256
from sotto.errors import StoreError
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: What a plan may change about a metric without changing what its responses mean.
_INESSENTIAL = frozenset({"window", "repeat", "ladder", "panel"})


class PermanentCharge(NamedTuple):
    """What permanent responses of one metric, mechanism and ladder have cost.

    Attributes
    ----------
    metric : str
        ``"plan/metric"``.
    cost : int
        Micro-epsilon, charged to the lifetime: the last rung's, for each response ever drawn.
    held : bool
        Whether there is a response; none after consent was withdrawn, until the next is drawn.
    """

    metric: str
    cost: int
    held: bool


def binding_of(plan: CompiledPlan, metric: CompiledMetric) -> bytes:
    """Return what a response is bound to: 32 bytes.

    The hash of the names of plan and metric, the mechanism, the epsilons of the ladder, and
    whatever else says what a symbol means. Another version of a plan that leaves these as they
    are goes on with the response that there is; one that changes any of them needs a new one.
    """
    document = json.loads(plan.to_json())["metrics"][metric.index]
    bound = {name: part for name, part in document.items() if name not in _INESSENTIAL}
    bound["ladder"] = [rung.epsilon for rung in metric.ladder]
    text = json.dumps([plan.plan, bound], sort_keys=True, separators=(",", ":"))
    return sha256(b"sotto.permanent\0" + text.encode())


def response(connection: sqlite3.Connection, binding: bytes) -> bytes | None:
    """Return the permanent response of a binding, None if there is none (any more).

    Raises
    ------
    StoreError
        What is there is none.
    """
    row = connection.execute(
        "SELECT response FROM permanent WHERE binding = ?", (binding,)
    ).fetchone()
    drawn = row[0] if row else b""
    if not isinstance(drawn, bytes):
        raise StoreError("a permanent response does not fit its mechanism")
    return drawn or None


def keep(
    connection: sqlite3.Connection, binding: bytes, tally: str, cost: int, drawn: bytes
) -> None:
    """Store a response together with its charge, where there is none.

    What an erased response of the same binding has cost stays charged beside it.

    Raises
    ------
    sqlite3.IntegrityError
        There is one.
    """
    charged = connection.execute(
        "UPDATE permanent SET cost = cost + ?, response = ? WHERE binding = ? AND response = x''",
        (cost, drawn, binding),
    )
    if charged.rowcount == 0:
        connection.execute(
            "INSERT INTO permanent VALUES (?, ?, ?, ?)", (binding, tally, cost, drawn)
        )


def erase(connection: sqlite3.Connection) -> None:
    """Erase every response; what they have cost stays charged."""
    connection.execute("UPDATE permanent SET response = x''")


def reserve(connection: sqlite3.Connection, period: int, cost: int) -> None:
    """Note that so much of what ``period`` has reserved is paid for by permanent responses."""
    connection.execute(
        "INSERT INTO degraded VALUES (?1, ?2, 0)"
        " ON CONFLICT (period) DO UPDATE SET reserved = reserved + ?2",
        (period, cost),
    )


def spend(connection: sqlite3.Connection, period: int, cost: int) -> None:
    """Note that so much of what ``period`` has spent is paid for by permanent responses."""
    connection.execute("UPDATE degraded SET spent = spent + ? WHERE period = ?", (cost, period))


def lifetime(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return what is reserved and spent over all periods, in micro-epsilon.

    A permanent response counts as spent from the moment at which it is drawn, and so does what
    is carried over from a file that was damaged, lost, or newer.
    """
    reserved, spent = connection.execute(
        "SELECT coalesce(sum(reserved), 0), coalesce(sum(spent), 0) FROM ("
        " SELECT reserved, spent FROM ledger"
        " UNION ALL SELECT -reserved, -spent FROM degraded"
        " UNION ALL SELECT cost, cost FROM permanent"
        " UNION ALL SELECT carried, carried FROM mark)"
    ).fetchone()
    return int(reserved), int(spent)


def charges(connection: sqlite3.Connection) -> tuple[PermanentCharge, ...]:
    """Return what permanent responses have cost, by metric."""
    rows = connection.execute(
        "SELECT tally, cost, response <> x'' FROM permanent ORDER BY tally, binding"
    )
    return tuple(PermanentCharge(tally, cost, bool(held)) for tally, cost, held in rows)
