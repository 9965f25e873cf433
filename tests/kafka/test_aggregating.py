"""Aggregating topics of a real broker amid transactions."""

from __future__ import annotations

import pytest
from aggregated import PATIENCE, aggregated
from kafka import KafkaProducer
from yesterday import publish

pytestmark = pytest.mark.slow


def test_transactions_are_counted_once_they_are_committed(broker, topic, tmp_path):
    """Messages behind an open one wait, aborted ones are not counted, markers are passed."""
    publish(broker, topic, 2)
    # The broker ends a transaction that it takes for forgotten.
    options = {**broker.options(PATIENCE), "transaction_timeout_ms": 2 * PATIENCE * 1000}
    producer = KafkaProducer(transactional_id="test", **options)
    producer.init_transactions()
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        for partition in range(topic.partitions):
            producer.send(str(topic), value, partition=partition)
        producer.flush(PATIENCE)
        before = aggregated(broker, topic, tmp_path)
        assert (before.tally.reports, before.rejects) == (0 if commit else 4, {})
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()
    result = aggregated(broker, topic, tmp_path)
    assert (result.tally.reports, result.rejects) == (0, {"malformed": topic.partitions})
    assert aggregated(broker, topic, tmp_path).runs == 0
