"""Messages on their way from a lane to a shard, many in a letter.

``M``, then how many messages u32 and about how many rows u32; for each message its append time
i64, its size u32 and whether it is damaged u8; then the messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sotto.logreader import EARLIEST, Block, Corrupt
from sotto.wire import HEADER, RUN, row_size, trailer_of

BATCH = b"M"
#: So many bytes of messages end a letter; only a single message may be longer.
LONGEST = 1 << 20

_HEAD = struct.Struct("<cII")
_ENTRY = np.dtype([("append", "<i8"), ("size", "<u4"), ("damaged", "?")])
_WIDTH = struct.Struct("<H")
#: Decoding looks at the first bytes of a message even if it has none.
_PADDING = bytes(8)


class Timed(NamedTuple):
    """A message with the time that counts as its append time.

    Attributes
    ----------
    append : int
        Milliseconds.
    damaged : bool
        Whether that is not known, so that nothing in it can count.
    message : bytes
    """

    append: int
    damaged: bool
    message: bytes


def pack(messages: Sequence[Timed]) -> Iterator[bytes]:
    """Yield messages of one shard as letters' bodies, in order."""
    for part in _parts(messages):
        entries = np.zeros(len(part), dtype=_ENTRY)
        entries["append"] = [each.append for each in part]
        entries["size"] = [len(each.message) for each in part]
        entries["damaged"] = [each.damaged for each in part]
        rows = sum(_about(each.message) for each in part)
        head = _HEAD.pack(BATCH, len(part), min(rows, 0xFFFFFFFF))
        yield b"".join((head, entries.tobytes(), *(each.message for each in part)))


def numbers(body: bytes) -> tuple[int, int]:
    """Return how many messages a letter has, and about how many rows they have."""
    _, messages, rows = _HEAD.unpack_from(body)
    return messages, rows


def block_of(bodies: Sequence[bytes]) -> Block:
    """Return the messages of letters as a stretch of a log."""
    tables = [
        np.frombuffer(body, _ENTRY, count=numbers(body)[0], offset=_HEAD.size) for body in bodies
    ]
    contents = [
        body[_HEAD.size + table.nbytes :] for body, table in zip(bodies, tables, strict=True)
    ]
    data = b"".join(contents) + _PADDING
    entries = np.concatenate(tables)
    sizes = entries["size"].astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    damaged = entries["damaged"]
    return Block(
        position=0,
        buffer=data,
        offsets=starts[~damaged],
        lengths=sizes[~damaged],
        append=entries["append"][~damaged],
        corrupt=tuple(
            Corrupt(0, int(entries["append"][at]), data[starts[at] : starts[at] + sizes[at]])
            for at in np.flatnonzero(damaged).tolist()
        ),
        end=len(data),
        clock=EARLIEST,
    )


def _parts(messages: Sequence[Timed]) -> Iterator[Sequence[Timed]]:
    """Yield the messages of each letter."""
    begin = size = 0
    for end, each in enumerate(messages, start=1):
        size += len(each.message)
        if size >= LONGEST:
            yield messages[begin:end]
            begin, size = end, 0
    if begin < len(messages):
        yield messages[begin:]


def _about(message: bytes) -> int:
    """Return about how many rows a message has, from its length and its first run's width."""
    if len(message) <= HEADER.size + RUN.size:
        return 1
    rows = len(message) - HEADER.size - RUN.size - trailer_of(message[2])
    (width,) = _WIDTH.unpack_from(message, HEADER.size + 2)
    return max(rows // row_size(width), 1)
