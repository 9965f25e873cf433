"""Requeue for a streaming job: from its topic of quarantine to the one by which it takes back.

Both topics are read whole. What the second has already, by job and key, is not sent again: killed
in the middle, or done twice, nothing is given back twice, unless two do it at the same time; then
the job finds duplicates.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.sinks.quarantine import Record, check_reasons, parse, plan_of, requeue_record
from pipelines.sources.kafka_reader import PATIENCE, read_to_end
from sotto.errors import BrokerError, FormatError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.producers import end_producer, make_producer
from sotto.kafka.topics import MAX_BATCH, SinkTopic, Stay
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason

if TYPE_CHECKING:
    pass

#: Records sent and not acknowledged.
_IN_FLIGHT = 1000
_BATCH = 256 << 10


@dataclass
class Found:
    """What a topic of quarantine holds for some reasons, by reason and plan, in reports."""

    #: ``waiting`` and ``done``: by reason and fingerprint, in hexadecimal: what has not been given
    #: back, and what has.
    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    given_back: int = 0  #: reports of what was given back now
    #: Records that are none of quarantine, or of a time that a broker does not take.
    unreadable: int = 0


class RequeueTopics:
    """The two topics beside those of reports.

    ``name``: of the reports' topics, without epoch and partitions. ``plans``: those that the
    streaming job has now. ``reasons``: some of those that can be cured. ``again``: whether what has
    been given back already is given back once more, for a job that did not have the plan then: what
    it has counted since are duplicates.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        plans: Sequence[CompiledPlan],
        reasons: Collection[Reason],
        again: bool = False,
    ) -> None:
        check_reasons(reasons)
        self.origin = SinkTopic(name, "quarantine")
        self.target = SinkTopic(name, "requeue")
        self._broker = broker
        self._plans = {plan.fingerprint for plan in plans}
        self._stay = Stay(Registry(plans).horizon, min(plan.retention for plan in plans))
        self._reasons = frozenset(reasons)
        self._again = again

    def waiting(self, progress: Callable[[int, int], None]) -> Found:
        """Return what there is, and send nothing."""
        found = Found()
        deque(self._curable(found, progress), maxlen=0)
        return found

    def requeue(self, progress: Callable[[int, int], None]) -> Found:
        """Give back what the plans cure, and return what there was."""
        from kafka.errors import KafkaError

        found = Found()
        sent: list[tuple[Any, int]] = []
        producer = make_producer(
            self._broker, PATIENCE, compression="zstd", batch=_BATCH, largest=MAX_BATCH
        )
        try:
            with closing(self._curable(found, progress)) as curable:
                for record, rows in curable:
                    if plan_of(record.value) in self._plans:
                        future = producer.send(
                            str(self.target),
                            key=record.key,
                            value=record.value,
                            headers=list(record.headers),
                            timestamp_ms=record.timestamp,
                        )
                        sent.append((future, rows))
                    if len(sent) >= _IN_FLIGHT:
                        found.given_back += _acknowledged(sent)
                        sent = []
            found.given_back += _acknowledged(sent)
        except KafkaError as error:
            raise BrokerError(
                f"the broker did not take a record of {self.target} ({type(error).__name__}): "
                "do it again"
            ) from error
        finally:
            end_producer(producer)
        return found

    def _curable(
        self, found: Found, progress: Callable[[int, int], None]
    ) -> Generator[tuple[Record, int]]:
        """Yield what waits, each once, as it is given back, with its reports; and count it."""
        with connected(self._broker) as topics:
            origin = topics.find_sink(self.origin).partitions
            target = topics.check_sink(self.target, self._stay).partitions
        back = {
            (dict(record.headers).get("job"), record.key)
            for record in read_to_end(self._broker, str(self.target), target)
        }
        seen: set[tuple[bytes, bytes]] = set()
        for record in read_to_end(self._broker, str(self.origin), origin, progress):
            try:
                entry = parse(record.key, record.value, record.headers)
            except FormatError:
                found.unreadable += 1
                continue
            reject, known = entry.reject, (entry.job.encode(), entry.key)
            plan = plan_of(reject.message)
            if reject.reason not in self._reasons or plan is None or known in seen:
                continue
            seen.add(known)
            try:
                given = requeue_record(entry)
            except FormatError:
                found.unreadable += 1
                continue
            rows = max(reject.rows, 1)
            into = found.done if known in back else found.waiting
            into[reject.reason.label, plan.hex()] += rows
            if known not in back or self._again:
                yield given, rows


def _acknowledged(sent: Sequence[tuple[Any, int]]) -> int:
    """Wait until the broker has all records; return how many reports they hold."""
    for future, _ in sent:
        future.get(timeout=PATIENCE)
    return sum(rows for _, rows in sent)
