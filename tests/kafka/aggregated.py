"""A topic with reports of real clients in it, and runs of it in processes that are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# What a state directory holds is told in the folder of the runs' own tests.
from committed_states import committed, projected
from kafka import KafkaProducer

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


def killed(client_file: str, topic: str, state: str, step: str, occurrence: int) -> None:
    """Run in this process, and let the system kill it at an occurrence of a step."""
    seen = 0

    def kill_at(found: str) -> None:
        nonlocal seen
        seen += found == step
        if seen == occurrence and found == step:
            os.kill(os.getpid(), signal.SIGKILL)

    broker = Broker.from_file(client_file)
    aggregated(broker, ReportTopic.parse(topic), Path(state), checkpoint=kill_at)
