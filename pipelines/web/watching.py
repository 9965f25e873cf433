"""Readings of the job itself: what it has not read, whether it fails, and how full its disks are.

A thread makes them beside the pages, since a broker may take seconds to answer. No lock is taken.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pipelines.alerts.watch import AlertWatch
from pipelines.exporter.arrivals import Arrival
from pipelines.exporter.committed import Committed, committed
from pipelines.exporter.lag import (
    Lag,
    Watched,
    WatchedLog,
    WatchedStream,
    lag_of_runs,
    lag_of_stream,
)
from pipelines.exporter.readings import Reading, Status, read
from pipelines.results.fields import milliseconds, moment
from pipelines.results.reader import ResultsReader
from pipelines.results.records import Health
from pipelines.sources.base import SKEW
from pipelines.storage.directory import LastRun, Problem
from pipelines.web import formats
from sotto.clocks import now_ms
from sotto.errors import SottoError
from sotto.wire.reasons import Reason

#: Seconds between two looks of a watch: at the job, or for alerts.
_LOOK = 5.0

#: A disk with less than this share of its bytes, and less than so many bytes, free is nearly full;
#: one with less than the last number of bytes free is full.
_NEARLY, _MOST_FREE, _FULL = 0.05, 20 << 30, 1 << 20
#: From when on a run takes too long, and an unread record is too old, ms.
_LONG, _OLD = 900_000, 3_600_000
#: How long records from the future are a problem after they were taken, ms.
_FUTURE = 86_400_000
#: From when on the job has not looked for too long, and the newest report is too old, ms: the
#: thresholds of the rules SottoNotLooking and SottoNoReports.
NOT_LOOKED, NO_REPORTS = 900_000, 7 * 86_400_000
_WHY: dict[str, str] = {
    Problem.DISK: "its disk is full",
    Problem.BROKER: "the broker could not be used",
    Problem.DATABASE: "the database could not be written",
    Problem.UNPUBLISHED: "its results could not be published, though they are committed",
    Problem.OTHER: "what it has printed says why",
}

_logger = logging.getLogger(__name__)


class Disk(NamedTuple):
    """A file system that the job writes."""

    places: str  #: what lies on it, such as "state and log"
    free: int  #: bytes that the process may still use
    total: int  #: bytes

    @property
    def problem(self) -> str:
        """Its problem, if there is one."""
        if self.free < _FULL:
            return f"The disk of the {self.places} is full: nothing more can be counted or stored."
        if self.free < min(_NEARLY * self.total, _MOST_FREE):
            return f"The disk of the {self.places} is nearly full: {formats.size(self.free)} left."
        return ""


@dataclass(frozen=True)
class JobReading:
    """A reading of a job at one time, ms of the wall clock; None for what is not watched."""

    at: int
    disks: Sequence[Disk]
    last: LastRun | None = None
    state: Reading[Committed] | None = None
    lag: Reading[Lag] | None = None
    arrivals: Reading[list[Arrival]] | None = None
    health: Sequence[Health] = ()

    @property
    def begun(self) -> int | None:
        """When the unfinished run began, ms; None if none is under way."""
        return None if self.state is None or self.state.value is None else self.state.value.begun

    @property
    def silent(self) -> list[str]:
        """The partitions that have gone silent."""
        return [each.partition for each in self._arrivals if each.silent]

    @property
    def _arrivals(self) -> Sequence[Arrival]:
        return (self.arrivals.value if self.arrivals is not None else None) or ()

    @property
    def problems(self) -> list[str]:
        """The problems that an operator has to look at, in sentences."""
        found = [each.problem for each in self.disks if each.problem]
        last, lag = self.last, self.lag.value if self.lag is not None else None
        if last is not None and last.failed is not None:
            why = _WHY.get(last.problem, _WHY[Problem.OTHER])
            found.append(f"The last run failed at {formats.clock(last.failed)}: {why}.")
        if self.begun is not None and self.at - self.begun > _LONG:
            since = formats.clock(self.begun)
            found.append(f"A run began at {since} and has not finished: is the job still there?")
        found += stale(self.health, last, self.at)
        if lag is not None and lag.records:
            what = f"{lag.records:,} records are not counted"
            if last is not None and self.at - last.looked > NOT_LOOKED:
                found.append(f"{what}.")
            elif lag.oldest is not None and self.at - lag.oldest > _OLD:
                found.append(f"{what}, the oldest since {formats.clock(lag.oldest)}.")
        held = None if self.state is None else self.state.value
        unknown = 0 if held is None else held.rejected.get(Reason.UNKNOWN_PLAN.label, 0)
        if held is not None and unknown > held.manifest.tally.reports:
            found.append(
                f"{unknown:,} reports are of plans the job was not given (sotto quarantine)."
            )
        if last is not None and last.future_at and self.at - last.future_at < _FUTURE:
            found.append(
                f"{last.future:,} records are in quarantine as future, as their time is ahead of "
                f"the job's clock; the last were taken at {formats.clock(last.future_at)} from "
                f"{last.future_in}: the clock of a collector, a broker or the job is wrong."
            )
        ahead = [each.partition for each in self._arrivals if self.at + SKEW < (each.newest or 0)]
        if ahead:
            found.append(
                f"The newest record is ahead of this machine's clock: {', '.join(ahead)}; the "
                "clock of the broker or of this machine is wrong."
            )
        if self.silent:
            found.append(f"Silent while others are not: {', '.join(self.silent)}.")
        for what, reading in (("state directory", self.state), ("log or topic", self.lag)):
            if reading is not None and reading.status in (Status.DAMAGED, Status.UNREADABLE):
                found.append(f"The {what} is {reading.status}: {reading.problem}")
        return found


@dataclass(eq=False, repr=False)
class JobWatch:
    """Looks at a job: its state directory, what it reads, and the disks that it writes."""

    reader: ResultsReader
    state: Path | None
    log: Watched | WatchedStream | None = None
    places: Mapping[str, Path] = field(default_factory=dict)
    last: JobReading | None = field(default=None, init=False)

    def run(self, stopped: threading.Event, seconds: float) -> None:
        """Look every ``seconds``, until ``stopped`` is set."""
        while not stopped.is_set():
            try:
                self.look()
            except Exception as error:
                _logger.warning("the job cannot be looked at: %s", type(error).__name__)
            stopped.wait(seconds)

    def look(self) -> JobReading:
        """Look at the job, and keep the reading."""
        state, last, health = None, None, self._health()
        if (path := self.state) is not None:
            state, last = read(lambda: committed(path)), LastRun.of(path)
        disks = _disks(self.places)
        lag = arrivals = None
        if isinstance(self.log, WatchedStream):
            stream = self.log
            offsets = {name: at for job in health for name, at in job.offsets.items()}
            lag = read(lambda: lag_of_stream(stream, offsets))
            arrivals = read(stream.arrivals)
        elif self.log is not None and state is not None:
            watched = self.log
            registry = None if state.value is None else state.value.registry
            lag = lag_of_runs(watched, state)
            if not isinstance(watched, WatchedLog):
                arrivals = read(lambda: watched.arrivals(registry))
        self.last = JobReading(now_ms(), disks, last, state, lag, arrivals, health)
        return self.last

    def _health(self) -> Sequence[Health]:
        try:
            return self.reader.health()
        except (SottoError, OSError):
            return ()


@contextmanager
def looking(watch: JobWatch | AlertWatch | None) -> Iterator[None]:
    """Run a watch, if there is one, in a thread for the duration of the block."""
    if watch is None:
        yield
        return
    stopped = threading.Event()
    # A message that is being sent when the server ends is sent again by the next one.
    thread = threading.Thread(target=watch.run, args=(stopped, _LOOK), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=1)


def _disks(places: Mapping[str, Path]) -> list[Disk]:
    """Return the file systems that places are on."""
    found: dict[int, tuple[list[str], Path]] = {}
    for name, path in places.items():
        with suppress(OSError):
            found.setdefault(path.stat().st_dev, ([], path))[0].append(name)
    usages = [(" and ".join(names), shutil.disk_usage(path)) for names, path in found.values()]
    return [Disk(places, usage.free, usage.total) for places, usage in usages]


def stale(health: Iterable[Health], last: LastRun | None, now: int) -> list[str]:
    """Return why results are too old at a time, ms, in sentences; empty if they are not.

    ``last``: the note of the last run; None if there is no state directory.
    """
    found = []
    if last is not None and now - last.looked > NOT_LOOKED:
        when = f"since {_time(moment(last.looked))}" if last.looked else "at all"
        found.append(f"The job has not looked for reports {when}: is it running?")
    for each in health:
        if each.clock is not None and now - milliseconds(each.clock) > NO_REPORTS:
            found.append(
                f"The results of {each.collector} are old: their newest report came at "
                f"{_time(each.clock)}."
            )
    return found


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
