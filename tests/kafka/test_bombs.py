"""A batch that becomes much larger than it is, on a real broker: told, and gone on behind."""

from __future__ import annotations

import pytest
from aggregated import aggregated
from kafka import KafkaProducer
from yesterday import publish

from sotto.kafka import client_internals

pytestmark = pytest.mark.slow

LARGE = 12 * client_internals.MOST_BYTES


def test_a_batch_that_becomes_too_large_stops_no_run(broker, topic, tmp_path):
    publish(broker, topic, 1)
    producer = KafkaProducer(
        **broker.options(30), compression_type="zstd", max_request_size=2 * LARGE
    )
    producer.send(str(topic), bytes(LARGE), partition=1).get(30)
    producer.close()
    publish(broker, topic, 1, first=1)
    result = aggregated(broker, topic, tmp_path)
    # Nothing was unpacked: it is what a message is that is not compressed, and too long.
    assert (result.tally.reports, result.rejects) == (4, {"malformed": 1})
    assert aggregated(broker, topic, tmp_path).runs == 0
