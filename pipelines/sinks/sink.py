"""From a topic of estimates to a database: the process beside a job that has none of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipelines.sinks.database import Applied, SinkDatabase
from pipelines.sinks.documents import parse
from pipelines.sinks.tables import Advance, Keyed
from pipelines.sources.records import PATIENCE, make_consumer, told
from sotto.errors import AggregationError, BrokerError, FormatError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.sinktopics import SinkTopic, Stay

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

_POLL_MS = 200
#: How often the topic's settings and id are looked at while it is followed, in seconds.
_LOOK = 60.0


@dataclass(frozen=True)
class Sunk:
    """What became of what a topic held.

    Parameters
    ----------
    applied : Applied
        Of the documents.
    poison : int
        Records that are no documents, or under another's key.
    lost : int
        Offsets that the broker had deleted before they were taken.
    """

    applied: Applied = field(default_factory=Applied)
    poison: int = 0
    lost: int = 0

    @property
    def records(self) -> int:
        """How many records were read."""
        done = self.applied
        return done.written + done.stale + done.others + done.refused + self.poison


class Sink:
    """Writes a topic of estimates to a database.

    Parameters
    ----------
    broker : Broker
    topic : SinkTopic
        Of the kind ``estimates``.
    database : SinkDatabase
    replace : bool
        Whether another topic, or another job, may come in the place of what the database holds.
    committed : callable
        Told after every transaction; tests stop the process there.

    Raises
    ------
    ParameterError
        The topic is of another kind.
    """

    def __init__(
        self,
        broker: Broker,
        topic: SinkTopic,
        database: SinkDatabase,
        *,
        replace: bool = False,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        if topic.kind != "estimates":
            raise ParameterError(f"topic {topic} is not one of estimates: its name ends so")
        self._broker = broker
        self._topic = topic
        self._database = database
        self._replace = replace
        self._committed = committed
        self._made: KafkaConsumer | None = None
        self._id = ""
        self._partitions = 0
        self._looked = float("-inf")
        self._at: dict[int, int] = {}

    def __enter__(self) -> Sink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._disconnect()

    def run(self, stop: Callable[[], bool] = lambda: False) -> Sunk:
        """Take the topic up to its end of now.

        Raises
        ------
        BrokerError
            It cannot be read; what was taken is in the database.
        ProjectionError
            The database cannot be used now.
        AggregationError
            Topic and database do not go together; what to do.
        """
        try:
            done = self._pass(stop)
            if done.applied.others and self._replace:
                # The database has forgotten up to where it was.
                self._disconnect()
                done = _sum(done, self._pass(stop))
        except (BrokerError, AggregationError):
            self._disconnect()
            raise
        return done

    def _pass(self, stop: Callable[[], bool]) -> Sunk:
        self._look()
        done = Sunk()
        with told(self._broker):
            consumer = self._consumer()
            done = replace(done, lost=self._begin(consumer))
            ends = consumer.end_offsets(self._all(), timeout_ms=int(PATIENCE * 1000))
            self._check_ends(ends)
            deadline = time.monotonic() + PATIENCE
            while not stop() and any(self._at[each.partition] < ends[each] for each in ends):
                if some := self._read(consumer):
                    done = _sum(done, some)
                    deadline = time.monotonic() + PATIENCE
                elif time.monotonic() > deadline:
                    raise BrokerError(
                        f"the broker does not give the records of {self._topic} within "
                        f"{PATIENCE:.0f} s: see its log"
                    )
        return done

    def _look(self) -> None:
        """See, now and then, that the topic is still the one it was."""
        if time.monotonic() - self._looked < _LOOK:
            return
        with connected(self._broker) as topics:
            found = topics.check_sink(self._topic, Stay(0, 0))
        if found.id != self._id or found.partitions != self._partitions:
            self._disconnect()
        self._id, self._partitions = found.id, found.partitions
        self._looked = time.monotonic()

    def _consumer(self) -> KafkaConsumer:
        if self._made is None:
            self._made = make_consumer(self._broker)
            self._made.assign(self._all())
            self._at = {}
        return self._made

    def _begin(self, consumer: KafkaConsumer) -> int:
        """Go to where the database is; return how many offsets are gone since."""
        if self._at:
            return 0
        taken = self._database.offsets(str(self._topic), self._id, replace=self._replace)
        first = consumer.beginning_offsets(self._all(), timeout_ms=int(PATIENCE * 1000))
        lost = 0
        for each in self._all():
            at = taken.get(each.partition, 0)
            lost += max(0, first[each] - at) if each.partition in taken else 0
            consumer.seek(each, max(at, first[each]))
            self._at[each.partition] = at
        return lost

    def _check_ends(self, ends: dict[TopicPartition, int]) -> None:
        for each, end in ends.items():
            if end < self._at[each.partition]:
                self._looked = float("-inf")
                raise AggregationError(
                    f"{self._topic} partition {each.partition} ends at offset {end}, but "
                    f"{self._at[each.partition]} are taken: the broker has lost what it had "
                    "confirmed, or the topic was made again; give another database, or --replace"
                )

    def _read(self, consumer: KafkaConsumer) -> Sunk | None:
        """Write what one request brings; None if it brings nothing."""
        found = consumer.poll(_POLL_MS)
        read = []
        for each in self._all():
            reached = consumer.position(each, timeout_ms=int(PATIENCE * 1000))
            if reached is not None and reached > self._at[each.partition]:
                read.append(Advance(each.partition, self._at[each.partition], reached))
        if not read:
            return None
        documents, poison = _documents(records for part in found.values() for records in part)
        applied = self._database.apply(str(self._topic), self._id, read, documents)
        self._at |= {part.partition: part.end for part in read}
        self._committed()
        return Sunk(applied, poison)

    def _all(self) -> list[TopicPartition]:
        from kafka import TopicPartition

        return [TopicPartition(str(self._topic), at) for at in range(self._partitions)]

    def _disconnect(self) -> None:
        made, self._made, self._at = self._made, None, {}
        if made is not None:
            made.close(autocommit=False, timeout_ms=1000)


def _documents(records: Any) -> tuple[list[Keyed], int]:
    """Return the documents of records, and how many records are none."""
    documents, poison = [], 0
    for record in records:
        try:
            documents.append(Keyed(record.key, parse(record.key, record.value)))
        except FormatError:
            poison += 1
    return documents, poison


def _sum(one: Sunk, other: Sunk) -> Sunk:
    return Sunk(one.applied.plus(other.applied), one.poison + other.poison, one.lost + other.lost)
