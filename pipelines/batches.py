"""Batches of records that kafka-python cannot read, though the broker has taken them.

A broker looks at less of a batch than kafka-python does: a header whose name is not UTF-8, a
compression that is not installed here. Whoever may write to a topic could stop all who read it.
Such a batch becomes one record with the bytes of the batch and without the broker's time, which
is damage to a drain. One whose checksum is wrong as well is the broker's fault, and an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_SENDERS_TIME = 0


def tolerate(consumer: KafkaConsumer) -> None:
    """Let a consumer that has not read anything yet go on behind batches that it cannot read."""
    consumer._fetcher.PartitionRecords = _Records


class _Batch:
    """A batch, or the record that stands for it."""

    def __init__(self, batch: DefaultRecordBatch) -> None:
        self._batch = batch
        # Reading a batch puts decompressed bytes in their place.
        self._raw = batch._buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> DefaultRecord:
        return next(self._batch)

    def __iter__(self) -> Iterator[DefaultRecord]:
        try:
            records = list(self._batch)
        except MemoryError:
            raise
        except Exception:
            # Not chained: what was not understood may be a message.
            if not DefaultRecordBatch(self._raw).validate_crc():
                raise CorruptRecordError("its checksum is wrong") from None
            records = [self._instead()]
        return iter(records)

    def _instead(self) -> DefaultRecord:
        offset, time = self._batch.base_offset, self._batch.first_timestamp
        raw = bytes(self._raw)
        return DefaultRecord(len(raw), offset, time, _SENDERS_TIME, None, raw, [])


class _Batches:
    """Batches one after another."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        """Return the next one; None behind the last."""
        batch = self._records.next_batch()
        return _Batch(batch) if isinstance(batch, DefaultRecordBatch) else batch


class _Records(Fetcher.PartitionRecords):
    """What one request has brought of a partition."""

    def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(tp, _Batches(records), *deserializers)
