"""The private parts of kafka-python that are relied on exist, and are what they were."""

from __future__ import annotations

import inspect

from kafka import KafkaConsumer, KafkaProducer
from kafka.consumer.fetcher import Fetcher
from kafka.producer.sender import Sender
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import decode_varint

from sotto.kafka import client_internals
from sotto.kafka.client_internals import TolerantRecords


def built() -> DefaultRecordBatch:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1000, None, b"value", [])
    return DefaultRecordBatch(bytes(builder.build()))


def test_the_fetcher_makes_records_of_the_class_that_it_has() -> None:
    """And asks them for one batch after another."""
    source = inspect.getsource(Fetcher)
    assert "self.PartitionRecords(" in source
    given = inspect.signature(Fetcher.PartitionRecords._unpack_records).parameters
    assert list(given)[:3] == ["self", "tp", "records"]
    assert "records.next_batch()" in inspect.getsource(Fetcher.PartitionRecords._unpack_records)
    assert issubclass(TolerantRecords, Fetcher.PartitionRecords)


def test_clients_have_the_parts_that_are_used() -> None:
    assert "self._fetcher = Fetcher(" in inspect.getsource(KafkaConsumer.__init__)
    made = inspect.getsource(KafkaProducer.__init__)
    for assigned in ("self._sender = Sender(", "self._closed = False"):
        assert assigned in made
    assert callable(KafkaProducer._unregister_cleanup)
    assert callable(Sender.force_close)
    # What is set when a producer is closed: closing again does nothing.
    assert "self._closed" in inspect.getsource(KafkaProducer.close)


def test_batches_keep_their_bytes_where_they_are_replaced() -> None:
    batch = built()
    raw = batch._buffer
    assert (batch._decompressed, bytes(raw[batch._pos :])[-6:-1]) == (False, b"value")
    assert client_internals.unpack(batch) == len(raw)
    assert batch._decompressed
    assert [record.value for record in batch] == [b"value"]
    assert decode_varint(bytearray(b"\x02"), 0) == (1, 1)
