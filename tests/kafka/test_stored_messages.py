"""Nothing that a broker stores joins two pseudonyms of a device: its segment files are read."""

from __future__ import annotations

import time

import pytest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from messages import message, pseudonym

from clientsdk import KafkaPublisher
from clientsdk.testing import FakeClock, SeededClient, small_plan
from sotto.kafka import producers
from sotto.wire.format import decode_message, pseudonym_of

pytestmark = pytest.mark.slow


def day(client, patience):
    """Record a value, send what is due some hours later, for so many seconds at most; end the day.

    Returns how many reports were sent, and the error of the last attempt.
    """
    client.record("colour", "red")
    client.clock.advance(hours=3)
    deadline = time.monotonic() + patience
    result = client.flush()
    sent = result.sent
    while result.error is not None and time.monotonic() < deadline:
        result = client.flush()
        sent += result.sent
    client.clock.advance(hours=21)
    return sent, result.error


def stored(folder, topic):
    """Return batches with their records, as they are in a broker's folder.

    Records have the times that their senders gave them: that of the broker is taken away.
    """
    found = []
    for partition in range(topic.partitions):
        for path in sorted((folder / "data" / f"{topic}-{partition}").glob("*.log")):
            data, at = bytearray(path.read_bytes()), 0
            while at < len(data):
                data[at + 22] &= ~DefaultRecordBatch.TIMESTAMP_TYPE_MASK
                at += 12 + int.from_bytes(data[at + 8 : at + 12])
            batches = MemoryRecords(bytes(data))
            while (batch := batches.next_batch()) is not None:
                found.append((batch, list(batch)))
    return found


def assert_joins_nothing(batches):
    """No batch and nothing in its header or beside its values covers two pseudonyms."""
    for batch, records in batches:
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
        assert all((record.key, record.headers) == (None, []) for record in records)
        assert len({pseudonym_of(record.value) for record in records}) == 1
        # The sender's clock is in none of it.
        assert {batch.first_timestamp, *(record.timestamp for record in records)} == {0}


def test_stored_batches_of_a_device_over_several_periods_and_an_outage(local, broker, topic):
    publisher = KafkaPublisher(broker, topic, timeout=4)
    clock = FakeClock()
    client = SeededClient(small_plan(), seed=3, clock=clock, publisher=publisher, leaks_values=True)
    # From the second day on a flush sends what is due under two pseudonyms.
    assert [day(client, patience=300) for _ in range(4)] == [(each, None) for each in (1, 2, 2, 2)]
    local.stop()
    for _ in range(2):
        sent, error = day(client, patience=0)
        assert (sent, error is None) == (0, False)
    local.start()
    deadline = time.monotonic() + 300
    while (result := client.flush()).error is not None:
        assert time.monotonic() < deadline
    assert result.sent >= 2  # every draw: two days' reports waited.
    publisher.close()
    batches = stored(local.folder, topic)
    assert_joins_nothing(batches)
    messages = [record.value for _, records in batches for record in records]
    assert len(set(map(pseudonym_of, messages))) == 6
    runs = [run for each in messages for run in decode_message(each).groups]
    assert len({row.event for run in runs for row in run.rows}) == 6


def test_stored_batches_of_many_who_share_a_publisher(local, broker, topic):
    """Messages of one partition, which a producer would put into one batch."""
    publisher = KafkaPublisher(broker, topic, timeout=600)
    for number in range(24):
        publisher.publish(0, message(bytes([number]), pseudonym(number % 6)))
    publisher.close()
    batches = stored(local.folder, topic)
    assert_joins_nothing(batches)
    assert sum(len(records) for _, records in batches) == 24


def test_the_files_show_what_an_idempotent_producer_would_leave(local, broker, topic):
    """The link between batches can be seen: batches of all pseudonyms share a producer's number."""
    producer = producers.make_producer(broker, 300, batch=1 << 14, largest=1 << 20)
    for number in range(2):
        sent = message(pseudonym=pseudonym(number))
        producer.send(str(topic), sent, partition=0).get(300)
    producers.end_producer(producer)
    batches = stored(local.folder, topic)
    (joined,) = {batch.producer_id for batch, _ in batches}
    assert joined != -1
    assert [batch.base_sequence for batch, _ in batches] == [0, 1]
    with pytest.raises(AssertionError):
        assert_joins_nothing(batches)
