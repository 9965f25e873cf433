"""How records lie in a log segment: frames, and a scan that survives whatever it is given.

A segment is a header of 16 bytes and then frames, each 16 bytes of frame header (length of the
body, CRC-32 of append time and body, append time) and a body (``docs/spec/formats.md``).
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from sotto.errors import FormatError

MAGIC = b"SOTTOLOG"
VERSION = 1
#: Longest body: a longer length field is damage, whatever the bytes that follow.
MAX_BODY = 1 << 20

SEGMENT = struct.Struct("<8sII")
FRAME = struct.Struct("<IIq")
_LENGTH_AND_CRC = struct.Struct("<II")
HEADER = SEGMENT.pack(MAGIC, VERSION, 0)


def frame(body: bytes, append: int) -> bytes:
    """Return the bytes of one record.

    Raises FormatError if the body is empty or longer than ``MAX_BODY``, or the time does not fit 64
    bits.
    """
    if not 0 < len(body) <= MAX_BODY:
        raise FormatError(f"a record has 1 to {MAX_BODY} bytes, not {len(body)}")
    if not -(2**63) <= append < 2**63:
        raise FormatError("an append time is a signed 64-bit number of milliseconds")
    covered = append.to_bytes(8, "little", signed=True) + body
    return _LENGTH_AND_CRC.pack(len(body), zlib.crc32(covered)) + covered


class Scan(NamedTuple):
    """The records of a stretch of bytes."""

    #: Places at which the bodies of whole records begin, in order; the frame headers before them
    #: say the rest (:func:`record`).
    offsets: list[int]
    #: Half-open ranges of bytes that are no records, in order, adjacent ones merged.
    corrupt: list[tuple[int, int]]
    #: The place at which the scan stopped: at the limit, before a frame that runs past it, or
    #: before a frame header that cannot be one.
    end: int
    #: Whether it stopped because what follows can never be parsed from there on.
    lost: bool


def scan(buffer: bytes, start: int, limit: int, *, verify: bool = True) -> Scan:
    """Find the records in ``buffer[start:limit]``, where ``start`` begins a frame.

    A record whose CRC fails is damage of the frame's extent: the scan goes on after it. A length
    that cannot be one ends the scan. It never looks for a frame at any other place, since bodies
    come from strangers, who could have put frames into them. Unless CRCs are to be verified, a scan
    touches frame headers alone.
    """
    offsets: list[int] = []
    corrupt: list[tuple[int, int]] = []
    unpack, crc32, add = _LENGTH_AND_CRC.unpack_from, zlib.crc32, offsets.append
    last, view = limit - FRAME.size, memoryview(buffer)
    at, lost = start, False
    while at <= last:
        length, crc = unpack(buffer, at)
        if not 0 < length <= MAX_BODY:
            lost = True
            break
        after = at + 16 + length
        if after > limit:
            break
        if verify and crc32(view[at + 8 : after]) != crc:
            if corrupt and corrupt[-1][1] == at:
                at = corrupt.pop()[0]
            corrupt.append((at, after))
        else:
            add(at + 16)
        at = after
    return Scan(offsets, corrupt, at, lost)


def record(buffer: bytes, offset: int) -> tuple[int, int]:
    """Return append time and length of the record whose body begins at ``offset``."""
    length, _, append = FRAME.unpack_from(buffer, offset - FRAME.size)
    return append, length


def is_torn(tail: bytes) -> bool:
    """Whether bytes after the last whole record are what a writer that died leaves behind.

    That is the beginning of one frame, or zeros (a file made longer by a system that lost power
    before the data reached the disk). Anything else is damage, which is to be kept.
    """
    if len(tail) < FRAME.size or not any(tail):
        return True
    length: int = FRAME.unpack_from(tail)[0]
    return 0 < length <= MAX_BODY and FRAME.size + length > len(tail)
