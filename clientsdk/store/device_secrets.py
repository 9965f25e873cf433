"""Secrets of a device, and what follows from each: pseudonyms, turns of panels, experiments' arms.

None of them is ever sent. Functions with a connection belong in a transaction.

*Pseudonyms* follow from a one-way ratchet. A device keeps one secret, from which, with the
collector and the period, its pseudonym is derived. When a new period begins the secret is hashed
together with 32 fresh random bytes, and the old one is erased. So neither the past nor the future
follows from a secret: whoever takes one cannot tell which past pseudonyms were this device's, nor,
from the next period on, which are. A copy of a device's file has the same pseudonym as the device
until the period ends, so that the aggregator's audit sees both; from the next period on it is a
second device.

*Panels*: of each N budget periods a device answers in one, its turn. Which one in each cycle of N
follows from a secret of the device, drawn when its store is made and never changed, and from no
value, plan or metric. So all metrics and plans with the same N share a turn, and it stays after a
restart, in a copy, after consent was withdrawn and given again, and in a plan's next version.

*The arm of an experiment* that a device is in follows from a secret that is drawn when consent is
given under a plan with an experiment, or when a store that has consent is first opened under one,
and is erased with the first step into a later period than that of a withdrawal. So the arm stays
after a restart, in a copy and in a plan's next version, and is drawn anew where consent is given in
a later period. The hash of a name says nothing about another name's: the arms of two experiments
are independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection

from clientsdk.store import schema
from mechanisms.digests import sha256
from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from sotto.errors import StoreError
from sotto.wire.signatures import Signer, signed_pseudonym, unsigned_pseudonym

SECRET_BYTES = 32
#: Before every cycle: of a device that has lost no file.
ALWAYS = -(1 << 62)
#: Bytes of the hash that are reduced: the bias is below 2**-118 for every N that a plan may have.
_REDUCED = 16


def draw_secret(source: Source) -> bytes:
    return source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")


def _whole(connection: Connection, secret: object) -> bytes:
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise schema.damaged(connection)
    return secret


@contextmanager
def random_bytes() -> Iterator[None]:
    """Raise StoreError where the operating system gives no random bytes."""
    try:
        yield
    except (OSError, NotImplementedError) as error:
        raise StoreError(f"the operating system gives no random bytes: {error}") from error


# Pseudonyms.


def read_secret(connection: Connection) -> bytes:
    (secret,) = connection.execute("SELECT value FROM secret").fetchone()
    return _whole(connection, secret)


def advance(secret: bytes, source: Source) -> bytes:
    """Return the secret of a new period: one step, however many periods have passed.

    The secret only runs forward even if the generator fails to be random.
    """
    return sha256(b"sotto.ratchet\0" + secret + draw_secret(source))


def pseudonym(collector: str, period: int, secret: bytes) -> bytes:
    """Return the 16-byte pseudonym of a device for ``collector`` in ``period``.

    Pseudonyms of different periods cannot be linked, whatever secret is known; nor can those for
    different collectors, without the secret of the period.
    """
    return unsigned_pseudonym(_derived(b"sotto.pseudonym", collector, period, secret)[:16])


@frozen
class Identity:
    """A device's pseudonym in one budget period, and its key."""

    pseudonym: bytes
    #: Seed of the key that signs its messages, to which the pseudonym commits; None if unsigned.
    seed: bytes | None = None

    def __repr__(self) -> str:
        return "Identity()"


def identity(collector: str, period: int, secret: bytes, *, signed: bool) -> Identity:
    """Return a device's identity in ``period``, with a key pair if its messages are ``signed``.

    The key pair follows from the period's secret, and once that is gone so is the key. The signed
    and the unsigned pseudonym of one period cannot be linked without the secret either.
    """
    if not signed:
        return Identity(pseudonym(collector, period, secret))
    seed = _derived(b"sotto.signature", collector, period, secret)
    return Identity(signed_pseudonym(collector, period, Signer(seed).public_key), seed)


def _derived(purpose: bytes, collector: str, period: int, secret: bytes) -> bytes:
    number = period.to_bytes(8, "little", signed=True)
    return sha256(purpose + b"\0" + collector.encode() + b"\0" + number + secret)


# Panels.


@frozen
class Panel:
    secret: bytes  #: 32 random bytes.
    since: int  #: A cycle that began before this period has no turn.

    def __repr__(self) -> str:
        return f"Panel(since={self.since})"

    def is_turn(self, panels: int, period: int) -> bool:
        """Whether the device answers in a budget period, of each ``panels`` in one."""
        cycle, place = divmod(period, panels)
        return cycle * panels >= self.since and place == slot(self.secret, panels, cycle)


def slot(secret: bytes, panels: int, cycle: int) -> int:
    """Return which period of a cycle, in ``[0, panels)``, is a device's turn.

    Cycles count from the Unix epoch, as periods do. Whoever does not know the secret learns nothing
    from one cycle's turn about another's, so that turns do not join the pseudonyms of a device.

    >>> [slot(bytes(32), 13, cycle) for cycle in range(4)]
    [11, 1, 6, 8]
    """
    numbers = panels.to_bytes(8, "little") + cycle.to_bytes(8, "little", signed=True)
    digest = sha256(b"sotto.panel\0" + secret + numbers)
    return int.from_bytes(digest[:_REDUCED], "little") % panels


def create_panel(connection: Connection, source: Source) -> None:
    """Draw the secret of a new store."""
    connection.execute("INSERT INTO panel VALUES (1, ?, ?)", (draw_secret(source), ALWAYS))


def read_panel(connection: Connection) -> Panel:
    secret, since = connection.execute("SELECT secret, since FROM panel").fetchone()
    return Panel(_whole(connection, secret), int(since))


def begin_after(connection: Connection, period: int) -> None:
    """Have the first turn in a cycle that begins after ``period``, since a lost one may be used."""
    connection.execute("UPDATE panel SET since = max(since, ?)", (period + 1,))


# Arms.


def prepare_arm(connection: Connection, source: Source) -> bytes:
    """Return the secret of arms; of a store that has none it is drawn."""
    secret = read_arm(connection)
    if not secret:
        with random_bytes():
            secret = draw_secret(source)
        connection.execute("INSERT INTO arm VALUES (1, ?)", (secret,))
    return secret


def read_arm(connection: Connection) -> bytes:
    """Return the secret of arms, empty where there is none; DamagedError if it is of another size.

    A part of it would be the secret of another arm, under the same pseudonym.
    """
    row = connection.execute("SELECT secret FROM arm").fetchone()
    return b"" if row is None else _whole(connection, row[0])


def erase_arm(connection: Connection) -> None:
    connection.execute("DELETE FROM arm")
