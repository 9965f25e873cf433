"""What keepers send each other and to the outside: bytes, addressed by a port and a key.

A letter's first byte says what it is. Letters from one keeper's key to another's arrive in the
order in which they were sent, which is what a keyed exchange with aligned checkpoints gives; that
is all that is relied on.

To shards: ``M`` a message (append i64, damaged u8, the message), ``T`` a tick (clock i64 or the
earliest time for none, lane). To slots: ``C`` a change of a window (clock i64, window 42 B, packed
matrix), ``O`` a shard's first open period (shard u32, period i64), ``T`` a tick (clock i64).
To the books: ``L`` a lane (clock i64, offset i64, lane), which also is a tick, ``S`` a shard's
report (shard u32, first open period i64, JSON of what was written).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

#: Where messages go that do not say, or wrongly say, which shard they are of.
UNREADABLE = -1

MESSAGE, TICK, CHANGE, OPENED, LANE, SHARD = b"M", b"T", b"C", b"O", b"L", b"S"

#: Heads of letters.
MESSAGE_HEAD = struct.Struct("<cq?")
TICK_HEAD = struct.Struct("<cq")
CHANGE_HEAD = struct.Struct("<cq42s")
OPENED_HEAD = struct.Struct("<cIq")
LANE_HEAD = struct.Struct("<cqq")
SHARD_HEAD = struct.Struct("<cIq")


class Port(IntEnum):
    """Where a letter goes.

    To keepers: ``SHARDS`` by shard (:data:`UNREADABLE` is one too), ``WINDOWS`` by slot,
    ``BOOKS``, whose only key is 0. To the outside: ``DOCUMENTS``, a record of the topic of
    estimates, and ``QUARANTINE``, packed rejects as of :func:`pipelines.quarantine.unpack`; their
    key says nothing.
    """

    SHARDS = 1
    WINDOWS = 2
    BOOKS = 3
    DOCUMENTS = 4
    QUARANTINE = 5


class Letter(NamedTuple):
    """What a keeper sends.

    Attributes
    ----------
    port : Port
    key : int
    body : bytes
    name : bytes
        Of a document the record's key; empty for others.
    """

    port: Port
    key: int
    body: bytes
    name: bytes = b""
