"""Decompressing batches of records, of which strangers say how large they become.

kafka-python decompresses a batch whole, whatever that comes to: thousands of times what the
broker's ``max.message.bytes`` lets through. Here it is done up to a limit, and what is larger
cannot be read. Neither can what has many more headers than records: each is some microseconds and
a tuple, of two bytes that compress to nothing.
"""

from __future__ import annotations

import io
import zlib
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint

#: Bytes that a batch may unpack to. The largest that an honest sender makes holds one document of
#: 8 MiB, or some megabytes of messages.
MOST_BYTES = 16 << 20
#: Records of a batch; messages of a report each are some 100 bytes.
MOST_RECORDS = 1 << 17

#: Headers of a batch's records, in all and of each. Those of quarantine have six.
MOST_HEADERS, MOST_HEADERS_EACH = 1_000, 16
#: Headers are counted where a batch unpacks to so many times its bytes; elsewhere they cost whoever
#: sends them as much.
_SUSPICIOUS = 4


class TooMuchError(CorruptRecordError):
    """A batch has more bytes or records than are read of one."""


_CHUNK = 256 << 10
_GZIP = zlib.MAX_WBITS | 16


def unpack(batch: Any) -> int:
    """Decompress a batch in place, if it is not yet, and return how many bytes it has then.

    Parameters
    ----------
    batch : DefaultRecordBatch

    Raises
    ------
    TooMuchError
        It has too many records, or becomes too large.
    CorruptRecordError
        It has too many headers, or its bytes are no batch's.
    UnsupportedCodecError
        It is compressed in a way that is never read here, whatever is installed.
    """
    if batch.records_count > MOST_RECORDS:
        raise TooMuchError("too many records")
    codec = batch.compression_type
    if not batch._decompressed and codec != DefaultRecordBatch.CODEC_NONE:
        packed = bytes(memoryview(batch._buffer)[batch._pos :])
        unpacked = _unpacked(codec, packed)
        if len(unpacked) > _SUSPICIOUS * len(packed):
            _check_headers(unpacked, batch.records_count)
        batch._buffer, batch._pos = unpacked, 0
    batch._decompressed = True
    return len(batch._buffer)


def _check_headers(unpacked: bytearray, records: int) -> None:
    """Return if records have no more headers than they may; as kafka-python would read them."""
    at = 0
    left = MOST_HEADERS + MOST_HEADERS_EACH * records
    try:
        for _ in range(records):
            length, at = decode_varint(unpacked, at)
            end = at + length
            # Attributes, time and offset.
            for _ in range(3):
                _, at = decode_varint(unpacked, at)
            for _ in range(2):
                size, at = decode_varint(unpacked, at)
                at += max(size, 0)
            headers, at = decode_varint(unpacked, at)
            left -= headers
            if left < 0 or headers < 0 or not at <= end <= len(unpacked):
                raise CorruptRecordError("too many headers, or no records")
            at = end
    except (IndexError, ValueError):
        raise CorruptRecordError("no records") from None


def _unpacked(codec: int, packed: bytes) -> bytearray:
    if codec == DefaultRecordBatch.CODEC_ZSTD:
        return _zstd(packed)
    if codec == DefaultRecordBatch.CODEC_GZIP:
        return _gzip(packed)
    raise UnsupportedCodecError("neither gzip nor zstd")


def _zstd(packed: bytes) -> bytearray:
    import zstandard

    found = bytearray()
    source = io.BytesIO(packed)
    with zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True) as reader:
        while chunk := reader.read(_CHUNK):
            found += chunk
            if len(found) > MOST_BYTES:
                raise TooMuchError("too large")
    return found


def _gzip(packed: bytes) -> bytearray:
    member = zlib.decompressobj(wbits=_GZIP)
    found = bytearray(member.decompress(packed, MOST_BYTES + 1))
    if len(found) > MOST_BYTES:
        raise TooMuchError("too large")
    if not member.eof or member.unused_data:
        raise CorruptRecordError("not one member of gzip")
    return found
