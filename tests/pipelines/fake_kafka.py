"""Topics in memory, and a consumer that reads them as kafka-python's would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError

from pipelines.sources import kafka
from pipelines.sources.kafka import KafkaTopics
from pipelines.sources.kafka_reader import Reader
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import FoundTopic, ReportTopic, SinkTopic
from sotto.log.reader import LogReader
from sotto.log.reader import partitions as log_partitions


class FakeRecord(NamedTuple):
    """A record as kafka-python gives it, as far as runs look at it."""

    offset: int
    timestamp: int
    value: bytes | None
    timestamp_type: int = 1


@dataclass
class FakePartition:
    """Records, and the offsets at which the partition begins and ends."""

    records: list[FakeRecord] = field(default_factory=list)
    first: int = 0
    end: int = 0

    def append(self, time: int, value: bytes | None, kind: int = 1, gap: int = 0) -> None:
        self.records.append(FakeRecord(self.end + gap, time, value, kind))
        self.end += gap + 1

    def delete_before(self, offset: int) -> None:
        self.records = [record for record in self.records if record.offset >= offset]
        self.first = offset


class FakeCluster:
    """A cluster with topics of reports.

    Attributes
    ----------
    batch : int
        Offsets that one request covers at most.
    fetches : list of (int, int)
        Partition and offset of all requests so far.
    silent : bool
        Whether nothing is answered.
    consumers : int
        How many have been made.
    """

    def __init__(self, *names: str) -> None:
        self.topics = {name: ReportTopic.parse(name) for name in names}
        self.ids = dict.fromkeys(names, "one")
        self.batch = 7
        self.fetches: list[tuple[int, int]] = []
        self.silent = False
        self.consumers = 0
        self.partitions = {
            TopicPartition(name, number): FakePartition()
            for name, parsed in self.topics.items()
            for number in range(parsed.partitions)
        }

    def partition(self, number: int, name: str | None = None) -> FakePartition:
        """Return a partition of the first topic, or of the one named."""
        return self.partitions[TopicPartition(name or next(iter(self.topics)), number)]

    def source(self, *names: str, accept_loss: bool = False) -> KafkaTopics:
        """Return topics as a source; all if none is named."""
        wanted = [self.topics[name] for name in names or self.topics]
        return KafkaTopics(Broker("fake:9092"), wanted, accept_loss)

    def check(self, wanted: ReportTopic, horizon: int, *, reading: bool) -> FoundTopic:
        return FoundTopic(wanted.partitions, 1, {}, self.ids[str(wanted)])

    def id_of(self, topic: str) -> str:
        return self.ids.get(topic, "")

    def find(self, topic: ReportTopic | SinkTopic) -> FoundTopic:
        if str(topic) not in self.ids:
            raise BrokerError(f"there is no topic {topic}")
        return FoundTopic(getattr(topic, "partitions", 1), 1, {}, self.ids[str(topic)])

    def epochs(self, name: str) -> tuple[ReportTopic, ...]:
        return tuple(
            found for text, found in self.topics.items() if found.name == name and text in self.ids
        )


class FakeConsumer:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.assigned: set[TopicPartition] = set()
        self.at: int | None = None

    def assign(self, wanted: list[TopicPartition]) -> None:
        self.assigned, self.at = set(wanted), None

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def seek(self, wanted: TopicPartition, offset: int) -> None:
        assert wanted in self.assigned
        self.at = offset

    def position(self, wanted: TopicPartition) -> int | None:
        assert wanted in self.assigned
        return self.at

    def beginning_offsets(
        self, wanted: list[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        return {each: self.cluster.partitions[each].first for each in wanted}

    def end_offsets(
        self, wanted: list[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        return {each: self.cluster.partitions[each].end for each in wanted}

    def offsets_for_times(
        self, wanted: dict[TopicPartition, int]
    ) -> dict[TopicPartition, FakeRecord | None]:
        return {
            each: next(
                (r for r in self.cluster.partitions[each].records if r.timestamp >= at), None
            )
            for each, at in wanted.items()
        }

    def highwater(self, wanted: TopicPartition) -> int | None:
        return self.cluster.partitions[wanted].end if self.at else None

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[FakeRecord]]:
        (wanted,) = self.assigned
        found = self.cluster.partitions[wanted]
        if self.at < found.first:
            raise OffsetOutOfRangeError({wanted: self.at})
        if self.cluster.silent:
            return {}
        self.cluster.fetches.append((wanted.partition, self.at))
        upto = min(self.at + self.cluster.batch, found.end)
        records = [each for each in found.records if self.at <= each.offset < upto]
        self.at = upto
        return {wanted: records} if records else {}

    def close(self, autocommit: bool, timeout_ms: int) -> None:
        self.assigned = set()


def install(patch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
    @contextmanager
    def connected(broker: Broker) -> Iterator[FakeCluster]:
        yield cluster

    def consumer(self: Reader) -> FakeConsumer:
        if self._made is None:
            cluster.consumers += 1
            self._made = FakeConsumer(cluster)
        return self._made

    patch.setattr(Reader, "_consumer", consumer)
    patch.setattr(kafka, "connected", connected)


def copied(log: Path, cluster: FakeCluster, gaps: Iterable[int] | None = None) -> None:
    """Put the lanes of a log into the partitions of a topic, with some offsets missing."""
    missing = iter(gaps or ())
    for number, lane in enumerate(log_partitions(log)):
        for record in LogReader(lane).records():
            cluster.partition(number).append(record.append, record.body, gap=next(missing, 0))
