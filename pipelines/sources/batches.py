"""Batches of records that kafka-python cannot read, though the broker has taken them.

A broker looks at less of a batch than kafka-python does: a header whose name is not UTF-8, a
compression that is not read here, a few kilobytes that unpack to gigabytes. Whoever may write to a
topic could stop all who read it. Such a batch becomes one record with the bytes of the batch. If it
is only too large, that record has the batch's time, and a run finds it malformed, as it does any
message that is too long, however it was compressed. If it cannot be understood, it is without the
broker's time, which is damage to a run. One whose checksum is wrong as well is the broker's
fault, and an error.

Of what one request has brought no more is read once it has unpacked to as much as one batch may:
the rest is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from pipelines.sources import unpacking

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_SENDERS_TIME = 0


def tolerate(consumer: KafkaConsumer) -> None:
    """Let a consumer that has not read anything yet go on behind batches that it cannot read."""
    consumer._fetcher.PartitionRecords = _Records


class _Batch:
    """A batch, or the record that stands for it."""

    def __init__(self, batch: DefaultRecordBatch, taken: _Taken) -> None:
        self._batch = batch
        self._taken = taken
        # Reading a batch puts decompressed bytes in their place.
        self._raw = batch._buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> DefaultRecord:
        unpacking.unpack(self._batch)
        return next(self._batch)

    def __iter__(self) -> Iterator[DefaultRecord]:
        try:
            self._taken.size += unpacking.unpack(self._batch)
            records = list(self._batch)
        except MemoryError:
            raise
        except Exception as error:
            # Not chained: what was not understood may be a message.
            if not DefaultRecordBatch(self._raw).validate_crc():
                raise CorruptRecordError("its checksum is wrong") from None
            records = [self._instead(isinstance(error, unpacking.TooMuchError))]
        self._taken.records += len(records)
        return iter(records)

    def _instead(self, sound: bool) -> DefaultRecord:
        """Return the record that stands for the batch; with its time if its header is sound."""
        batch, raw = self._batch, bytes(self._raw)
        kind = batch.timestamp_type if sound else _SENDERS_TIME
        # Where the broker sets times, this is that of all records.
        time = batch.max_timestamp if kind else batch.first_timestamp
        return DefaultRecord(len(raw), batch.base_offset, time, kind, None, raw, [])


@dataclass
class _Taken:
    """What of one request's batches has been read: bytes, unpacked, and records."""

    size: int = 0
    records: int = 0

    @property
    def enough(self) -> bool:
        return self.size >= unpacking.MOST_BYTES or self.records >= unpacking.MOST_RECORDS


class _Batches:
    """Batches one after another, until they are enough."""

    def __init__(self, records: Any) -> None:
        self._records = records
        self._taken = _Taken()

    def next_batch(self) -> Any:
        """Return the next one; None behind the last."""
        if self._taken.enough:
            return None
        batch = self._records.next_batch()
        return _Batch(batch, self._taken) if isinstance(batch, DefaultRecordBatch) else batch


class _Records(Fetcher.PartitionRecords):
    """What one request has brought of a partition."""

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(tp, _Batches(records), *deserializers)
