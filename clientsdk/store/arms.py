"""The arm of an experiment: which one a device is in follows from a secret of its own.

The secret is drawn when consent is given under a plan with an experiment, or when a store that has
consent is first opened under one, is never sent, and is erased with the first step into a later
period than that of a withdrawal. So the arm stays after a restart, in a copy and in a plan's next
version, and is drawn anew where consent is given in a later period. The hash of a name says nothing
about another name's: the arms of two experiments are independent. Functions with a connection
belong in a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection

from mechanisms.randomness import Source
from sotto.errors import StoreError

SECRET_BYTES = 32


@contextmanager
def random_bytes() -> Iterator[None]:
    """Raise StoreError where the operating system gives no random bytes."""
    try:
        yield
    except (OSError, NotImplementedError) as error:
        raise StoreError(f"the operating system gives no random bytes: {error}") from error


def prepare(connection: Connection, source: Source) -> bytes:
    """Return the secret; of a store that has none it is drawn."""
    secret = read(connection)
    if not secret:
        with random_bytes():
            secret = source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")
        connection.execute("INSERT INTO arm VALUES (1, ?)", (secret,))
    return secret


def read(connection: Connection) -> bytes:
    """Return the secret, empty where there is none."""
    row = connection.execute("SELECT secret FROM arm").fetchone()
    return b"" if row is None else bytes(row[0])


def erase(connection: Connection) -> None:
    connection.execute("DELETE FROM arm")
