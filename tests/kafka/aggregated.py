"""Operations on a topic of reports: append anything, change settings, aggregate all."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from clientsdk import Broker
from clientsdk.testing import small_plan
from pipelines.bounded.run import RunResult, aggregate
from pipelines.sources.kafka import KafkaTopics
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic

#: Reports that a run of these tests takes at most.
MAX_REPORTS = 30
#: Seconds for anything that a broker does, on a machine that has much else to do.
PATIENCE = 300
_numbers = itertools.count()


def produce(broker: Broker, topic: ReportTopic, *values: bytes | None, partition: int = 0) -> None:
    producer = KafkaProducer(**broker.options(PATIENCE))
    for value in values:
        producer.send(str(topic), value, key=b"key", partition=partition)
    producer.flush(PATIENCE)
    producer.close()


def aggregated(broker: Broker, topic: ReportTopic, state: Path, **options: object) -> RunResult:
    options = {"max_reports": MAX_REPORTS, **options}
    source = KafkaTopics(broker, [topic])
    return aggregate(source, state, [small_plan()], **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(**broker.options(PATIENCE))
    try:
        yield made
    finally:
        made.close()


def configure(broker: Broker, topic: object, name: str, value: str) -> None:
    """Change a setting of a topic."""
    with admin(broker) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, str(topic), {name: value})
        client.alter_configs([resource])


def new_topic(broker: Broker, partitions: int = 4) -> ReportTopic:
    """Make a topic of its own for a test."""
    topic = ReportTopic(f"test{next(_numbers)}", 1, partitions)
    with connected(broker) as topics:
        topics.create(topic, replicas=1, retention=small_plan().horizon)
    return topic


def read_all(broker: Broker, topic: object, group: str | None = None) -> list[Any]:
    """Return all records of a topic, partition by partition."""
    reading = {
        "group_id": group,
        "enable_auto_commit": False,
        "request_timeout_ms": PATIENCE * 1000,
    }
    consumer = KafkaConsumer(**broker.options(PATIENCE), **reading)
    try:
        # A topic that may not be seen has no partitions, and reading says why.
        numbers = consumer.partitions_for_topic(str(topic)) or {0}
        partitions = [TopicPartition(str(topic), number) for number in sorted(numbers)]
        found: dict[TopicPartition, list[Any]] = {partition: [] for partition in partitions}
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        if group is not None:
            consumer.committed(partitions[0])
        deadline = time.monotonic() + PATIENCE
        while any(consumer.position(at) < end for at, end in ends.items()):
            assert time.monotonic() < deadline
            for partition, records in consumer.poll(timeout_ms=200).items():
                found[partition] += records
    finally:
        consumer.close()
    return [record for partition in partitions for record in found[partition]]
