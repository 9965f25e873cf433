"""Kafka topics of reports as a source of runs: every partition is a lane.

Offsets are positions. How far each partition has been taken is committed with what was counted,
never in Kafka. A lane's name has the topic's id in it, so that a topic that was deleted and made
again is not taken for the one it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.sources.base import Lane
from pipelines.sources.partition import LaneName, PartitionLane, lost
from pipelines.sources.records import Reader, reader_of
from pipelines.storage.intent import Intent, Mark
from sotto.errors import AggregationError, BrokerError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import FoundTopic, ReportTopic
from sotto.plan.registry import Registry


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
        self,
        broker: Broker,
        topics: Sequence[ReportTopic],
        accept_loss: bool = False,
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
            self._found = {
                topic: topics.check(topic, registry.horizon, reading=True) for topic in self.topics
            }
            epochs = topics.epochs(self.topics[0].name)
            self._others = tuple(topic for topic in epochs if topic not in self._found)
        if not all(found.id for found in self._found.values()):
            raise BrokerError("the broker does not say its topics' ids: it is too old; upgrade it")

    def lanes(self, taken: Mapping[str, int]) -> Sequence[Lane]:
        """Return all partitions, frozen at one moment."""
        names = [
            LaneName(topic, self._found[topic].id, number)
            for topic in self.topics
            for number in range(topic.partitions)
        ]
        bounds = self._reader.bounds([name.partition for name in names])
        known = {LaneName.parse(lane).topic for lane in taken}
        frozen = []
        for name in names:
            first, end = bounds[name.partition]
            # If anything of a topic was taken, then everything from 0 on, or it was written down.
            at = 0 if name.topic in known else first
            frozen.append(self._lane(name, (at, end)))
        return frozen

    def lane(self, name: str) -> Lane:
        """Return a partition to read a range of."""
        return self._lane(LaneName.parse(name))

    def check(self, ends: Mapping[str, int], marks: Mapping[str, Mark]) -> None:
        """Refuse topics that cannot be those of which partitions were taken.

        Raises
        ------
        AggregationError
            A topic was made again, cut, or has lost records that were never taken; or an older
            epoch has records left.
        """
        names = {lane: LaneName.parse(lane) for lane in ends}
        for name in names.values():
            self._check_topic(name)
        there = {lane: name for lane, name in names.items() if name.topic in self._found}
        bounds = self._reader.bounds([name.partition for name in there.values()])
        for lane, name in there.items():
            first, end = bounds[name.partition]
            self._check_range(lane, first, end, ends[lane])
            self._check_mark(name, first, marks.get(lane))
        self._check_aggregated(ends, {name.topic: name.id for name in names.values()})

    def make_durable(self, intent: Intent) -> None:
        """Do nothing: what can be read is on as many brokers as the topic wants."""

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()

    @property
    def _reader(self) -> Reader:
        return reader_of(self.broker)

    def _lane(self, name: LaneName, bounds: tuple[int, int] | None = None) -> PartitionLane:
        return PartitionLane(name, self._reader, self.accept_loss, bounds)

    def _check_topic(self, name: LaneName) -> None:
        if name.topic.name != self.topics[0].name:
            raise AggregationError(
                f"reports of topic {name.topic} have been counted here, and {self.topics[0]} is "
                "another one: give that, or another state directory"
            )
        found = self._found.get(name.topic)
        if found is not None and found.id != name.id:
            raise AggregationError(
                f"topic {name.topic} was deleted and made again since reports of it were counted: "
                "its offsets mean others now; create the next epoch and have it sent to, or begin "
                "with a new state directory"
            )

    def _check_aggregated(self, ends: Mapping[str, int], ids: Mapping[ReportTopic, str]) -> None:
        """Refuse topics of which something was taken once if more is in any of their partitions."""
        older = [
            LaneName(topic, ids[topic], number)
            for topic in self._others
            if topic in ids
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

    def _check_range(self, lane: str, first: int, end: int, taken: int) -> None:
        if end < taken:
            raise AggregationError(
                f"{lane} ends at offset {end}, but {taken} have been counted: the broker has lost "
                "what it had confirmed; create the next epoch and have it sent to"
            )
        if first > taken and not self.accept_loss:
            raise AggregationError(lost(lane, taken, first))

    def _check_mark(self, name: LaneName, first: int, mark: Mark | None) -> None:
        if mark is None or mark.position < first:
            return
        lane = self._lane(name)
        if lane.header(mark.position) not in (None, mark.header):
            raise AggregationError(
                f"{name} has another record at offset {mark.position} than the one that was "
                "counted: the broker has lost what it had confirmed; create the next epoch and "
                "have it sent to"
            )
