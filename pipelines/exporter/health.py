"""The collector for prometheus-client: reads sources when it is scraped, and answers in time.

Each job has *readers* that make snapshots of its sources. A :class:`Watch` runs them in a thread,
so that a scrape need not wait for a slow broker: it is answered with the last readings.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pipelines.exporter.committed import committed
from pipelines.exporter.database import Projected, WatchedResults
from pipelines.exporter.engine import WatchedEngine
from pipelines.exporter.families import Exposed, Snapshot, families
from pipelines.exporter.lag import (
    Watched,
    WatchedDocuments,
    WatchedLog,
    WatchedStream,
    WatchedTopics,
    lag_of_runs,
    lag_of_stream,
)
from pipelines.exporter.readings import Reading, Status, read
from pipelines.results.fields import grouped
from pipelines.sinks.sql import of_state
from pipelines.sources.kafka import KafkaTopics
from sotto.clocks import now_ms
from sotto.errors import ParameterError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

#: Yields readings of jobs, given the last ones; each that follows has more sources read.
Readers: TypeAlias = Callable[[Sequence[Snapshot]], Iterable[Sequence[Snapshot]]]

_LOG = logging.getLogger(__name__)


@dataclass
class RunReaders:
    """Reads the sources of one state directory's aggregation runs."""

    state: Path
    database: WatchedResults
    log: Watched | None = None  #: the log or topics that the runs read, if they are watched
    #: Whether the database also has the results of other state directories.
    shared: bool = False
    _collector: str | None = None

    def readings(self, before: Sequence[Snapshot] = ()) -> Iterator[Sequence[Snapshot]]:
        """Read all sources; yield what is known before the broker answers, and then all."""
        began, at = time.monotonic(), now_ms()
        state = read(lambda: committed(self.state))
        results = read(self.database.read)
        if state.value is not None and state.value.registry is not None:
            self._collector = state.value.registry.collector
        elif self._collector is None and not self.shared and len(results.value or ()) == 1:
            self._collector = next(iter(results.value or ()))
        name = self._collector or str(self.state)
        database = _of(results, name)
        last = before[0].log if before else None
        known = Snapshot(name, at, time.monotonic() - began, state, database, last)
        yield [known]
        if self.log is not None:
            lag = lag_of_runs(self.log, state)
            yield [replace(known, seconds=time.monotonic() - began, log=lag)]


class WatchedJob(NamedTuple):
    """The watched parts of a streaming job: the topics that it reads, and the one it writes."""

    topic: str  #: the name of the topic of estimates
    log: WatchedStream
    documents: WatchedDocuments


@dataclass
class StreamReaders:
    """Reads a database that sinks write, the topics of some of its jobs, and their engine."""

    database: WatchedResults
    streams: Sequence[WatchedJob] = ()
    registries: Mapping[str, Registry] = field(default_factory=dict)  #: plans by collector
    engine: WatchedEngine | None = None  #: what runs the jobs
    _topics: dict[str, str] = field(default_factory=dict)  #: collector to topic, as last known

    def readings(self, before: Sequence[Snapshot] = ()) -> Iterator[Sequence[Snapshot]]:
        """Read all sources; yield what is known before the broker answers, and then all."""
        began, at = time.monotonic(), now_ms()
        results = read(self.database.read)
        if results.value is not None:
            self._topics = {name: each.health.source or "" for name, each in results.value.items()}
        last = {each.collector: each for each in before}
        names: dict[str, WatchedJob | None] = dict.fromkeys(self._topics)
        names |= {self._collector_of(stream): stream for stream in self.streams}
        known = {
            name: replace(
                last.get(name, Snapshot(name, at, 0.0)),
                at=at,
                seconds=time.monotonic() - began,
                database=_of(results, name),
                registry=self.registries.get(name),
            )
            for name in names or {"": None}
        }
        yield list(known.values())
        projected = {name: each.database and each.database.value for name, each in known.items()}
        if self.engine is not None:
            for name, each in known.items():
                found = projected[name]
                job = found.health.job if found else None
                known[name] = replace(each, engine=read(partial(self.engine.read, job)))
            yield list(known.values())
        for name, stream in names.items():
            if stream is not None:
                found = projected[name]
                offsets = found.health.offsets if found else {}
                taken = (found.taken if found else None) or {}
                known[name] = replace(
                    known[name],
                    log=read(partial(lag_of_stream, stream.log, offsets)),
                    documents=read(partial(stream.documents.read, taken)),
                )
        seconds = time.monotonic() - began
        yield [replace(each, seconds=seconds) for each in known.values()]

    def _collector_of(self, stream: WatchedJob) -> str:
        """Return the collector of a stream; its topic while neither results nor plans have it."""
        for known in (self._topics, self.registries):
            if len(self.streams) == len(known) == 1 and len(self._topics) < 2:
                return next(iter(known))
        for name, topic in self._topics.items():
            if topic == stream.topic:
                return name
        return stream.topic


def _of(results: Reading[Mapping[str, Projected]], collector: str) -> Reading[Projected]:
    if results.value is None:
        return Reading(results.status, problem=results.problem)
    if collector in results.value:
        return Reading(results.status, results.value[collector])
    return Reading(Status.MISSING, problem=f"the database has no results of {collector} yet")


@dataclass(eq=False, repr=False)
class Watch:
    """The readings of one set of sources, made one after another in a thread.

    ``name``: the label ``collector`` before the first reading. ``fresh``: a reading answers scrapes
    for so long, s.
    """

    name: str
    readers: Readers
    fresh: float

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: threading.Event | None = None
        self._reading: Sequence[Snapshot] = ()
        self._read_at: float | None = None
        self._exceeded = 0

    def begin(self) -> threading.Event | None:
        """Begin a reading unless one is under way; return an event that is set at its end.

        Returns None if the last reading is fresh.
        """
        with self._lock:
            if self._under_way is not None:
                return self._under_way
            if self._read_at is not None and time.monotonic() - self._read_at < self.fresh:
                return None
            done = self._under_way = threading.Event()
        threading.Thread(target=self._read, args=(done,), daemon=True).start()
        return done

    def wait(self, done: threading.Event | None, seconds: float | None) -> None:
        """Wait up to ``seconds`` for the end of a reading; count it if that is not enough."""
        if done is not None and not done.wait(seconds):
            with self._lock:
                self._exceeded += 1

    def last(self) -> list[Exposed]:
        """Return the last reading, with how often a reading took too long."""
        with self._lock:
            exceeded = self._exceeded
            if not self._reading:
                return [Exposed(self.name, exceeded, None)]
            return [Exposed(each.collector, exceeded, each) for each in self._reading]

    def _read(self, done: threading.Event) -> None:
        try:
            for reading in self.readers(self._reading):
                with self._lock:
                    before, self._reading = self._reading, reading
                _log_changes(before, reading)
        finally:
            with self._lock:
                self._under_way, self._read_at = None, time.monotonic()
            done.set()


class JobsCollector(Collector):
    """The health of jobs, for a registry of prometheus-client.

    ``readers``: those of each job, or of several that share a database, by name. ``fresh``: a
    reading answers scrapes for so long, s. ``deadline``: how long a scrape waits for readings, s;
    None for ever. After that it is answered with the last readings, whose age is exposed, and the
    present ones go on for the next scrape. ``clock``: returns the time, ms.
    """

    def __init__(
        self,
        readers: Mapping[str, Readers],
        fresh: float = 5.0,
        deadline: float | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._watches = [Watch(name, each, fresh) for name, each in readers.items()]
        self._deadline = deadline
        self._clock = clock

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, within the deadline."""
        began = time.monotonic()
        for watch, done in [(each, each.begin()) for each in self._watches]:
            left = None
            if self._deadline is not None:
                left = max(self._deadline - (time.monotonic() - began), 0.0)
            watch.wait(done, left)
        found = [each for watch in self._watches for each in watch.last()]
        yield from families(_distinct(found), self._clock())


def _distinct(found: Sequence[Exposed]) -> list[Exposed]:
    """Number the labels of jobs that have the same collector, so that no two are equal."""
    distinct: dict[str, Exposed] = {}
    for each in found:
        name, number = each.collector, 2
        while name in distinct:
            name, number = f"{each.collector} ({number})", number + 1
        distinct[name] = each._replace(collector=name)
    return list(distinct.values())


def _log_changes(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> None:
    """Log the sources whose status has changed."""
    known = {each.collector: each.readings for each in before}
    for snapshot in after:
        for name, reading in snapshot.readings.items():
            was = known.get(snapshot.collector, {}).get(name)
            if (was.status if was else Status.OK) != reading.status:
                parts = (snapshot.collector, name, reading.status, reading.problem)
                _LOG.warning("%s", ": ".join(filter(None, parts)))


def readers_of_runs(
    states: Sequence[Path],
    logs: Sequence[Path],
    broker: Broker | None,
    topics: Sequence[ReportTopic],
    database: str | None,
    most: int,
) -> dict[str, Readers]:
    """Return the readers of state directories, their results, and their logs or topics.

    ``logs``, or the names of ``topics``: one for each state directory, in the same order, or none;
    raises ParameterError if their numbers differ. ``database``: that of all directories; None for
    each directory's own. ``most``: how many series of estimates are exposed, at most.
    """
    sources: Sequence[Watched | None] = [None] * len(states)
    if logs:
        _check_pairs("--log", len(logs), len(states))
        sources = [WatchedLog(log) for log in logs]
    elif broker is not None:
        named = grouped(topics, lambda topic: topic.name)
        _check_pairs("the name of --topic", len(named), len(states))
        sources = [WatchedTopics(KafkaTopics(broker, each)) for each in named.values()]
    one = WatchedResults(database, most) if database else None
    found: dict[str, Readers] = {}
    for state, source in zip(states, sources, strict=True):
        own = one or WatchedResults(of_state(state), most)
        shared = one is not None and len(states) > 1
        found[str(state)] = RunReaders(state, own, source, shared).readings
    return found


def reader_of_streams(
    database: str,
    most: int,
    broker: Broker | None,
    topics: Sequence[ReportTopic],
    plans: Sequence[CompiledPlan],
    flink: str | None,
) -> Readers:
    """Return the reader of a database of sinks, and of the topics and the engine of their jobs."""
    streams = []
    for name, epochs in grouped(topics, lambda topic: topic.name).items():
        assert broker is not None
        estimates = SinkTopic(name, "estimates")
        documents = WatchedDocuments(broker, estimates)
        streams.append(WatchedJob(str(estimates), WatchedStream(broker, epochs), documents))
    of_collector = grouped(plans, lambda plan: plan.collector)
    registries = {collector: Registry(each) for collector, each in of_collector.items()}
    engine = WatchedEngine(flink) if flink else None
    return StreamReaders(WatchedResults(database, most), streams, registries, engine).readings


def _check_pairs(what: str, given: int, states: int) -> None:
    if given != states:
        raise ParameterError(
            f"{what} must be given once for each --state, in the same order: "
            f"got {given} for {states}"
        )
