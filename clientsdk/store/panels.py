"""Panels: of each N budget periods a device answers in one, its turn.

Which one in each cycle of N follows from a secret of the device, drawn when its store is made,
never sent and never changed, and from no value, plan or metric. So all metrics and plans with the
same N share a turn, and it stays after a restart, in a copy, after consent was withdrawn and given
again, and in a plan's next version. Functions with a connection belong in a transaction.
"""

from __future__ import annotations

from sqlite3 import Connection

from mechanisms.digests import sha256
from mechanisms.frozen import NamedTuple
from mechanisms.randomness import Source

SECRET_BYTES = 32
#: Before every cycle: of a device that has lost no file.
ALWAYS = -(1 << 62)
#: Bytes of the hash that are reduced: the bias is below 2**-118 for every N that a plan may have.
_REDUCED = 16


class Panel(NamedTuple):
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


def create(connection: Connection, source: Source) -> None:
    """Draw the secret of a new store."""
    drawn = source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")
    connection.execute("INSERT INTO panel VALUES (1, ?, ?)", (drawn, ALWAYS))


def read(connection: Connection) -> Panel:
    secret, since = connection.execute("SELECT secret, since FROM panel").fetchone()
    return Panel(bytes(secret), int(since))


def begin_after(connection: Connection, period: int) -> None:
    """Have the first turn in a cycle that begins after ``period``, since a lost one may be used."""
    connection.execute("UPDATE panel SET since = max(since, ?)", (period + 1,))
