"""The lag: what a job has not read of its log or topics, and a sink of its topic of estimates.

It is found without a lock. Records are read to be counted, since a position is no record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pipelines.exporter.arrivals import Arrival, ArrivalTimes
from pipelines.exporter.committed import Committed
from pipelines.exporter.readings import Reading, Status, read
from pipelines.sources.base import MissingError, Partition
from pipelines.sources.kafka import (
    KafkaPartition,
    KafkaTopics,
    PartitionName,
    ReportEpochs,
    RequeueTopic,
    partitions_of,
)
from pipelines.sources.kafka_reader import Reader
from sotto.clocks import now_ms
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.log.reader import EARLIEST, LogReader, partitions
from sotto.plan.registry import Registry

#: At most so many bytes are read of all partitions; the number of records beyond is extrapolated.
LOOK_BYTES = 32 << 20
_LEAST_LOOK = 256 << 10
#: The same limit for topics, whose records take longer to read than a log's.
TOPIC_LOOK_BYTES = 4 << 20


class Progress(NamedTuple):
    """How far a streaming job has read a partition."""

    offset: int  #: of the record that it reads next
    records: int  #: how many records it has not read


@dataclass(frozen=True)
class Lag:
    """How much has not been read."""

    size: int | None = 0  #: bytes; None for topics, whose bytes are not counted
    records: int = 0  #: how many records; extrapolated if a partition has too many to read
    lagging: int = 0  #: how many partitions have such records
    oldest: int | None = None  #: since when the oldest such record waits, ms; None for none
    #: The progress of a streaming job, by partition, ``TOPIC/NUMBER``.
    partitions: Mapping[str, Progress] = field(default_factory=dict)

    @classmethod
    def sum(cls, parts: Sequence[Lag]) -> Lag:
        """Return the lag of several partitions together."""
        sizes = [each.size for each in parts if each.size is not None]
        times = [each.oldest for each in parts if each.oldest is not None]
        return cls(
            size=sum(sizes) if len(sizes) == len(parts) else None,
            records=sum(each.records for each in parts),
            lagging=sum(each.lagging for each in parts),
            oldest=min(times, default=None),
        )


class _Waits:
    """Since when records wait: since their append time, or since they were first seen to wait.

    The earlier of the two counts. An append time ahead of the clock does not say when a record
    came, and then the other is used.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def since(self, partition: str, taken: int, appended: int | None) -> int:
        """Return since when records beyond ``taken`` wait, ms.

        ``appended``: their earliest append time, ms; None if it is not known.
        """
        seen = self._seen.get(partition)
        if seen is None or seen[0] != taken:
            seen = self._seen[partition] = taken, now_ms()
        return seen[1] if appended is None else min(seen[1], appended)

    def end(self, partition: str) -> None:
        """Forget a partition in which nothing waits."""
        self._seen.pop(partition, None)


class WatchedLog:
    """A log whose lag is read again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: dict[str, int] = {}
        self._waits = _Waits()

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return the lag beyond ``taken``, the positions up to which partitions are read."""
        if not self.path.is_dir():
            raise MissingError(f"there is no log in {self.path}")
        found = partitions(self.path)
        look = max(LOOK_BYTES // max(len(found), 1), _LEAST_LOOK)
        return Lag.sum([self._of(path, taken.get(path.name, 0), look) for path in found])

    def _of(self, path: Path, taken: int, look: int) -> Lag:
        reader = LogReader(path)
        end = reader.end(max(taken, self._ends.get(path.name, 0)))
        self._ends[path.name] = end
        start = max(taken, reader.begin())
        if end <= start:
            self._waits.end(path.name)
            return Lag()
        looked = min(end, start + look)
        # Blocks are not kept, since together they may be tens of megabytes.
        numbers: list[int] = []
        firsts: list[int] = []
        for block in reader.blocks(start, looked, trusted=now_ms()):
            numbers.append(len(block.append) + sum(each.future for each in block.corrupt))
            firsts += block.append[:1].tolist()
        if not numbers:
            # Only the header of a segment is there, and no records.
            return Lag()
        records = sum(numbers)
        if looked < end:
            records = round(records * (end - start) / (looked - start))
        appended = min(firsts, default=None)
        return Lag(end - start, records, 1, self._waits.since(path.name, taken, appended))


class WatchedTopics:
    """Topics whose lag is read again and again; their records are counted, not their bytes.

    Not every offset has a record: the ends of transactions, aborted transactions and compaction
    leave offsets that are never read. So records are read to be counted, up to a limit.

    ``source``: the topics; this object alone uses it.
    """

    def __init__(self, source: KafkaTopics) -> None:
        self._source = source
        self._waits = _Waits()
        self._arrivals = ArrivalTimes(source.broker)

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        # The broker would close a connection that idles between two scrapes.
        with closing(self._source):
            self._source.open(registry)
            frozen = self._source.partitions(taken)
            lags = []
            for each in frozen:
                first, end = each.bounds()
                # ``each`` is frozen, and would keep the records that it reads for a job.
                partition = self._source.partition(each.name)
                start = taken.get(each.name, first)
                lags.append(_lag_of(partition, start, end, len(frozen), self._waits))
        return Lag.sum(lags)

    def arrivals(self, registry: Registry | None) -> list[Arrival]:
        """Return when the newest record of each partition came."""
        with closing(self._source):
            self._source.open(registry)
            return self._arrivals.read(list(map(PartitionName.parse, self._source.names())))


#: Sources of aggregation runs, seen from outside.
Watched: TypeAlias = WatchedLog | WatchedTopics


class WatchedStream:
    """The topics of a name, later epochs and requeue included, that a streaming job reads."""

    def __init__(self, broker: Broker, topics: Sequence[ReportTopic]) -> None:
        self._broker = broker
        self._name = topics[0].name
        first = min(topic.epoch for topic in topics)
        self._waits = _Waits()
        self._arrivals = ArrivalTimes(broker)
        self._reports = ReportEpochs(broker, self._name, first)
        self._requeued = RequeueTopic(broker, str(SinkTopic(self._name, "requeue")))

    def lag(self, taken: Mapping[str, int]) -> Lag:
        """Return the lag beyond ``taken``: the job's next offsets, by ``TOPIC@ID/NUMBER``."""
        reports = self._reports.names()
        if not reports:
            raise MissingError(f"there is no topic of reports called {self._name}")
        requeued = {PartitionName.parse(each) for each in self._requeued.names()}
        names = [*map(PartitionName.parse, reports), *sorted(requeued)]
        lags, partitions = [], {}
        with closing(Reader(self._broker)) as reader:
            bounds = reader.bounds([name.partition for name in names])
            for name in names:
                first, end = bounds[name.partition]
                start = max(taken.get(str(name), 0), first)
                # Requeued records have the append time that their sender restored.
                partition = KafkaPartition(name, reader, True, requeued=name in requeued)
                lag = _lag_of(partition, start, end, len(names), self._waits)
                lags.append(lag)
                partitions[f"{name.topic}/{name.number}"] = Progress(start, lag.records)
        return replace(Lag.sum(lags), partitions=partitions)

    def arrivals(self) -> list[Arrival]:
        """Return when the newest record of each partition of reports came."""
        return self._arrivals.read(list(map(PartitionName.parse, self._reports.names())))


def _lag_of(partition: Partition, start: int, end: int, partitions: int, waits: _Waits) -> Lag:
    """Count the records of a partition between two offsets; read at most its share of bytes."""
    at, records, size, appended = start, 0, 0, None
    for block in partition.blocks(start, end, EARLIEST, now_ms()):
        at = block.end
        records += len(block.append) + len(block.corrupt)
        size += len(block.buffer)
        if appended is None and len(block.append):
            appended = int(block.append[0])
        if records and size >= TOPIC_LOOK_BYTES // partitions:
            break
    if not records:
        waits.end(partition.name)
        return Lag(None)
    if at < end:
        records = round(records * (end - start) / (at - start))
    return Lag(None, records, 1, waits.since(partition.name, start, appended))


def lag_of_runs(log: Watched, state: Reading[Committed]) -> Reading[Lag]:
    """Return the lag of aggregation runs; all records if nothing is committed yet."""
    if state.status not in (Status.OK, Status.MISSING):
        return Reading(Status.UNREADABLE, problem="it is not known how much of it is read")
    if state.value is None:
        return read(lambda: log.lag({}, None))
    taken, registry = state.value.manifest.positions, state.value.registry
    return read(lambda: log.lag(taken, registry))


def lag_of_stream(stream: WatchedStream, offsets: Mapping[str, int]) -> Lag:
    """Return the records that a streaming job has not read; MissingError before it reports any."""
    if not offsets:
        raise MissingError("the database does not have yet how far a job has read")
    return stream.lag(offsets)


@dataclass(frozen=True)
class Documents:
    """A topic of estimates."""

    newest: int | None  #: when the broker took the newest document, ms; None for none
    behind: int  #: how many offsets there are beyond those that the sink has written


class WatchedDocuments:
    """A topic of estimates that is described again and again."""

    def __init__(self, broker: Broker, topic: SinkTopic) -> None:
        self._broker = broker
        self._topic = topic
        self._arrivals = ArrivalTimes(broker)

    def read(self, taken: Mapping[tuple[str, int], int]) -> Documents:
        """Return the time of the newest document, and how far the sink is behind.

        ``taken``: the sink's next offsets.
        """
        names = partitions_of(self._broker, self._topic)
        if not names:
            raise MissingError(f"there is no topic {self._topic}")
        found = self._arrivals.read(names)
        offsets = [taken.get(name.partition, 0) for name in names]
        behind = [each.end - max(at, each.first) for at, each in zip(offsets, found, strict=True)]
        times = [each.newest for each in found if each.newest is not None]
        return Documents(max(times, default=None), sum(max(each, 0) for each in behind))
