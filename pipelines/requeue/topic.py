"""Requeue for a streaming job: from its topic of quarantine to the one by which it takes back.

Both topics are read whole. Entries that the second has already, by job and key, are not sent again:
killed in the middle, or done twice, nothing is given back twice, unless two do it at the same time;
then the job finds duplicates.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pipelines.sinks.kafka import producer_for, send_all
from pipelines.sinks.quarantine import (
    Record,
    check_reasons,
    is_curable,
    parse,
    plan_of,
    requeue_record,
)
from pipelines.sources.kafka_reader import read_to_end
from sotto.clocks import now_ms
from sotto.errors import FormatError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import MAX_BATCH, SinkTopic, Stay
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason


@dataclass
class Found:
    """Contents of a topic of quarantine for some reasons, by reason and plan, in reports."""

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
        found = Found()

        def cured() -> Iterator[Record]:
            for record, rows in curable:
                if plan_of(record.value) in self._plans:
                    found.given_back += rows
                    yield record

        with (
            closing(self._curable(found, progress)) as curable,
            producer_for(self._broker, MAX_BATCH, f" for {self.target}: do it again") as producer,
        ):
            send_all(producer, str(self.target), cured())
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
        now = now_ms()
        for record in read_to_end(self._broker, str(self.origin), origin, progress):
            try:
                entry = parse(record.key, record.value, record.headers)
            except FormatError:
                found.unreadable += 1
                continue
            reject, known = entry.reject, (entry.job.encode(), entry.key)
            plan = plan_of(reject.message)
            if not is_curable(reject, self._reasons, now) or plan is None or known in seen:
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
