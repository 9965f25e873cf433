"""The report format: what a device sends, byte for byte (``docs/spec/formats.md``).

A *message* carries one plan fingerprint and one shard. It is a header followed by *groups*, a group
being one metric and a count of *rows*, a row one report: level, pseudonym, chain id, truncated
event time and payload. Everything is little-endian and of fixed width within a group, so that an
aggregator reads millions of rows in a few array operations (:mod:`sotto.wire.decode`). A *signed*
message ends with a public key and a signature of everything before it
(:mod:`sotto.wire.signatures`).
This module is the scalar half, for devices and for people; it needs the standard library alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from mechanisms.frozen import NamedTuple
from sotto.errors import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sotto.wire.signatures import Signer

MAGIC = b"SO"
#: The version of a message, and that of a signed one.
VERSION, SIGNED_VERSION = 1, 2
VERSIONS = (VERSION, SIGNED_VERSION)
#: Bytes of the public key and the signature at the end of a signed message.
TRAILER = 32 + 64
#: A message is never longer; what is longer is refused by both sides.
MAX_MESSAGE = 1 << 20

HEADER = struct.Struct("<2sBBHH32s")
GROUP = struct.Struct("<HHI")
ROW = struct.Struct("<B16s16sq")
#: The place in a row at which its pseudonym begins.
_PSEUDONYM = 1


class Row(NamedTuple):
    """One report: one level of one chain."""

    #: 0 is the weakest, at most 255.
    level: int
    #: 16 bytes, as the chain has.
    pseudonym: bytes
    chain: bytes
    #: Milliseconds since the Unix epoch, truncated to the plan's resolution; may be negative.
    event: int
    #: As wide as its metric's mechanism says; equally wide in all rows of a group.
    payload: bytes


class Group(NamedTuple):
    """Rows of one metric, given by its index in the plan."""

    metric: int
    rows: tuple[Row, ...]


class Message(NamedTuple):
    """A message, taken apart."""

    fingerprint: bytes
    shard: int
    groups: tuple[Group, ...]
    #: The cell of the plan's segments, the same for all rows; 0 where the plan has none.
    cell: int = 0


def row_size(width: int) -> int:
    """Return the bytes of one row whose payload is ``width`` bytes wide."""
    return ROW.size + width


def encode_message(
    fingerprint: bytes,
    shard: int,
    groups: Iterable[tuple[int, Sequence[Row]]],
    signer: Signer | None = None,
    cell: int = 0,
) -> bytes:
    """Return the bytes of a message.

    Parameters
    ----------
    fingerprint : bytes
        32 bytes: the plan under which the rows were recorded.
    shard : int
        The shard of every pseudonym in the message, in ``[0, 65536)``.
    groups : iterable of (int, sequence of Row)
        At least one group, each a metric's index in the plan and at least one row.
    signer : Signer, optional
        Signs the message: all its rows are of the one pseudonym that commits to the key.
    cell : int
        Of the plan's segments (:mod:`sotto.plan.segments`), in ``[0, 64)``; of all rows.

    Raises
    ------
    FormatError
        Something does not fit the format, or the message would exceed ``MAX_MESSAGE`` bytes.

    Examples
    --------
    >>> row = Row(0, bytes(16), bytes(16), -3_600_000, b"\\x05")
    >>> message = encode_message(bytes(32), 7, [(2, [row])])
    >>> len(message), decode_message(message).groups[0] == Group(2, (row,))
    (90, True)
    """
    if len(fingerprint) != 32:
        raise FormatError(f"a fingerprint is 32 bytes, not {len(fingerprint)}")
    parts = [b""]
    try:
        count = 0
        for metric, rows in groups:
            count += 1
            if not rows:
                raise FormatError("a group has at least one row")
            width = len(rows[0].payload)
            parts.append(GROUP.pack(metric, width, len(rows)))
            for level, pseudonym, chain, event, payload in rows:
                if not len(pseudonym) == 16 == len(chain):
                    raise FormatError("pseudonyms and chain ids are 16 bytes")
                if len(payload) != width:
                    raise FormatError("the payloads of a group are equally wide")
                parts += (ROW.pack(level, pseudonym, chain, event), payload)
        version = VERSION if signer is None else SIGNED_VERSION
        parts[0] = HEADER.pack(MAGIC, version, cell, shard, count, fingerprint)
    except struct.error as error:
        raise FormatError(f"a field does not fit the report format: {error}") from None
    if not count:
        raise FormatError("a message has at least one group")
    message = b"".join(parts)
    if signer is not None:
        message += signer.public_key
        message += signer.sign(message)
    if len(message) > MAX_MESSAGE:
        raise FormatError(f"a message of {len(message)} bytes; at most {MAX_MESSAGE} are allowed")
    return message


def decode_message(message: bytes) -> Message:
    """Take a message apart; raises FormatError if the bytes are not exactly one of a known version.

    Structure is checked here, and nothing else: whether plan and metric are known, the rows are
    acceptable and a signature is valid is for :func:`sotto.wire.decode.decode`.
    """
    cell, shard, fingerprint, bounds = _header(message)
    groups = []
    for metric, width, places in row_places(message, *bounds):
        rows = []
        for at in places:
            level, pseudonym, chain, event = ROW.unpack_from(message, at)
            payload = message[at + ROW.size : at + row_size(width)]
            rows.append(Row(level, pseudonym, chain, event, payload))
        groups.append(Group(metric, tuple(rows)))
    return Message(fingerprint, shard, tuple(groups), cell)


def pseudonym_of(message: bytes) -> bytes:
    """Return the pseudonym that all rows of a message bear, as those of a device's message do.

    Rows are not taken apart: the cost is that of looking at 16 bytes of each. Raises FormatError
    if the bytes are not exactly one message, or its rows bear several pseudonyms.

    Examples
    --------
    >>> row = Row(0, b"p" * 16, bytes(16), 0, b"\\x05")
    >>> pseudonym_of(encode_message(bytes(32), 7, [(2, [row])]))
    b'pppppppppppppppp'
    """
    found: set[bytes] = set()
    *_, bounds = _header(message)
    for _, _, places in row_places(message, *bounds):
        found.update(message[at + _PSEUDONYM : at + _PSEUDONYM + 16] for at in places)
    if len(found) != 1:
        raise FormatError(f"a device's message bears one pseudonym, not {len(found)}")
    return found.pop()


def _header(message: bytes) -> tuple[int, int, bytes, tuple[int, int, int]]:
    """Return cell, shard, fingerprint, and where groups begin and end and how many there are."""
    if len(message) < HEADER.size:
        raise FormatError(f"a message has at least {HEADER.size} bytes, not {len(message)}")
    magic, version, cell, shard, count, fingerprint = HEADER.unpack_from(message)
    if magic != MAGIC:
        raise FormatError("the bytes do not begin as a message does")
    if version not in VERSIONS:
        raise FormatError(f"version {version}; known are 1 and 2")
    if len(message) > MAX_MESSAGE:
        raise FormatError(f"a message of {len(message)} bytes; at most {MAX_MESSAGE} are allowed")
    if count == 0:
        raise FormatError("a message has at least one group")
    limit = len(message) - (TRAILER if version == SIGNED_VERSION else 0)
    return cell, shard, fingerprint, (HEADER.size, limit, count)


def row_places(
    message: bytes | memoryview, position: int, limit: int, count: int
) -> Iterator[tuple[int, int, range]]:
    """Yield metric, payload width and places of the rows of each group between two places.

    Raises FormatError if so many groups do not end exactly at the limit.
    """
    for _ in range(count):
        if position + GROUP.size > limit:
            raise FormatError("the message ends within the header of a group")
        metric, width, rows = GROUP.unpack_from(message, position)
        start = position + GROUP.size
        position = start + rows * row_size(width)
        if rows == 0:
            raise FormatError("a group has at least one row")
        if position > limit:
            raise FormatError("the message ends within a group")
        yield metric, width, range(start, position, row_size(width))
    if position != limit:
        raise FormatError(f"{limit - position} bytes after the last group")
