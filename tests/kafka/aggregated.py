"""What is done to a topic of reports: anything appended, settings changed, all aggregated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

# What a state directory holds is told in the folder of the runs' own tests.
from committed_states import committed, projected
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from clientsdk import Broker
from clientsdk.testing import small_plan
from pipelines.bounded.run import RunResult, aggregate
from pipelines.sources.kafka import KafkaTopics
from pipelines.storage.manifest import Manifest
from sotto.kafka.topics import ReportTopic

#: Reports that a run of these tests takes at most.
MAX_REPORTS = 30


def produce(broker: Broker, topic: ReportTopic, *values: bytes | None, partition: int = 0) -> None:
    producer = KafkaProducer(**broker.options(10))
    for value in values:
        producer.send(str(topic), value, key=b"key", partition=partition)
    producer.flush(10)
    producer.close()


def aggregated(broker: Broker, topic: ReportTopic, state: Path, **options: object) -> RunResult:
    options = {"max_reports": MAX_REPORTS, **options}
    accept_loss = bool(options.pop("accept_loss", False))
    source = KafkaTopics(broker, [topic], accept_loss)
    return aggregate(source, state, [small_plan()], **options)  # type: ignore[arg-type]


def contents(state: Path) -> tuple[dict[str, bytes], dict[str, list[dict[str, object]]]]:
    """Return all that a run leaves but what says where it came from."""
    files = committed(state)
    manifest = Manifest.from_json(files.pop("MANIFEST.json"))
    tables = projected(state)
    for row in tables["meta"]:
        assert row.pop("lineage") == manifest.digest(manifest.generation)
    return files, tables


@contextlib.contextmanager
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(**broker.options(10))
    try:
        yield made
    finally:
        made.close()


def configure(broker: Broker, topic: object, name: str, value: str) -> None:
    """Change a setting of a topic."""
    with admin(broker) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, str(topic), {name: value})
        client.alter_configs([resource])
