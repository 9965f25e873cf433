"""The arm of an experiment: which one a device is in follows from a secret of its own.

The secret is drawn when consent is given under a plan with an experiment, or when a store that has
consent is first opened under one, is never sent, and is erased with everything else where consent
ends. So the arm stays after a restart, in a copy and in a plan's next version, and is drawn anew
after a withdrawal. Of a name the hash says nothing about another name's: the arms of two
experiments are independent. Functions with a connection belong in a transaction.
"""

from __future__ import annotations

from sqlite3 import Connection

from mechanisms.randomness import Source

SECRET_BYTES = 32


def prepare(connection: Connection, source: Source) -> None:
    """Draw the secret of a store that has none."""
    if not read(connection):
        drawn = source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")
        connection.execute("INSERT INTO arm VALUES (1, ?)", (drawn,))


def read(connection: Connection) -> bytes:
    """Return the secret, empty where there is none."""
    row = connection.execute("SELECT secret FROM arm").fetchone()
    return b"" if row is None else bytes(row[0])


def erase(connection: Connection) -> None:
    connection.execute("DELETE FROM arm")
