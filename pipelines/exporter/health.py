"""The collector: reads when it is scraped, not more often than need be, and answers in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pipelines.exporter.committed import Committed, committed
from pipelines.exporter.database import Database, SinkState
from pipelines.exporter.families import Snapshot, families
from pipelines.exporter.lag import Lag, Watched, WatchedDocuments, WatchedStream
from pipelines.exporter.readings import Reading, Status, read
from pipelines.sources.base import MissingError
from sotto.log.writer import now_ms
from sotto.plan.registry import Registry

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


@dataclass
class Readers:
    """What is read: each source may be left out."""

    state: Path | None = None  #: state directory
    database: Database | None = None  #: results
    #: The log or the topics that the job reads: aggregation runs, as the state directory says, or
    #: a streaming job, as its health in the database does.
    log: Watched | WatchedStream | None = None
    documents: WatchedDocuments | None = None  #: from which the database is written
    registry: Registry | None = None  #: the plans, where there is no state directory

    def readings(self, before: Snapshot | None = None) -> Iterator[Snapshot]:
        """Read all sources; yield what is known before the broker has answered, and after."""
        began, at = time.monotonic(), now_ms()
        path, database = self.state, self.database
        state = None if path is None else read(lambda: committed(path))
        results = None if database is None else read(database.read)
        known = Snapshot(
            at,
            time.monotonic() - began,
            state,
            results,
            None if before is None else before.log,
            None if before is None else before.documents,
            self.registry,
        )
        yield known
        if self.log is None and self.documents is None:
            return
        sink = results.value.sink if results and results.value else None
        lag = None if self.log is None else _lag(self.log, state, sink)
        documents = None
        if (topic := self.documents) is not None:
            documents = read(lambda: topic.read(sink.taken if sink else {}))
        seconds = time.monotonic() - began
        yield replace(known, seconds=seconds, log=lag, documents=documents)


def _lag(
    log: Watched | WatchedStream, state: Reading[Committed] | None, sink: SinkState | None
) -> Reading[Lag]:
    """Return what is not taken; all there is if nothing is committed yet."""
    if isinstance(log, WatchedStream):
        return read(lambda: log.lag(_offsets(sink)))
    if state is None or state.status not in (Status.OK, Status.MISSING):
        return Reading(Status.UNREADABLE, problem="it is not known how much of it is read")
    if state.value is None:
        return read(lambda: log.lag({}, None))
    taken, registry = state.value.lanes, state.value.registry
    return read(lambda: log.lag(taken, registry))


def _offsets(sink: SinkState | None) -> Mapping[str, int]:
    if sink is None or sink.offsets is None:
        raise MissingError("the database does not have yet how far a job has read")
    return sink.offsets


class Health(Collector):
    """The job's health, for a registry of prometheus-client.

    ``readers``: given the last reading, yields the next one, and maybe others that lead to it.
    ``fresh``: a reading answers scrapes for so long, s. ``deadline``: a scrape waits so long for a
    reading, s; for ever if not given. After that it is answered with the last one, whose age is
    exposed, and the reading goes on for the next. ``clock``: says what now is, ms.
    """

    def __init__(
        self,
        readers: Callable[[Snapshot | None], Iterable[Snapshot]],
        fresh: float = 5.0,
        deadline: float | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._readers = readers
        self._fresh = fresh
        self._deadline = deadline
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: threading.Event | None = None
        self._reading: Snapshot | None = None
        self._read_at = 0.0
        self._exceeded = 0

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, within the deadline."""
        done = self._begin()
        if done is not None and not done.wait(self._deadline):
            with self._lock:
                self._exceeded += 1
        with self._lock:
            reading, exceeded = self._reading, self._exceeded
        yield from families(reading, self._clock(), exceeded)

    def _begin(self) -> threading.Event | None:
        """Return what the end of a reading sets; None while the last one is fresh."""
        with self._lock:
            if self._under_way is not None:
                return self._under_way
            if self._reading is not None and time.monotonic() - self._read_at < self._fresh:
                return None
            done = self._under_way = threading.Event()
        threading.Thread(target=self._read, args=(done,), daemon=True).start()
        return done

    def _read(self, done: threading.Event) -> None:
        try:
            for reading in self._readers(self._reading):
                with self._lock:
                    before, self._reading = self._reading, reading
                _log_changes(before, reading)
        finally:
            with self._lock:
                self._under_way, self._read_at = None, time.monotonic()
            done.set()


def _log_changes(before: Snapshot | None, after: Snapshot) -> None:
    """Log the sources whose status has changed."""
    known = {} if before is None else before.readings
    for name, reading in after.readings.items():
        was = known[name].status if name in known else Status.OK
        if was != reading.status:
            _LOG.warning("%s", ": ".join(filter(None, (name, reading.status, reading.problem))))
