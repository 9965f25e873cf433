"""Takes the documents of a topic of estimates to a sink, for ``sotto sink``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.results.documents import Document, parse
from pipelines.sinks.base import Advance, Applied, ReadTopic, Sink
from pipelines.sources import kafka_reader
from sotto.errors import AggregationError, BrokerError, FormatError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import SinkTopic, Stay

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

#: How often the topic's settings and id are checked while it is followed, in seconds.
_CHECK_SECONDS = 60.0


@dataclass(frozen=True)
class Transferred:
    """The outcome of a topic's records."""

    applied: Applied = field(default_factory=Applied)  #: of the documents
    poison: int = 0  #: records that are no documents, or under another's key
    lost: int = 0  #: offsets that the broker had deleted before they were read

    @property
    def records(self) -> int:
        return sum(self.applied) + self.poison

    def plus(self, other: Transferred) -> Transferred:
        return Transferred(
            self.applied.plus(other.applied), self.poison + other.poison, self.lost + other.lost
        )

    def lines(self) -> list[str]:
        """Return what taking the topic came to, for people."""
        numbers = {
            "no newer than what is there": self.applied.stale,
            "of another job, left; --replace takes the newest job's": self.applied.others,
            "that are no documents": self.poison,
            "that the database cannot store": self.applied.refused,
            "deleted by the broker before they were taken": self.lost,
        }
        first = f"{self.records:,} records, {self.applied.written:,} documents written"
        return [first, *(f"{n:>9,}  {what}" for what, n in numbers.items() if n)]


@dataclass(eq=False, repr=False)
class Transfer:
    """Writes a topic of estimates to a sink.

    ``topic``: of the kind ``estimates``. ``replace``: whether another topic, or another job, may
    replace what the sink holds. ``committed``: called after every transaction; tests kill the
    process in it.
    """

    broker: Broker
    topic: SinkTopic
    sink: Sink
    replace: bool = field(default=False, kw_only=True)
    committed: Callable[[], None] = field(default=lambda: None, kw_only=True)

    def __post_init__(self) -> None:
        if self.topic.kind != "estimates":
            raise ParameterError(
                f"topic {self.topic} is not a topic of estimates: its name must end in -estimates"
            )
        self._consumer: KafkaConsumer | None = None
        self._id = ""
        self._partitions = 0
        self._checked = float("-inf")
        self._next: dict[int, int] = {}

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def run(self, stop: Callable[[], bool] = lambda: False) -> Transferred:
        """Write the topic's records up to its end of now.

        Raises BrokerError if the topic cannot be read (what was read is in the database), SinkError
        if the database cannot be used now, and AggregationError, which says what to do, if topic
        and database do not belong together.
        """
        try:
            done = self._run(stop)
            if done.applied.others and self.replace:
                # The database has forgotten its offsets.
                self._disconnect()
                done = done.plus(self._run(stop))
        except (BrokerError, AggregationError):
            self._disconnect()
            raise
        return done

    def _run(self, stop: Callable[[], bool]) -> Transferred:
        self._check_topic()
        with kafka_reader.map_kafka_errors(self.broker):
            if self._consumer is None:
                self._consumer = kafka_reader.make_consumer(self.broker)
                self._consumer.assign(self._all())
                self._next = {}
            first, ends = kafka_reader.offsets(self._consumer, self._all())
            done = Transferred(lost=0 if self._next else self._seek(self._consumer, first))
            self._check_ends(ends)
            if done.lost:
                done = done.plus(self._write(self._consumer, []))
            if stop():
                return done
            for records in kafka_reader.read_until(self._consumer, ends):
                done = done.plus(self._write(self._consumer, records))
                if stop():
                    break
        return done

    def _check_topic(self) -> None:
        """Check, now and then, that the topic is still the one it was."""
        if time.monotonic() - self._checked < _CHECK_SECONDS:
            return
        with connected(self.broker) as topics:
            found = topics.check_sink(self.topic, Stay(0, 0))
        if found.id != self._id or found.partitions != self._partitions:
            self._disconnect()
        self._id, self._partitions = found.id, found.partitions
        self._checked = time.monotonic()

    def _seek(self, consumer: KafkaConsumer, first: Any) -> int:
        """Seek to the database's offsets; return how many offsets after them were deleted."""
        taken = self.sink.offsets(str(self.topic), self._id, replace=self.replace)
        lost = 0
        for each in self._all():
            at = taken.get(each.partition, 0)
            lost += max(first[each] - at, 0) if each.partition in taken else 0
            consumer.seek(each, max(at, first[each]))
            self._next[each.partition] = at
        return lost

    def _check_ends(self, ends: Any) -> None:
        for each, end in ends.items():
            if end < self._next[each.partition]:
                self._checked = float("-inf")
                raise AggregationError(
                    f"{self.topic} partition {each.partition} ends at offset {end}, but "
                    f"{self._next[each.partition]} are written: the broker has lost what it had "
                    "confirmed, or the topic was created again; give another database, or --replace"
                )

    def _write(self, consumer: KafkaConsumer, records: Iterable[Any]) -> Transferred:
        """Write the records of one request, and the offsets after them."""
        read = []
        for each in self._all():
            reached, before = consumer.position(each), self._next[each.partition]
            if reached is not None and reached > before:
                read.append(Advance(each.partition, before, reached))
        documents: list[Document] = []
        poison = 0
        for record in records:
            try:
                documents.append(parse(record.key, record.value))
            except FormatError:
                poison += 1
        progress = ReadTopic(str(self.topic), self._id, read, self.replace)
        applied = self.sink.write(documents, progress)
        self._next |= {part.partition: part.end for part in read}
        self.committed()
        return Transferred(applied, poison)

    def _all(self) -> list[TopicPartition]:
        from kafka import TopicPartition

        return [TopicPartition(str(self.topic), at) for at in range(self._partitions)]

    def _disconnect(self) -> None:
        consumer, self._consumer, self._next = self._consumer, None, {}
        if consumer is not None:
            kafka_reader.close_consumer(consumer)
