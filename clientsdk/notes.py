"""What a store in memory has recorded and not yet written into its tables.

No other process sees that store, so its recordings need no transaction each. They are noted in a
list under the store's lock, charge and chain in one entry, and written in one transaction before
anything else reads the store or changes it.
"""

from __future__ import annotations

import json
import sqlite3
from typing import NamedTuple

from clientsdk import spool
from clientsdk.spool import Chain

#: After so many they are written: the tables need a tenth of the memory.
MOST = 256

written = json.JSONEncoder(separators=(",", ":")).encode


class Note(NamedTuple):
    """A recording.

    Attributes
    ----------
    tally : str
    seen : int
        How many there were under this tally in the period, with this one.
    cost : int
        Micro-epsilon reserved for the chain.
    chain : Chain
    """

    tally: str
    seen: int
    cost: int
    chain: Chain

    def __repr__(self) -> str:
        """Return what it is about, without the payloads."""
        return f"Note({self.tally}, {self.seen}, {self.chain!r})"


def write(connection: sqlite3.Connection, notes: list[Note]) -> None:
    """Move notes of one period, in which something was recorded before, into the tables.

    What was written before, and not yet removed from the list when an interrupt came, is not
    written again: its tally says so.
    """
    if not notes:
        return
    connection.execute("BEGIN IMMEDIATE")
    period = notes[0].chain.period
    reserved, text = connection.execute(
        "SELECT reserved, tallies FROM ledger WHERE period = ?", (period,)
    ).fetchone()
    tallies: dict[str, int] = json.loads(text)
    fresh = [note for note in notes if note.seen > tallies.get(note.tally, 0)]
    tallies.update((note.tally, note.seen) for note in fresh)
    connection.execute(
        "UPDATE ledger SET reserved = ?, tallies = ? WHERE period = ?",
        (reserved + sum(note.cost for note in fresh), written(tallies), period),
    )
    spool.insert_all(connection, [note.chain for note in fresh])
    connection.execute("COMMIT")
    notes.clear()
