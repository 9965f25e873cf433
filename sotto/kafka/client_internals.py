"""All that Sotto touches of kafka-python's private parts; ``pyproject.toml`` caps its version.

Three things that kafka-python has no option for:

- **Batches that it cannot read.** A broker looks at less of a batch than kafka-python does: it
  lets through a header whose name is not UTF-8, a compression that is not read here, a few
  kilobytes that unpack to gigabytes. Whoever may write to a topic could stop all its readers. Such
  a batch becomes one record with the bytes of the batch. If it is only too large, that record has
  the batch's time, and is rejected as malformed, as any message that is too long. If it cannot be
  understood, it lacks the broker's time, which readers count as damage. A batch whose checksum is
  wrong as well is the broker's fault, and an error.
- **Limits.** kafka-python decompresses a batch whole, whatever its size then is. Here each batch,
  and all batches of one request together, unpack up to a limit; the rest is requested again.
- **Producers that end in time.** kafka-python waits twice at exit, and for ever for batches that
  never got a producer id.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from kafka.record import util
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

#: Bytes that a batch may unpack to. The largest that an honest sender makes holds one document of
#: 8 MiB, or some megabytes of messages.
MOST_BYTES = 16 << 20
#: Records of a batch; messages of one report each have some 100 bytes.
MOST_RECORDS = 1 << 17
#: Headers of a batch's records, in all and of each; records of quarantine have six. Two bytes that
#: compress to nothing would cost the reader some microseconds and a tuple each.
MOST_HEADERS, MOST_HEADERS_EACH = 1_000, 16

#: Whether checksums are cheap: in Python alone they cost ten times as much as all other reading.
FAST_CHECKSUMS = util.crc32c_c is not None

#: Headers are counted where a batch unpacks to so many times its bytes; elsewhere they cost the
#: sender as much.
_SUSPICIOUS = 4
_CHUNK = 256 << 10
_GZIP = zlib.MAX_WBITS | 16
_SENDERS_TIME = 0


class TooMuchError(CorruptRecordError):
    """A batch has more bytes or records than are read of one."""


def tolerate_bad_batches(consumer: KafkaConsumer) -> None:
    """Let a consumer that has not read anything yet continue after batches it cannot read."""
    consumer._fetcher.PartitionRecords = TolerantRecords


def disable_exit_hook(producer: KafkaProducer) -> None:
    """Keep a producer from waiting, and complaining to the terminal, at the interpreter's exit."""
    producer._unregister_cleanup()


def never_close(producer: KafkaProducer) -> None:
    """Let a producer take itself for closed: closing it, at exit too, then does nothing."""
    producer._closed = True


def close_at_once(producer: KafkaProducer, seconds: float) -> None:
    """Drop what a producer holds and end its thread, within so many seconds."""
    producer._sender.force_close()
    with suppress(KafkaError):
        producer.close(timeout=seconds)
    producer._closed = True


class TolerantRecords(Fetcher.PartitionRecords):
    """The records that one request returned of a partition."""

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(tp, _Batches(records), *deserializers)


@dataclass
class _Unpacked:
    """Bytes and records that the batches of one request have unpacked to."""

    size: int = 0
    records: int = 0

    @property
    def enough(self) -> bool:
        return self.size >= MOST_BYTES or self.records >= MOST_RECORDS


class _Batches:
    """Batches one after another, until they are enough."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self._unpacked = _Unpacked()

    def next_batch(self) -> Any:
        """Return the next batch; None after the last."""
        if self._unpacked.enough:
            return None
        batch = self._records.next_batch()
        return _Batch(batch, self._unpacked) if isinstance(batch, DefaultRecordBatch) else batch


class _Batch:
    """A batch, or the record that stands for it."""

    def __init__(self, batch: DefaultRecordBatch, unpacked: _Unpacked) -> None:
        self._batch = batch
        self._unpacked = unpacked
        # Reading a batch replaces its bytes by the decompressed ones.
        self._raw = batch._buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> DefaultRecord:
        unpack(self._batch)
        return next(self._batch)

    def __iter__(self) -> Iterator[DefaultRecord]:
        try:
            self._unpacked.size += unpack(self._batch)
            records = list(self._batch)
        except MemoryError:
            raise
        except Exception as error:
            # Not chained: what was not understood may be a message.
            if not DefaultRecordBatch(self._raw).validate_crc():
                raise CorruptRecordError("its checksum is wrong") from None
            records = [self._substitute(isinstance(error, TooMuchError))]
        self._unpacked.records += len(records)
        return iter(records)

    def _substitute(self, sound: bool) -> DefaultRecord:
        """Return the record that stands for the batch; with its time if its header is sound."""
        batch, raw = self._batch, bytes(self._raw)
        kind = batch.timestamp_type if sound else _SENDERS_TIME
        # A time that the broker sets is that of all records.
        time = batch.max_timestamp if kind else batch.first_timestamp
        return DefaultRecord(len(raw), batch.base_offset, time, kind, None, raw, [])


def unpack(batch: Any) -> int:
    """Decompress a batch in place, if it is not yet, and return how many bytes it has then.

    Raises TooMuchError if it has too many records, or becomes too large, CorruptRecordError if it
    has too many headers, or its bytes are no batch's, and UnsupportedCodecError if its compression
    is never read here, whatever is installed.
    """
    if batch.records_count > MOST_RECORDS:
        raise TooMuchError("too many records")
    codec = batch.compression_type
    if not batch._decompressed and codec != DefaultRecordBatch.CODEC_NONE:
        packed = bytes(memoryview(batch._buffer)[batch._pos :])
        unpacked = _decompressed(codec, packed)
        if len(unpacked) > _SUSPICIOUS * len(packed):
            _check_headers(unpacked, batch.records_count)
        batch._buffer, batch._pos = unpacked, 0
    batch._decompressed = True
    return len(batch._buffer)


def _check_headers(unpacked: bytearray, records: int) -> None:
    """Refuse records with too many headers; they are parsed as kafka-python would."""
    at = 0
    left = MOST_HEADERS + MOST_HEADERS_EACH * records
    try:
        for _ in range(records):
            length, at = util.decode_varint(unpacked, at)
            end = at + length
            # Attributes, time and offset.
            for _ in range(3):
                _, at = util.decode_varint(unpacked, at)
            for _ in range(2):
                size, at = util.decode_varint(unpacked, at)
                at += max(size, 0)
            headers, at = util.decode_varint(unpacked, at)
            left -= headers
            if left < 0 or headers < 0 or not at <= end <= len(unpacked):
                raise CorruptRecordError("too many headers, or no records")
            at = end
    except (IndexError, ValueError):
        raise CorruptRecordError("no records") from None


def _decompressed(codec: int, packed: bytes) -> bytearray:
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
