"""Decompressing batches of records, of which strangers say how large they become.

kafka-python decompresses a batch whole, whatever that comes to: thousands of times what the
broker's ``max.message.bytes`` lets through. Here it is done up to a limit, and what is larger
cannot be read.
"""

from __future__ import annotations

import io
import zlib
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch

#: Bytes that a batch may unpack to. The largest that an honest sender makes holds one document of
#: 8 MiB, or some megabytes of messages.
MOST_BYTES = 16 << 20
#: Records of a batch; messages of a report each are some 100 bytes.
MOST_RECORDS = 1 << 17

_CHUNK = 256 << 10
_GZIP = zlib.MAX_WBITS | 16


def unpack(batch: Any) -> int:
    """Decompress a batch in place, if it is not yet, and return how many bytes it has then.

    Parameters
    ----------
    batch : DefaultRecordBatch

    Raises
    ------
    CorruptRecordError
        It has too many records or becomes too large, or its compressed bytes are none.
    UnsupportedCodecError
        It is compressed in a way that is never read here, whatever is installed.
    """
    if batch.records_count > MOST_RECORDS:
        raise CorruptRecordError("too many records")
    codec = batch.compression_type
    if not batch._decompressed and codec != DefaultRecordBatch.CODEC_NONE:
        packed = bytes(memoryview(batch._buffer)[batch._pos :])
        batch._buffer, batch._pos = _unpacked(codec, packed), 0
    batch._decompressed = True
    return len(batch._buffer)


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
                raise CorruptRecordError("too large")
    return found


def _gzip(packed: bytes) -> bytearray:
    member = zlib.decompressobj(wbits=_GZIP)
    found = bytearray(member.decompress(packed, MOST_BYTES + 1))
    if len(found) > MOST_BYTES:
        raise CorruptRecordError("too large")
    if not member.eof or member.unused_data:
        raise CorruptRecordError("not one member of gzip")
    return found
