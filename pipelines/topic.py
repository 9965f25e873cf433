"""Kafka topics of reports as a source of drains: every partition is a lane.

Offsets are positions. How far each partition has been taken is committed with what was counted,
never in Kafka. A lane's name has the topic's id in it, so that a topic that was deleted and made
again is not taken for the one it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.intent import Intent, Mark
from pipelines.lanes import Lane
from pipelines.partitions import Partition, Piece, Reader, reader_of
from sotto.brokers import Broker
from sotto.errors import BrokerError, DrainError, ParameterError
from sotto.logreader import Block, Corrupt
from sotto.registry import Registry
from sotto.topicadmin import connected
from sotto.topics import FoundTopic, ReportTopic

_LANE = re.compile(r"(?P<topic>[^/@]+)@(?P<id>[^/@]+)/(?P<number>\d+)")
#: Decoding looks at the first bytes of a message even if it has none.
_PADDING = bytes(8)


class _Name(NamedTuple):
    """What the name of a lane says."""

    topic: ReportTopic
    id: str
    number: int

    @classmethod
    def parse(cls, name: str) -> _Name:
        match = _LANE.fullmatch(name)
        if match is None:
            raise DrainError(f"lane {name!r} is not of a topic: this state is of an embedded log")
        return cls(ReportTopic.parse(match["topic"]), match["id"], int(match["number"]))

    @property
    def partition(self) -> Partition:
        return Partition(str(self.topic), self.number)

    def __str__(self) -> str:
        return f"{self.topic}@{self.id}/{self.number}"


@dataclass(frozen=True, eq=False)
class TopicBlock(Block):
    """Records of a partition; between two of them offsets may be missing.

    Attributes
    ----------
    positions : ndarray, shape (n,), int64
        The records' offsets.
    """

    positions: NDArray[np.int64]

    @property
    def begins(self) -> NDArray[np.int64]:
        """The offset of each record."""
        return self.positions

    @property
    def ends(self) -> NDArray[np.int64]:
        """The offset after each record."""
        return self.positions + 1


class _PartitionLane:
    """A partition; ``bounds`` are those at which it was frozen, if it was."""

    def __init__(
        self, name: _Name, reader: Reader, accept_loss: bool, bounds: tuple[int, int] | None = None
    ) -> None:
        self.name = str(name)
        self._partition = name.partition
        self._reader = reader
        self._accept_loss = accept_loss
        self._bounds = bounds

    def first(self) -> int:
        return self._frozen()[0]

    def end(self, start: int) -> int:
        return self._frozen()[1]

    def blocks(self, start: int, end: int, clock: int) -> Iterator[Block]:
        """Yield the records of a range; what a frozen lane yields is going to be read again."""
        at = start
        while at < end:
            for piece in self._reader.pieces(
                self._partition, at, end, keep=self._bounds is not None
            ):
                block = self._gap(at, end, clock) if piece is None else _block(piece, clock)
                yield block
                at, clock = block.end, block.clock

    def header(self, position: int) -> bytes | None:
        pieces = self._reader.pieces(self._partition, position, position + 1, keep=True)
        piece = next(pieces, None)
        return None if piece is None else piece.header(position)

    def _frozen(self) -> tuple[int, int]:
        if self._bounds is None:
            raise DrainError(f"lane {self.name!r} is not frozen")
        return self._bounds

    def _gap(self, start: int, end: int, clock: int) -> Block:
        """Return what stands for records that have been deleted, if that is accepted."""
        first, _ = self._reader.bounds([self._partition])[self._partition]
        if not self._accept_loss or first <= start:
            raise DrainError(_lost(self.name, start, first))
        none = np.zeros(0, dtype=np.int64)
        gone = (Corrupt(start, clock, b""),)
        return TopicBlock(start, b"", none, none, none, gone, min(first, end), clock, none)


def _block(piece: Piece, clock: int) -> Block:
    """Return a piece with monotone times; records without the broker's are damage."""
    times = np.where(piece.appended, piece.times, clock)
    if len(times):
        times[0] = max(clock, int(times[0]))
        times = np.maximum.accumulate(times)
    forged = np.flatnonzero(~piece.appended).tolist()
    corrupt = tuple(
        Corrupt(int(piece.offsets[at]), int(times[at]), piece.data[piece.at[at] : piece.at[at + 1]])
        for at in forged
    )
    sound = piece.appended
    return TopicBlock(
        position=piece.start,
        buffer=piece.data + _PADDING,
        offsets=piece.at[:-1][sound],
        lengths=np.diff(piece.at)[sound],
        append=times[sound],
        corrupt=corrupt,
        end=piece.end,
        clock=int(times[-1]) if len(times) else clock,
        positions=piece.offsets[sound],
    )


class KafkaTopics:
    """Topics of reports as a source.

    Parameters
    ----------
    broker : Broker
        How to reach them.
    topics : sequence of ReportTopic
        At least one; several if they are epochs of one name of which the older still get messages.
    accept_loss : bool
        Whether to go on where the broker has deleted records that were never taken. What is
        missing is quarantined as one entry without bytes.

    Raises
    ------
    ParameterError
        No topic, or of several names.
    """

    unit = "messages"

    def __init__(
        self, broker: Broker, topics: Sequence[ReportTopic], accept_loss: bool = False
    ) -> None:
        if len({topic.name for topic in topics}) != 1:
            raise ParameterError("topics must be epochs of one name")
        self.broker = broker
        self.topics = tuple(sorted(set(topics), key=lambda topic: (topic.epoch, topic.partitions)))
        self.accept_loss = accept_loss
        self._found: dict[ReportTopic, FoundTopic] = {}
        self._others: tuple[ReportTopic, ...] = ()

    def open(self, registry: Registry) -> None:
        """Return if all topics can be used for reports of these plans.

        Raises
        ------
        BrokerError
            The broker cannot be reached, or what is wrong with a topic, and what to do.
        """
        with connected(self.broker) as topics:
            self._found = {topic: topics.check(topic, registry.horizon) for topic in self.topics}
            epochs = topics.epochs(self.topics[0].name)
            self._others = tuple(topic for topic in epochs if topic not in self._found)
        if not all(found.id for found in self._found.values()):
            raise BrokerError("the broker does not say its topics' ids: it is too old; upgrade it")

    def lanes(self, taken: Mapping[str, int]) -> Sequence[Lane]:
        """Return all partitions, frozen at one moment."""
        names = [
            _Name(topic, self._found[topic].id, number)
            for topic in self.topics
            for number in range(topic.partitions)
        ]
        bounds = self._reader.bounds([name.partition for name in names])
        known = {_Name.parse(lane).topic for lane in taken}
        frozen = []
        for name in names:
            first, end = bounds[name.partition]
            # If anything of a topic was taken, then everything from 0 on, or it was written down.
            at = 0 if name.topic in known else first
            frozen.append(_PartitionLane(name, self._reader, self.accept_loss, (at, end)))
        return frozen

    def lane(self, name: str) -> Lane:
        """Return a partition to read a range of."""
        return _PartitionLane(_Name.parse(name), self._reader, self.accept_loss)

    def check(self, ends: Mapping[str, int], marks: Mapping[str, Mark]) -> None:
        """Refuse topics that cannot be those of which partitions were taken.

        Raises
        ------
        DrainError
            A topic was made again, cut, or has lost records that were never taken; or an older
            epoch has records left.
        """
        names = {lane: _Name.parse(lane) for lane in ends}
        for name in names.values():
            self._check_topic(name)
        there = {
            lane: name
            for lane, name in names.items()
            if name.topic in self._found or name.topic in self._others
        }
        bounds = self._reader.bounds([name.partition for name in there.values()])
        for lane, name in there.items():
            first, end = bounds[name.partition]
            if name.topic in self._others:
                _check_drained(name, end - ends[lane])
            else:
                self._check_range(lane, first, end, ends[lane])
                self._check_mark(name, first, marks.get(lane))

    def make_durable(self, intent: Intent) -> None:
        """Do nothing: what can be read is on as many brokers as the topic wants."""

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()

    @property
    def _reader(self) -> Reader:
        return reader_of(self.broker)

    def _check_topic(self, name: _Name) -> None:
        if name.topic.name != self.topics[0].name:
            raise DrainError(
                f"reports of topic {name.topic} have been counted here, and {self.topics[0]} is "
                "another one: give that, or another state directory"
            )
        found = self._found.get(name.topic)
        if found is not None and found.id != name.id:
            raise DrainError(
                f"topic {name.topic} was deleted and made again since reports of it were counted: "
                "its offsets mean others now; create the next epoch and have it sent to, or begin "
                "with a new state directory"
            )

    def _check_range(self, lane: str, first: int, end: int, taken: int) -> None:
        if end < taken:
            raise DrainError(
                f"{lane} ends at offset {end}, but {taken} have been counted: the broker has lost "
                "what it had confirmed; create the next epoch and have it sent to"
            )
        if first > taken and not self.accept_loss:
            raise DrainError(_lost(lane, taken, first))

    def _check_mark(self, name: _Name, first: int, mark: Mark | None) -> None:
        if mark is None or mark.position < first:
            return
        lane = _PartitionLane(name, self._reader, self.accept_loss)
        if lane.header(mark.position) not in (None, mark.header):
            raise DrainError(
                f"{name} has another record at offset {mark.position} than the one that was "
                "counted: the broker has lost what it had confirmed; create the next epoch and "
                "have it sent to"
            )


def _check_drained(name: _Name, left: int) -> None:
    if left > 0:
        raise DrainError(
            f"{name} has {left} messages that have not been counted: give --topic {name.topic} too"
        )


def _lost(lane: str, taken: int, first: int) -> str:
    return (
        f"{lane} begins at offset {first}, and {taken} is the next to be counted: records have "
        "been deleted uncounted, because retention is too short or nothing was drained for too "
        "long; restore them if you can, or go on without them with --accept-loss"
    )
