"""What of a log, or of topics, a job has not taken; found without a lock, and without taking it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from pipelines.exporter.sources import MissingError
from pipelines.sources.base import Lane, Source
from pipelines.sources.records import Partition, Reader
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.sinktopics import SinkTopic
from sotto.kafka.topics import ReportTopic
from sotto.log.reader import EARLIEST, LogReader, partitions
from sotto.plan.registry import Registry

#: So many bytes are looked at, over all lanes; the number of records beyond is extrapolated.
LOOK_BYTES = 32 << 20
_LEAST_LOOK = 256 << 10
#: The same of topics, whose records take longer to read than a log's index.
TOPIC_LOOK_BYTES = 4 << 20


class Progress(NamedTuple):
    """How far a streaming job has read a partition.

    Attributes
    ----------
    offset : int
        Of the record that it takes next.
    records : int
        That it has not taken.
    """

    offset: int
    records: int


@dataclass(frozen=True)
class Lag:
    """What is not taken.

    Parameters
    ----------
    size : int or None
        Bytes; None where nobody counts them.
    records : int
        Extrapolated where a lane has too many to look at.
    lanes : int
        Lanes that have any of it.
    oldest : int or None
        Append time of the oldest record, ms; None for none.
    partitions : mapping of str to Progress
        By partition, ``TOPIC/NUMBER``; of streaming jobs alone, which read each partition apart.
    """

    size: int | None = 0
    records: int = 0
    lanes: int = 0
    oldest: int | None = None
    partitions: Mapping[str, Progress] = field(default_factory=dict)


class Watched(Protocol):
    """What a job aggregates, as it looks from outside."""

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return what is beyond the positions up to which lanes are taken.

        Parameters
        ----------
        taken : mapping
            Lane to position.
        registry : Registry or None
            The plans of the job's last run.

        Raises
        ------
        MissingError
            There is nothing to look at yet.
        AggregationError, BrokerError
            It cannot be known.
        """
        ...


class WatchedLog:
    """A log whose lag is read again and again.

    Parameters
    ----------
    path : path
        The log's directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: dict[str, int] = {}

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return what is beyond the positions up to which lanes are taken."""
        if not self.path.is_dir():
            raise MissingError(f"there is no log in {self.path}")
        found = partitions(self.path)
        look = max(LOOK_BYTES // max(len(found), 1), _LEAST_LOOK)
        return total([self._of_lane(lane, taken.get(lane.name, 0), look) for lane in found])

    def _of_lane(self, lane: Path, taken: int, look: int) -> Lag:
        reader = LogReader(lane)
        end = reader.end(max(taken, self._ends.get(lane.name, 0)))
        self._ends[lane.name] = end
        start = max(taken, reader.begin())
        if end <= start:
            return Lag()
        looked = min(end, start + look)
        index = reader.index(start, looked)
        records = len(index.position)
        if not records and not len(index.corrupt):
            # The header of a segment without records.
            return Lag()
        if looked < end:
            records = round(records * (end - start) / (looked - start))
        oldest = int(index.append[0]) if len(index.append) else None
        return Lag(end - start, records, 1, oldest)


class WatchedTopics:
    """Topics whose lag is read again and again; their records are counted, not their bytes.

    Offsets are not records: where a transaction ended, was aborted, or a topic was compacted,
    there are offsets without any, which no run ever takes. So records are read to be counted,
    up to a limit.

    Parameters
    ----------
    source : Source
        The topics, for this alone.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._opened: Registry | None = None

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return what is beyond the positions up to which lanes are taken."""
        if registry is None:
            raise MissingError("nothing has been aggregated, so that the plans are not known")
        try:
            if self._opened is not registry:
                self._source.open(registry)
                self._opened = registry
            found = self._source.lanes(taken)
            look = TOPIC_LOOK_BYTES // max(len(found), 1)
            return total([self._of_lane(lane, taken, look) for lane in found])
        finally:
            # A connection that idles between two scrapes would outlive what it leads to.
            self._source.close()

    def _of_lane(self, lane: Lane, taken: Mapping[str, int], look: int) -> Lag:
        start = taken.get(lane.name, lane.first())
        end = lane.end(start)
        # What a frozen lane has read is kept for a job that reads it again, and there is none.
        blocks = self._source.lane(lane.name).blocks(start, end, EARLIEST)
        looked = (
            _Looked(
                block.end,
                len(block.append) + len(block.corrupt),
                len(block.buffer),
                int(block.append[0]) if len(block.append) else None,
            )
            for block in blocks
        )
        return _behind(looked, start, end, look)


class WatchedStream:
    """Topics that a streaming job reads, whose lag is read again and again.

    Parameters
    ----------
    broker : Broker
    topics : sequence of ReportTopic
        Epochs of one name. What is given back is read by the job as well.
    """

    def __init__(self, broker: Broker, topics: Sequence[ReportTopic]) -> None:
        self._broker = broker
        self._topics = topics
        self._requeue = str(SinkTopic(topics[0].name, "requeue"))

    def lag(self, taken: Mapping[str, int]) -> Lag:
        """Return what is beyond the offsets up to which the job has read.

        Parameters
        ----------
        taken : mapping
            Partition, ``TOPIC@ID/NUMBER``, to the offset of the record that is read next, as the
            job's health says it.

        Raises
        ------
        MissingError
            A topic is not there.
        BrokerError
            The broker does not answer.
        """
        with connected(self._broker) as found:
            ids = {str(topic): found.id_of(str(topic)) for topic in self._topics}
            requeue = found.id_of(self._requeue)
        if missing := [topic for topic, id in ids.items() if not id]:
            raise MissingError(f"there is no topic {missing[0]}")
        names = {
            f"{topic}@{ids[str(topic)]}/{number}": Partition(str(topic), number)
            for topic in self._topics
            for number in range(topic.partitions)
        }
        for name in taken:
            given_back, _, number = name.rpartition("/")
            if given_back == f"{self._requeue}@{requeue}":
                names[name] = Partition(self._requeue, int(number))
        with closing(Reader(self._broker)) as reader:
            bounds = reader.bounds(list(names.values()))
            look = TOPIC_LOOK_BYTES // len(names)
            lags, partitions = [], {}
            for name, partition in names.items():
                first, end = bounds[partition]
                start = max(taken.get(name, 0), first)
                lag = _behind(_looked(reader, partition, start, end), start, end, look)
                lags.append(lag)
                partitions[f"{partition.topic}/{partition.number}"] = Progress(start, lag.records)
        return replace(total(lags), partitions=partitions)


class _Looked(NamedTuple):
    """What one look at a partition has found: up to where, and what there is."""

    end: int
    records: int
    size: int
    oldest: int | None


def _looked(reader: Reader, partition: Partition, start: int, end: int) -> Iterator[_Looked]:
    for piece in reader.pieces(partition, start, end, keep=False):
        if piece is None:
            # Deleted since its bounds were asked for; the next reading knows others.
            return
        oldest = int(piece.times[0]) if len(piece.times) else None
        yield _Looked(piece.end, len(piece.times), len(piece.data), oldest)


def _behind(looked: Iterator[_Looked], start: int, end: int, look: int) -> Lag:
    """Count records between two offsets; beyond so many bytes their number is extrapolated."""
    at, records, size, oldest = start, 0, 0, None
    for found in looked:
        at = found.end
        records += found.records
        size += found.size
        oldest = found.oldest if oldest is None else oldest
        if records and size >= look:
            break
    if not records:
        return Lag(None)
    if at < end:
        records = round(records * (end - start) / (at - start))
    return Lag(None, records, 1, oldest)


def total(behind: Sequence[Lag]) -> Lag:
    """Return what is not taken of several lanes together."""
    sizes = [one.size for one in behind if one.size is not None]
    times = [one.oldest for one in behind if one.oldest is not None]
    return Lag(
        size=sum(sizes) if len(sizes) == len(behind) else None,
        records=sum(one.records for one in behind),
        lanes=sum(one.lanes for one in behind),
        oldest=min(times, default=None),
    )
