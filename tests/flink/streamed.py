"""A job on Flink, the topics around it, and what befalls both."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pipelines.flink.jobfolder import JobFolder
from pipelines.flink.launch import Asked, submit
from pipelines.flink.preflight import stay_of
from pipelines.flink.rest import JobManager

from benchmarks.soak.checker import spread
from benchmarks.soak.decoded import windows_of
from benchmarks.soak.fleet import METRICS, RUNGS, Fleet
from deploy.flink.cluster import LocalFlink
from deploy.kafka.broker import LocalBroker
from pipelines.drain import drain
from pipelines.published import (
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
    parse,
)
from pipelines.results import ESTIMATES, PERIODS, WINDOWS, Results, of_state
from pipelines.topic import KafkaTopics
from sotto.brokers import Broker
from sotto.registry import Registry
from sotto.sinktopics import SinkTopic
from sotto.topicadmin import connected
from sotto.topics import ReportTopic

#: How long anything may take on a machine that has much else to do, in seconds.
PATIENCE = 240
PARTITIONS = 4


@dataclass
class World:
    """A topic of a fleet's reports and a job that counts them."""

    local: LocalBroker
    session: LocalFlink
    fleet: Fleet
    folder: Path
    name: str = "streamed"
    sent: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.broker = Broker.from_file(self.local.client_file)
        self.topic = ReportTopic(self.name, 1, PARTITIONS)
        self.job = JobFolder(self.folder / "job")

    def make_topics(self) -> None:
        registry = Registry([self.fleet.plan])
        with connected(self.broker) as topics:
            topics.create(self.topic, 1, registry.horizon)
            for kind in ("estimates", "quarantine"):
                topics.create_sink(SinkTopic(self.name, kind), 1, 1, stay_of(registry))

    def asked(self, **changes: object) -> Asked:
        said: dict[str, object] = {
            "plans": [self.fleet.plan],
            "candidates": {},
            "broker": self.local.client_file,
            "topics": [self.topic],
            "flink": self.session.address,
            "checkpoint_every": 1_000,
            "every": 500,
            "quiet": 1_000,
            "environment": self.session.client,
        }
        return Asked(**{**said, **changes})  # type: ignore[arg-type]

    def submit(self, **changes: object) -> str:
        return submit(self.job, self.asked(**changes))

    @property
    def manager(self) -> JobManager:
        return JobManager(self.session.address)

    def publish(self, devices: Iterable[int], rung: int) -> None:
        """Send the messages of a rung and note them; they are acknowledged."""
        messages = [(device, *self.fleet.message(device, rung)) for device in devices]
        self.produce((self.topic.partition(shard), value) for _, shard, value in messages)
        for device, _, _ in messages:
            self.sent[device] = self.sent.get(device, 0) | 1 << rung

    def produce(self, values: Iterable[tuple[int, bytes | None]]) -> None:
        options = {"compression_type": "zstd", "max_request_size": 1 << 30}
        producer = KafkaProducer(**self.broker.options(30), **options)
        for partition, value in values:
            producer.send(str(self.topic), value, key=b"key", partition=partition)
        producer.flush(30)
        producer.close()

    @property
    def reports(self) -> int:
        return METRICS * sum(rungs.bit_count() for rungs in self.sent.values())

    def records(self, kind: str) -> list:
        """Return all records of a topic beside the reports'."""
        consumer = KafkaConsumer(**self.broker.options(30))
        partition = TopicPartition(str(SinkTopic(self.name, kind)), 0)
        try:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            end = consumer.end_offsets([partition])[partition]
            found: list = []
            while consumer.position(partition) < end:
                for records in consumer.poll(timeout_ms=200).values():
                    found += records
        finally:
            consumer.close()
        return found

    def documents(self) -> list[Document]:
        """Return the newest document of every key."""
        newest: dict[bytes, Document] = {}
        for record in self.records("estimates"):
            document = parse(record.key, record.value)
            known = newest.get(record.key)
            if known is None or known.revision <= document.revision:
                newest[record.key] = document
        return list(newest.values())

    def until_counted(self) -> list[Document]:
        """Return the documents once all that was sent is in them, each device once."""

        def complete() -> list[Document] | None:
            documents = self.documents()
            healths = [each for each in documents if isinstance(each, HealthDocument)]
            if not healths or healths[0].health["reports"] < self.reports:
                return None
            return documents if self.newest(documents) == self.expected() else None

        return until(complete, lambda: f"not counted: {self.told()}")

    def newest(self, documents: Iterable[Document]) -> dict[tuple[int, int], int]:
        """Return the counts of every metric of every device, summed over rungs and by rung."""
        windows = [each for each in documents if isinstance(each, WindowDocument)]
        dense, stray = spread(windows_of(windows, self.fleet), self.fleet, max(self.sent) + 1)
        assert stray == 0
        assert dense.min() >= 0
        assert dense.sum(axis=2).max() <= 1
        return Counter(
            {
                (device, rung): int(dense[:, device, rung].sum())
                for device in self.sent
                for rung in range(RUNGS)
                if dense[:, device, rung].any()
            }
        )

    def expected(self) -> dict[tuple[int, int], int]:
        return Counter(
            {(device, rungs.bit_length() - 1): METRICS for device, rungs in self.sent.items()}
        )

    def told(self) -> str:
        known = self.job.known
        try:
            job = self.manager.job(known.id)
            return f"{job} {self.manager.failure(known.id)}"
        except Exception as error:
            return f"{error}"

    def drained(self) -> tuple[dict[str, list[dict[str, object]]], dict[str, int]]:
        """Return what a drain of the same topic writes to its database, and what it rejects."""
        state = self.folder / "state"
        result = drain(KafkaTopics(self.broker, [self.topic]), state, [self.fleet.plan])
        with Results(of_state(state), create=False) as results:
            tables = {
                table.name: [
                    {name: value for name, value in row.items() if name != "revision"}
                    for row in results.table(table)
                ]
                for table in (WINDOWS, ESTIMATES, PERIODS)
            }
        return tables, dict(result.rejects)


def streamed(documents: Iterable[Document]) -> dict[str, list[dict[str, object]]]:
    """Return documents as the rows of the database that a drain writes."""
    tables: dict[str, list[dict[str, object]]] = {"windows": [], "estimates": [], "periods": []}
    for each in documents:
        if isinstance(each, WindowDocument):
            tables["windows"].append(dict(each.window))
            tables["estimates"] += map(dict, each.estimates)
        elif isinstance(each, PeriodDocument):
            tables["periods"].append(dict(each.period))
    for rows in tables.values():
        for row in rows:
            row.pop("revision", None)
    return tables


def rejects_of(documents: Iterable[Document]) -> dict[str, int]:
    """Return the rejected reports by reason."""
    (found,) = (each for each in documents if isinstance(each, RejectsDocument))
    return dict(found.rejects)


def in_order(rows: Iterable[dict[str, object]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def until(look: Callable, words: Callable[[], str]) -> object:
    """Return what a look gives once it gives something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, words()
        time.sleep(0.3)
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
