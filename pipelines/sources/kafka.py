"""Kafka topics as sources: for aggregation runs, and for streaming jobs.

Offsets are positions. How far each partition has been read is committed with the counts, never in
Kafka. A partition's name contains the topic's id, ``TOPIC@ID/NUMBER``, so that a topic that was
deleted and created again is not taken for the former one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.sources.base import LATEST, GoneError, LostError, MissingError, Partition
from pipelines.sources.kafka_reader import PartitionId, Piece, Reader, header, reader_of
from pipelines.storage.intent import Intent, LastRecord
from sotto.errors import AggregationError, BrokerError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import FoundTopic, ReportTopic, SinkTopic
from sotto.log.reader import Block, Corrupt
from sotto.plan.registry import Registry

#: Seconds between two checks that a topic that is being read still has its id.
CHECKED_SECONDS = 60

_NAME = re.compile(r"(?P<topic>[^/@]+)@(?P<id>[^/@]+)/(?P<number>\d+)")
#: Decoding reads the first bytes of a message even if it has none.
_PADDING = bytes(8)


class PartitionName(NamedTuple):
    """A partition's topic, the topic's id, and the partition's number."""

    topic: str
    id: str
    number: int

    @classmethod
    def parse(cls, name: str) -> PartitionName:
        """Return the parts of a name."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise AggregationError(
                f"partition {name!r} is not of a topic: this state is of an embedded log"
            )
        return cls(match["topic"], match["id"], int(match["number"]))

    @classmethod
    def of(cls, topic: str, found: FoundTopic) -> list[PartitionName]:
        return [cls(topic, found.id, number) for number in range(found.partitions)]

    @property
    def partition(self) -> PartitionId:
        return PartitionId(self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic}@{self.id}/{self.number}"


@dataclass(frozen=True, eq=False)
class TopicBlock(Block):
    """Records of a partition of a topic, whose offsets may have gaps."""

    positions: NDArray[np.int64]  #: ndarray, shape (n,), int64; the records' offsets
    times: NDArray[np.int64]  #: ndarray, shape (n,), int64; as the broker has them, ms
    columns = (*Block.columns, "positions", "times")

    @property
    def begins(self) -> NDArray[np.int64]:
        return self.positions

    @property
    def ends(self) -> NDArray[np.int64]:
        return self.positions + 1

    def header(self, position: int) -> bytes:
        at = int(self.positions.searchsorted(position))
        first = int(self.offsets[at])
        return header(int(self.times[at]), self.buffer[first : first + int(self.lengths[at])])


class KafkaPartition:
    """A partition of a topic; see :class:`pipelines.sources.base.Partition`.

    ``accept_loss``: whether to go on if records have been deleted that were never read. ``frozen``
    ((int, int), optional): its bounds, if it was frozen. ``requeued``: as for
    :class:`pipelines.sources.base.ReportSource`. ``check``: called before each poll; raises an
    error if the topic was deleted and created again.
    """

    def __init__(
        self,
        name: PartitionName,
        reader: Reader,
        accept_loss: bool = False,
        frozen: tuple[int, int] | None = None,
        requeued: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = str(name)
        self._check = check
        self._partition = name.partition
        self._reader = reader
        self._accept_loss = accept_loss
        self._frozen = frozen
        self._block = requeued_block if requeued else timed_block

    def bounds(self, taken: int = 0, limit: int = LATEST, rough: bool = False) -> tuple[int, int]:
        return self._frozen or self._reader.bounds([self._partition])[self._partition]

    def blocks(self, start: int, end: int, clock: int, trusted: int = LATEST) -> Iterator[Block]:
        at = start
        while at < end:
            for piece in self._reader.pieces(self._partition, at, end):
                if piece is None:
                    block = self._gap(at, end, clock)
                else:
                    block = self._block(piece, clock, trusted)
                yield block
                at, clock = block.end, block.clock

    def poll(self, start: int, stop: int, clock: int, trusted: int = LATEST) -> Block | None:
        self._check()
        piece = self._reader.poll(self._partition, start)
        if piece is None:
            return None
        if piece.start > start:
            raise LostError(_lost(self.name, start, piece.start))
        return self._block(piece.cut(start, stop), clock, trusted)

    def header(self, position: int) -> bytes | None:
        piece = next(self._reader.pieces(self._partition, position, position + 1), None)
        return None if piece is None else piece.header(position)

    def close(self) -> None:
        self._reader.close()

    def _gap(self, start: int, end: int, clock: int) -> Block:
        """Return a block that stands for deleted records, if that loss is accepted."""
        first, _ = self._reader.bounds([self._partition])[self._partition]
        if not self._accept_loss or first <= start:
            raise AggregationError(_lost(self.name, start, first))
        none = np.zeros(0, dtype=np.int64)
        gone = (Corrupt(start, clock, b""),)
        return TopicBlock(start, b"", none, none, none, gone, min(first, end), clock, none, none)


def timed_block(piece: Piece, clock: int, trusted: int) -> Block:
    """Return a piece as a block with monotone append times.

    Records without the broker's time are damage; those from after ``trusted`` are from the future.
    """
    sound = piece.appended & (piece.times <= trusted)
    times = np.where(sound, piece.times, clock)
    if len(times):
        times[0] = max(clock, int(times[0]))
        times = np.maximum.accumulate(times)
    clock = int(times[-1]) if len(times) else clock
    return _block(piece, times, sound, piece.appended & ~sound, clock)


def requeued_block(piece: Piece, clock: int, trusted: int) -> Block:
    """Return a piece of requeued records as a block, with the append times that their sender set.

    Records with the broker's time are damage; those from after ``trusted`` are from the future,
    since their period would never end.
    """
    sound = ~piece.appended & (piece.times <= trusted)
    times = np.where(sound, piece.times, clock)
    return _block(piece, times, sound, ~piece.appended & ~sound, clock)


def _block(
    piece: Piece,
    times: NDArray[np.int64],
    sound: NDArray[np.bool_],
    future: NDArray[np.bool_],
    clock: int,
) -> TopicBlock:
    corrupt = tuple(
        Corrupt(
            int(piece.offsets[at]),
            int((piece.times if future[at] else times)[at]),
            piece.data[piece.at[at] : piece.at[at + 1]],
            bool(future[at]),
        )
        for at in np.flatnonzero(~sound).tolist()
    )
    return TopicBlock(
        position=piece.start,
        buffer=piece.data + _PADDING,
        offsets=piece.at[:-1][sound],
        lengths=np.diff(piece.at)[sound],
        append=times[sound],
        corrupt=corrupt,
        end=piece.end,
        clock=clock,
        positions=piece.offsets[sound],
        times=piece.times[sound],
    )


def _lost(name: str, taken: int, first: int) -> str:
    return (
        f"{name} begins at offset {first}, and {taken} is the next to be counted: records have "
        "been deleted uncounted, because retention is too short or nothing was counted for too "
        "long; restore them if you can, or go on without them with --accept-loss"
    )


class KafkaTopics:
    """Topics of reports as a source of aggregation runs; see :class:`BoundedSource`.

    ``topics``: at least one; several if they are epochs of one name, and older epochs still get
    messages. ``accept_loss``: whether to go on if the broker has deleted records that were never
    read; these are quarantined as one entry without bytes.
    """

    unit = "messages"
    label = "reports"
    requeued = False

    def __init__(
        self, broker: Broker, topics: Sequence[ReportTopic], accept_loss: bool = False
    ) -> None:
        if len({topic.name for topic in topics}) != 1:
            raise ParameterError("topics must be epochs of one name")
        self.broker = broker
        self.topics = tuple(sorted(set(topics), key=lambda topic: (topic.epoch, topic.partitions)))
        self.accept_loss = accept_loss
        self._found: dict[str, FoundTopic] = {}
        self._others: tuple[ReportTopic, ...] = ()

    @classmethod
    def from_url(cls, url: str) -> KafkaTopics:
        """Return one topic of a cluster in the clear; errors as of Broker.from_url."""
        broker, topic = Broker.from_url(url)
        return cls(broker, [ReportTopic.parse(topic)])

    def open(self, registry: Registry | None) -> None:
        """Check that all topics can be used for reports of these plans."""
        if registry is None:
            raise MissingError("nothing has been counted yet, so the plans are not known")
        with connected(self.broker) as topics:
            self._found = {
                str(topic): topics.check(topic, registry.horizon, reading=True)
                for topic in self.topics
            }
            epochs = topics.epochs(self.topics[0].name)
            self._others = tuple(topic for topic in epochs if str(topic) not in self._found)
        if not all(found.id for found in self._found.values()):
            raise BrokerError("the broker does not give its topics' ids: it is too old; upgrade it")

    def names(self) -> Sequence[str]:
        return [str(name) for name in self._names()]

    def partitions(self, taken: Mapping[str, int]) -> Sequence[Partition]:
        """Return all partitions, frozen at one moment."""
        names = self._names()
        bounds = self._reader.bounds([name.partition for name in names])
        known = {PartitionName.parse(name).topic for name in taken}
        frozen = []
        for name in names:
            first, end = bounds[name.partition]
            # If the topic was read before, this partition is at 0, or has an entry of its own.
            start = 0 if name.topic in known else first
            frozen.append(self._partition(name, (start, end)))
        return frozen

    def partition(self, name: str) -> Partition:
        return self._partition(PartitionName.parse(name))

    def check(self, ends: Mapping[str, int], last: Mapping[str, LastRecord]) -> None:
        """Raise AggregationError if topics cannot be those whose partitions were read."""
        names = {each: PartitionName.parse(each) for each in ends}
        for name in names.values():
            self._check_topic(name)
        current = {each: name for each, name in names.items() if name.topic in self._found}
        bounds = self._reader.bounds([name.partition for name in current.values()])
        for each, name in current.items():
            first, end = bounds[name.partition]
            self._check_range(each, first, end, ends[each])
            self._check_last(name, first, last.get(each))
        self._check_others(ends, {name.topic: name.id for name in names.values()})

    def make_durable(self, intent: Intent) -> None:
        """Do nothing: records that can be read are on as many brokers as the topic asks for."""

    def close(self) -> None:
        self._reader.close()

    @property
    def _reader(self) -> Reader:
        return reader_of(self.broker)

    def _names(self) -> list[PartitionName]:
        # Devices send to as many partitions as the name says, even if more were added.
        return [
            PartitionName(str(topic), self._found[str(topic)].id, number)
            for topic in self.topics
            for number in range(topic.partitions)
        ]

    def _partition(
        self, name: PartitionName, frozen: tuple[int, int] | None = None
    ) -> KafkaPartition:
        return KafkaPartition(name, self._reader, self.accept_loss, frozen)

    def _check_topic(self, name: PartitionName) -> None:
        if ReportTopic.parse(name.topic).name != self.topics[0].name:
            raise AggregationError(
                f"reports of topic {name.topic} have been counted here, and {self.topics[0]} is "
                "another one: give that, or another state directory"
            )
        found = self._found.get(name.topic)
        if found is not None and found.id != name.id:
            raise AggregationError(
                f"topic {name.topic} was deleted and created again since its reports were counted: "
                "its offsets now mean others; create the next epoch and have it sent to, or begin "
                "with a new state directory"
            )

    def _check_others(self, ends: Mapping[str, int], ids: Mapping[str, str]) -> None:
        """Raise AggregationError while another epoch that was read before has records left."""
        older = [
            PartitionName(str(topic), ids[str(topic)], number)
            for topic in self._others
            if str(topic) in ids
            for number in range(topic.partitions)
        ]
        bounds = self._reader.bounds([name.partition for name in older])
        for name in older:
            left = bounds[name.partition][1] - ends.get(str(name), 0)
            if left > 0:
                raise AggregationError(
                    f"{name} has {left} messages that have not been counted: "
                    f"give --topic {name.topic} too"
                )

    def _check_range(self, name: str, first: int, end: int, taken: int) -> None:
        if end < taken:
            raise AggregationError(
                f"{name} ends at offset {end}, but {taken} have been counted: the broker has lost "
                "what it had confirmed; create the next epoch and have it sent to"
            )
        if first > taken and not self.accept_loss:
            raise AggregationError(_lost(name, taken, first))

    def _check_last(self, name: PartitionName, first: int, found: LastRecord | None) -> None:
        if found is None or found.position < first:
            return
        if self._partition(name).header(found.position) not in (None, found.header):
            raise AggregationError(
                f"{name} has another record at offset {found.position} than the one that was "
                "counted: the broker has lost what it had confirmed; create the next epoch and "
                "have it sent to"
            )


@dataclass(frozen=True)
class _Streamed:
    """Topics as a source of a streaming job."""

    broker: Broker
    requeued: ClassVar[bool] = False

    def partition(self, name: str) -> Partition:
        parsed = PartitionName.parse(name)
        check = partial(self._check, parsed)
        check()
        return KafkaPartition(parsed, Reader(self.broker), requeued=self.requeued, check=check)

    def _check(self, name: PartitionName) -> None:
        _check_id(self.broker, name.topic, name.id, int(time.monotonic() / CHECKED_SECONDS))


@dataclass(frozen=True)
class ReportEpochs(_Streamed):
    """All epochs of a name, later ones included, as a source of a streaming job."""

    name: str
    first: int  #: the first epoch that is read
    label = "reports"

    def names(self) -> Sequence[str]:
        with connected(self.broker) as topics:
            epochs = [topic for topic in topics.epochs(self.name) if topic.epoch >= self.first]
            return [
                str(n) for topic in epochs for n in PartitionName.of(str(topic), topics.find(topic))
            ]


@dataclass(frozen=True)
class RequeueTopic(_Streamed):
    """The requeue topic, once it exists, as a source of a streaming job."""

    topic: str
    label = "requeued reports"
    requeued = True

    def names(self) -> Sequence[str]:
        """Return the names of the partitions; none while there is no such topic."""
        return list(map(str, partitions_of(self.broker, SinkTopic.parse(self.topic))))


def partitions_of(broker: Broker, topic: SinkTopic) -> list[PartitionName]:
    """Return the partitions of a topic beside those of reports; none while it does not exist."""
    with connected(broker) as topics:
        try:
            found = topics.find(topic)
        except BrokerError:
            return []
    return PartitionName.of(str(topic), found)


@lru_cache(maxsize=1024)
def _check_id(broker: Broker, topic: str, id: str, at: int) -> None:
    """Raise LostError if a topic was deleted and created again: its offsets mean other records.

    Raises GoneError if it does not exist. ``at``: a number that changes when the broker is to be
    asked again, since answers are cached.
    """
    with connected(broker) as topics:
        found = topics.id_of(topic)
    if not found:
        raise GoneError(
            f"topic {topic} does not exist any more, and was not read to its end: the records left "
            "in it are lost; start the pipeline anew, which counts what exists"
        )
    if found != id:
        raise LostError(
            f"topic {topic} was deleted and created again since the pipeline read it: the pipeline "
            "would go on after records that it has never read; start it anew, --from-scratch"
        )
