"""Permanent responses: what a constant metric says about a device, drawn once.

The first value recorded is randomized at the last level; that response is kept and never sent.
Every later period draws from it alone, level by level, under a fresh chain id, and so says no more
about the value (Erlingsson et al., "RAPPOR", CCS 2014, section 3). The lifetime is charged for the
response once, when it is drawn, and a period for the strongest level that it sends, as its
aggregator sees it; the part of each period that is so paid for is kept apart (the table
``degraded``). All functions belong in a transaction of the caller.
"""

from __future__ import annotations

import json
from sqlite3 import Connection

from clientsdk.store.schema import name_of
from mechanisms.digests import sha256
from sotto.errors import StoreError
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.metric import WORDS

#: Fields of a metric that a plan may change without changing what its responses mean.
_INESSENTIAL = frozenset({"window", "repeat", "ladder", "panel", "false_discovery_rate", *WORDS})


def binding_of(plan: CompiledPlan, metric: CompiledMetric) -> bytes:
    """Return what a response is bound to, 32 bytes: all that says what a symbol means.

    A version of a plan that changes names, mechanism or the levels' epsilons needs a new response.
    """
    document = metric.document()
    bound = {name: part for name, part in document.items() if name not in _INESSENTIAL}
    bound["ladder"] = [level.epsilon for level in metric.ladder]
    text = json.dumps([plan.plan, bound], sort_keys=True, separators=(",", ":"))
    return sha256(b"sotto.permanent\0" + text.encode())


def bindings_of(plan: CompiledPlan) -> dict[str, bytes]:
    """Return the bindings of a plan's constant metrics, by name."""
    return {each.name: binding_of(plan, each) for each in plan.metrics if each.kind == "constant"}


def response(connection: Connection, binding: bytes) -> bytes | None:
    row = connection.execute(
        "SELECT response FROM permanent WHERE binding = ?", (binding,)
    ).fetchone()
    drawn = row[0] if row else b""
    if not isinstance(drawn, bytes):
        raise misfit(connection)
    return drawn or None


def misfit(connection: Connection) -> StoreError:
    name = name_of(connection)
    return StoreError(f"a permanent response in {name} does not fit its mechanism")


def keep(connection: Connection, binding: bytes, tally: str, cost: int, drawn: bytes) -> None:
    """Store a response and add its charge; sqlite3.IntegrityError where there is one already."""
    charged = connection.execute(
        "UPDATE permanent SET cost = cost + ?, response = ? WHERE binding = ? AND response = x''",
        (cost, drawn, binding),
    )
    if charged.rowcount == 0:
        connection.execute(
            "INSERT INTO permanent VALUES (?, ?, ?, ?)", (binding, tally, cost, drawn)
        )


def erase(connection: Connection, tally: str | None = None) -> None:
    """Erase all responses, or those of one metric, and keep what they have cost."""
    connection.execute(
        "UPDATE permanent SET response = x'' WHERE ? IS NULL OR tally = ?", (tally, tally)
    )
