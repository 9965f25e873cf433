"""What a new store is pinned to, and the plans that a store knows.

All functions belong in a transaction that the caller has opened.
"""

from __future__ import annotations

import os
import sqlite3

from clientsdk import ratchet
from clientsdk.ledger import Consent
from mechanisms.randomness import Source
from sotto.plan.compiled import Ceilings, CompiledPlan


def create(
    connection: sqlite3.Connection,
    plan: CompiledPlan,
    ceilings: Ceilings,
    period: int,
    source: Source,
) -> None:
    """Write down what a new store is pinned to, and draw its secret."""
    connection.execute(
        "INSERT INTO device VALUES (1, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0)",
        (
            os.urandom(16),
            plan.collector,
            plan.period,
            ceilings.period,
            ceilings.lifetime,
            Consent.NEVER_GIVEN,
            period,
        ),
    )
    connection.execute("INSERT INTO secret VALUES (1, ?)", (ratchet.fresh(source),))


def number_of(connection: sqlite3.Connection, plan: CompiledPlan) -> int:
    """Return the number of a plan's document in the store, where it is put if it is new.

    Documents that differ in what the fingerprint does not cover have numbers of their own: a
    chain keeps the document that it was recorded under, so that no later one prolongs what was
    promised of it (an expiry is the same on the wire whatever its date).
    """
    find = "SELECT id FROM plan WHERE digest = ?"
    row = connection.execute(find, (plan.digest,)).fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO plan (digest, body, expires) VALUES (?, ?, ?)",
            (plan.digest, plan.to_json(), plan.expires),
        )
        row = connection.execute(find, (plan.digest,)).fetchone()
    return int(row[0])
