"""Requeues for a streaming job: from ``NAME-quarantine`` to ``NAME-requeue``, which the job reads.

Both topics are read whole. An entry that the second has already, by job and key, is not sent again.
So nothing is sent twice, even if a requeue is killed, or done again. If two are done at the same
time, the job finds duplicates.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from pipelines.sinks.kafka import producer_for, send_all
from pipelines.sinks.quarantine import (
    Entry,
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
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason

Progress: TypeAlias = Callable[[int, int], None]


@dataclass
class Found:
    """The numbers of reports in a topic of quarantine, for some reasons."""

    #: By reason and plan fingerprint in hexadecimal: reports that were not sent back, and reports
    #: that were.
    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    given_back: int = 0  #: how many reports were sent back now
    #: Records that are no quarantine records, or have a time that a broker does not take.
    unreadable: int = 0


class RequeueTopics:
    """The two topics beside those of reports.

    ``name``: the name of the reports' topics, without epoch and partitions. ``plans``: the plans
    that the streaming job has now. ``reasons``: some of :data:`CURABLE`. ``again``: whether entries
    that were sent back before are sent once more, for a job that did not have the plan then; those
    that it has counted since are duplicates.
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

    def waiting(self, progress: Progress) -> Found:
        """Return what waits and what was sent back, and send nothing."""
        found = Found()
        deque(self._curable(found, progress), maxlen=0)
        return found

    def requeue(self, progress: Progress) -> Found:
        """Send back the entries of known plans; return what there was."""
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

    def _curable(self, found: Found, progress: Progress) -> Generator[tuple[Record, int]]:
        """Yield each waiting entry as a record to send, with its number of reports.

        Curable entries are counted in ``found``, those that were sent back before included.
        """
        with connected(self._broker) as topics:
            topics.check_sink(self.target, self._stay)
        now = now_ms()
        for _, entry, done in _entries(self._broker, self.origin, self.target, progress):
            plan = None if entry is None else plan_of(entry.reject.message)
            if entry is not None and not (plan and is_curable(entry.reject, self._reasons, now)):
                continue
            given = None
            with suppress(FormatError):
                given = None if entry is None else requeue_record(entry)
            if given is None or entry is None or plan is None:
                found.unreadable += 1
                continue
            rows = max(entry.reject.rows, 1)
            into = found.done if done else found.waiting
            into[entry.reject.reason.label, plan.hex()] += rows
            if not done or self._again:
                yield given, rows


def held(broker: Broker, name: str, progress: Progress) -> Iterator[tuple[str, Reject, bool]]:
    """Yield the rejects in ``NAME-quarantine``, each with its place and whether it was sent back.

    The place is partition and offset, such as ``3/1200``. Records that cannot be read are left out.
    """
    topics = SinkTopic(name, "quarantine"), SinkTopic(name, "requeue")
    for place, entry, done in _entries(broker, *topics, progress):
        if entry is not None:
            yield place, entry.reject, done


def _entries(
    broker: Broker, origin: SinkTopic, target: SinkTopic, progress: Progress
) -> Iterator[tuple[str, Entry | None, bool]]:
    """Yield the entries of a topic of quarantine, each once; None for one that cannot be read."""
    with connected(broker) as topics:
        sizes = [topics.find(each).partitions for each in (origin, target)]
    back = {
        (dict(record.headers).get("job"), record.key)
        for record in read_to_end(broker, str(target), sizes[1])
    }
    seen: set[tuple[bytes, bytes]] = set()
    for record in read_to_end(broker, str(origin), sizes[0], progress):
        place = f"{record.partition}/{record.offset}"
        try:
            entry = parse(record.key, record.value, record.headers)
        except FormatError:
            yield place, None, False
            continue
        known = entry.job.encode(), entry.key
        if known not in seen:
            seen.add(known)
            yield place, entry, known in back
