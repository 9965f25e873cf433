"""What keepers send each other and to the outside: bytes, addressed by a port and a key.

A letter's first byte says what it is. Letters from one keeper's key to another's arrive in the
order in which they were sent, which is what a keyed exchange with aligned checkpoints gives; that
is all that is relied on.

To shards: ``M`` messages (see :mod:`pipelines.streaming.batches`), ``T`` a tick (clock i64 or the
earliest time for none, lane). To slots: ``C`` a change of a window (window 42 B, changes of
counts), ``O`` a shard's first open period (shard u32, period i64), ``T`` a tick (clock i64).
To the books: ``L`` a lane (clock i64, offset i64, lane), which also is a tick, ``S`` what became of
a shard's reports (shard i32, JSON). To both: ``B``, a lane that was restored is behind.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pipelines.counts import Matrix
from sotto.errors import FormatError

#: Where messages go that do not say, or wrongly say, which shard they are of.
UNREADABLE = -1

TICK, CHANGE, OPENED, LANE, SHARD, BEHIND = b"T", b"C", b"O", b"L", b"S", b"B"

#: Heads of letters.
TICK_HEAD = struct.Struct("<cq")
CHANGE_HEAD = struct.Struct("<c42s")
OPENED_HEAD = struct.Struct("<cIq")
LANE_HEAD = struct.Struct("<cqq")
SHARD_HEAD = struct.Struct("<ci")

_COUNTS = struct.Struct("<HIB")
_SIZES = (np.dtype("i1"), np.dtype("<i2"), np.dtype("<i4"), np.dtype("<i8"))


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


def pack_change(change: Matrix) -> bytes:
    """Return changes of counts as bytes: rungs u16, length u32, i, then integers of 2**i bytes.

    Examples
    --------
    >>> len(pack_change(np.zeros((3, 100), dtype=np.int64)))
    307
    """
    most = max(int(change.max()), ~int(change.min()))
    size = next(each for each in range(4) if most <= np.iinfo(_SIZES[each]).max)
    return _COUNTS.pack(*change.shape, size) + change.astype(_SIZES[size]).tobytes()


def unpack_change(data: bytes) -> Matrix:
    """Return the changes of :func:`pack_change`.

    Raises
    ------
    FormatError
        The bytes are none.
    """
    try:
        rungs, length, size = _COUNTS.unpack_from(data)
        values = np.frombuffer(data, _SIZES[size], offset=_COUNTS.size).reshape(rungs, length)
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError(f"{len(data)} bytes are no changes of counts") from error
    return values.astype(np.int64)
