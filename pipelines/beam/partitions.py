"""What a streaming pipeline reads: partitions of topics, or lanes of the embedded log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from pipelines.sinks.quarantine_records import AHEAD
from pipelines.sources.base import EmbeddedLog
from pipelines.sources.partition import PADDING, TopicBlock, lost, timed_block
from pipelines.sources.records import Partition, Piece, Reader
from sotto.clocks import now_ms
from sotto.errors import AggregationError, BrokerError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.sinktopics import SinkTopic
from sotto.kafka.topics import FoundTopic
from sotto.log.reader import Block, Corrupt


class GoneError(AggregationError):
    """A partition that has been read is not there any more."""


class OpenPartition(Protocol):
    """A partition that a worker reads, with its connection."""

    def bounds(self) -> tuple[int, int]:
        """Return the position of the first record that is there, and that after the last."""
        ...

    def read(self, start: int, stop: int, clock: int) -> Block | None:
        """Return the records from a position on, as many as one request gives; None for none.

        Parameters
        ----------
        start, stop : int
            Records from ``stop`` on are left.
        clock : int
            The append time of the record before, ms: none is given an earlier one.
        """
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class Partitions(Protocol):
    """Everything that a pipeline reads of one kind; crosses Beam pickled."""

    @property
    def given_back(self) -> bool:
        """Whether records bear the time at which they were first appended, and were judged."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of the partitions that there are now."""
        ...

    def open(self, name: str) -> OpenPartition:
        """Return a partition, to be read by one thread at a time."""
        ...


@dataclass(frozen=True)
class ReportTopics:
    """The partitions of all epochs of a name, also of those that come later.

    Parameters
    ----------
    broker : Broker
    name : str
    epoch : int
        The first one that is read.
    """

    broker: Broker
    name: str
    epoch: int
    given_back = False

    def names(self) -> Sequence[str]:
        with connected(self.broker) as topics:
            epochs = [each for each in topics.epochs(self.name) if each.epoch >= self.epoch]
            found = {str(topic): topics.find(topic) for topic in epochs}
        return _partitions(found)

    def open(self, name: str) -> OpenPartition:
        return _OpenTopicPartition(name, self.broker, self.given_back)


@dataclass(frozen=True)
class RequeueTopic:
    """The partitions of the topic of what is given back, once there is one.

    Parameters
    ----------
    broker : Broker
    topic : str
    """

    broker: Broker
    topic: str
    given_back = True

    def names(self) -> Sequence[str]:
        with connected(self.broker) as topics:
            try:
                found = {self.topic: topics.find_sink(SinkTopic.parse(self.topic))}
            except BrokerError:
                return ()
        return _partitions(found)

    def open(self, name: str) -> OpenPartition:
        return _OpenTopicPartition(name, self.broker, self.given_back)


def _partitions(topics: Mapping[str, FoundTopic]) -> list[str]:
    """Return names of partitions: topic, its id, number. A topic made again has another id."""
    return [
        f"{topic}@{found.id}/{number}"
        for topic, found in topics.items()
        for number in range(found.partitions)
    ]


class _OpenTopicPartition:
    def __init__(self, name: str, broker: Broker, given_back: bool) -> None:
        self._name = name
        topic, _, number = name.rpartition("/")
        topic, _, id = topic.partition("@")
        _check_same(broker, topic, id)
        self._partition = Partition(topic, int(number))
        self._reader = Reader(broker)
        self._given_back = given_back

    def bounds(self) -> tuple[int, int]:
        return self._reader.bounds([self._partition])[self._partition]

    def read(self, start: int, stop: int, clock: int) -> Block | None:
        piece = self._reader.poll(self._partition, start)
        if piece is None:
            return None
        if piece.start > start:
            raise AggregationError(lost(self._name, start, piece.start))
        piece = piece.cut(start, stop)
        return _first_times(piece, clock) if self._given_back else timed_block(piece, clock)

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True)
class LogPartitions:
    """Lanes of the embedded log.

    Parameters
    ----------
    path : str
        The log's folder, which all workers reach.
    """

    path: str
    given_back = False

    def names(self) -> Sequence[str]:
        return [lane.name for lane in EmbeddedLog(Path(self.path)).lanes({})]

    def open(self, name: str) -> OpenPartition:
        return _OpenLane(Path(self.path), name)


class _OpenLane:
    def __init__(self, log: Path, name: str) -> None:
        self._lane = EmbeddedLog(log).lane(name)

    def bounds(self) -> tuple[int, int]:
        return 0, self._lane.end(0)

    def read(self, start: int, stop: int, clock: int) -> Block | None:
        end = min(self._lane.end(start), stop)
        return next(self._lane.blocks(start, end, clock), None) if end > start else None

    def close(self) -> None:
        pass


@lru_cache(maxsize=1024)
def _check_same(broker: Broker, topic: str, id: str) -> None:
    """Refuse a topic that was deleted and made again: offsets are of records that are gone."""
    with connected(broker) as topics:
        found = topics.id_of(topic)
        if not found:
            raise GoneError(
                f"topic {topic} is not there any more, and was not read to its end: what it had "
                "left is lost; start the pipeline anew, which counts what is there"
            )
        if found != id:
            raise AggregationError(
                f"topic {topic} was deleted and made again since the pipeline has read it: it "
                "would go on behind records that it has never read; start it anew"
            )


def _first_times(piece: Piece, clock: int) -> Block:
    """Return records with the times that their sender gives them.

    Damage is what has the broker's, or one that has not come: a period of such would never end.
    """
    sound = ~piece.appended & (piece.times <= now_ms() + AHEAD)
    corrupt = tuple(
        Corrupt(int(piece.offsets[at]), clock, piece.data[piece.at[at] : piece.at[at + 1]])
        for at in np.flatnonzero(~sound).tolist()
    )
    return TopicBlock(
        position=piece.start,
        buffer=piece.data + PADDING,
        offsets=piece.at[:-1][sound],
        lengths=np.diff(piece.at)[sound],
        append=piece.times[sound],
        corrupt=corrupt,
        end=piece.end,
        clock=clock,
        positions=piece.offsets[sound],
    )
