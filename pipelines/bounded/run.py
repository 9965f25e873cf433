"""Aggregates a log, or topics, to the end: one bounded run after another, on one machine.

Each run commits a generation (:mod:`pipelines.bounded.driver`). A process that is killed anywhere
leaves the last commit; the next one goes on from there, first with what the interrupted run was to
do.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import URL

from pipelines.aggregation.result_rows import Candidates
from pipelines.aggregation.step import Tally
from pipelines.beam.runners import EMBEDDED, Runner
from pipelines.bounded.driver import Driver
from pipelines.sinks.base import SinkError
from pipelines.sinks.kafka import Publish
from pipelines.sinks.sql import Results, of_state
from pipelines.sources import source_of
from pipelines.sources.base import BoundedSource, trusted_until
from pipelines.sources.frozen import FrozenLog
from pipelines.storage.directory import LastRun, NoManifestError, Problem, StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent
from pipelines.storage.output import JobOutput
from sotto.clocks import minute, now_ms
from sotto.columns import time_text
from sotto.errors import AggregationError, BrokerError, FormatError, ParameterError
from sotto.plan.compiled import CompiledPlan

#: Numbers of glibc's ``malloc.h``.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_LARGEST = 2**31 - 1
#: Bytes free at which a disk is full: SQLite may only say that a read or write has failed.
_LITTLE = 1 << 20
#: Texts of the system and of SQLite where there is no room.
_FULL = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    "database or disk is full",
)

#: Reports that one run takes at most, where memory is short and where it is not; and the bytes of
#: memory that have to be free for the second.
MAX_REPORTS, MORE_REPORTS = 1_000_000, 4_000_000
_AMPLE = 6 << 30


@dataclass(frozen=True)
class RunResult:
    """The result of aggregating a log."""

    generation: int  #: the last one committed
    runs: int = 0  #: how many were committed
    size: int = 0  #: how much of the source was taken, in its unit
    tally: Tally = field(default_factory=Tally)  #: what became of the reports
    #: Rejected reports by reason; what could not be decoded counts as one.
    rejects: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0  #: wall time
    #: Records whose append time was ahead of this machine's clock, by partition; rejected.
    future: Mapping[str, int] = field(default_factory=dict)
    unit: str = "bytes"  #: ``bytes`` of a log or ``messages`` of topics
    as_of: int | None = None  #: what was appended later, ms, was left out
    #: Why results could not be published, if so: all is committed, and the next run tries again.
    unpublished: str = ""

    def plus(self, intent: Intent, written: JobOutput) -> RunResult:
        both = JobOutput.sum([JobOutput(rejects=self.rejects, tally=self.tally), written])
        return replace(
            self,
            generation=intent.generation,
            runs=self.runs + 1,
            size=self.size + intent.size,
            tally=both.tally,
            rejects=dict(both.rejects),
        )

    def lines(self) -> list[str]:
        """Return what aggregating, or requeueing, came to, for people."""
        tally = self.tally
        future = [
            f"warning: {number:,} records of partition {name} bear a time ahead of this machine's "
            "clock and are in quarantine as future: one of the clocks is wrong"
            for name, number in self.future.items()
        ]
        size = (
            f"{self.size / 1e6:,.1f} MB" if self.unit == "bytes" else f"{self.size:,} {self.unit}"
        )
        rate = tally.reports / self.seconds if self.seconds else 0.0
        said = (
            f"{tally.reports:,} reports, {size}, {self.runs} runs, {self.seconds:.1f} s, "
            f"{rate:,.0f} reports a second"
        )
        new = "new in the log" if self.generation else "in the log yet: is it where reports go to?"
        nothing = {"bytes": f"nothing {new}", "reports": "nothing that these plans cure"}
        if not self.runs:
            said = nothing.get(self.unit, "nothing new")
            if self.as_of is not None:
                said = (
                    f"nothing new up to {time_text(self.as_of)}: --as-of leaves out what is later"
                )
        elif self.unit == "reports":
            said = f"{size} requeued, {self.seconds:.1f} s"
        if self.rejects and not tally.counted:
            future.append("warning: no report was counted: sotto quarantine says why")
        first = f"generation {self.generation}: {said}"
        if not self.runs:
            return [first, *future]
        numbers = {
            "counted": tally.counted,
            "superseded by a newer level": tally.superseded,
            "duplicates": tally.duplicates,
            "in quarantine": sum(self.rejects.values()),
            **{f"  {reason}": number for reason, number in self.rejects.items()},
            "pseudonyms revoked": tally.revoked,
        }
        return [first, *(f"{number:>15,}  {what}" for what, number in numbers.items()), *future]


#: Called with how much is taken, and how much will be at the end.
Progress = Callable[[int, int], None]


def aggregate(
    log: str | os.PathLike[str] | BoundedSource,
    state_dir: str | os.PathLike[str],
    plans: Sequence[CompiledPlan] = (),
    database: str | URL | None = None,
    as_of: int | None = None,
    max_reports: int | None = None,
    progress: Progress = lambda done, total: None,
    checkpoint: Checkpoint = lambda step: None,
    *,
    candidates: Candidates | None = None,
    publish: Sequence[Publish] = (),
    runner: Runner = EMBEDDED,
    elsewhere: str | None = None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], int] = now_ms,
    wait: float = 0.0,
    since: int | None = None,
) -> RunResult:
    """Take all of a log up to its ends of now into state, counts and estimates.

    ``log``: the directory of an embedded log, or another source:
    :class:`~pipelines.sources.kafka.KafkaTopics`. ``state_dir``: made if it does not exist. One run
    at a time works on it. ``plans``: plans and versions of one collector whose reports the log may
    hold, besides those that the state directory has. It keeps what is given once. ``database``: as
    SQLAlchemy takes it; ``results.db`` in the state directory if not given. ``as_of``: take only
    what was appended up to then, ms. ``max_reports``: at most so many a run; bounds memory. By
    default as :func:`reports_that_fit` says. ``progress``: called before the first run and after
    each with how much is taken, and how much will be. ``checkpoint``: called after every step of a
    commit; tests stop the process there. ``candidates``: strings to look for, by plan fingerprint
    and metric; kept like plans. ``publish``: each publishes what is committed:
    :class:`~pipelines.sinks.kafka.EstimatesTopic`, :class:`~pipelines.sinks.kafka.QuarantineTopic`.
    ``runner``: of the jobs: the embedded one, or that of any options of Beam's. ``elsewhere``:
    folder or URI where jobs have their files, if not in ``state_dir``; all workers reach it under
    that name. Fixed when the state directory is made. ``since``: what was appended before, ms, is
    left out of partitions that are new to the state directory. ``stop``: called after every run;
    where it returns True no further run begins. ``clock``: returns the current time, ms. ``wait``:
    seconds to wait for what else holds the directory.

    A record that was appended more than the plans' grace after both now and ``as_of`` is rejected
    as from the future.

    Raises AggregationError if it cannot go on, or BrokerError if that is for a broker: the last
    commit is intact, and another run goes on from there. PlanError if the plans are not of one
    collector.

    Notes
    -----
    The command is ``sotto aggregate``.
    """
    if max_reports is None:
        max_reports = reports_that_fit()
    if max_reports < 1:
        raise AggregationError(f"max_reports {max_reports} must be at least 1")
    if callable(publish):
        raise ParameterError("publish must be a list of topics to publish to; got one topic alone")
    source = source_of(log)
    registry, _ = StateDirectory(state_dir).plans.with_given(plans, {})
    registry.require_signatures()
    source.open(registry)
    session = opened(
        state_dir,
        plans,
        candidates,
        database,
        checkpoint,
        publish,
        runner,
        elsewhere,
        wait,
        counts_on=True,
    )
    with closing(source), session as (driver, seconds):
        now = clock() if as_of is None else as_of
        trusted = trusted_until(max(clock(), as_of or 0), driver.registry)
        result = _finish(driver, source, as_of)
        keep, period = runner.in_process, driver.registry.period
        frozen = FrozenLog(source, driver.manifest, as_of, trusted, now, since, keep, period)
        total = result.size + frozen.size
        progress(result.size, total)
        while not (stopped := stop()) and (intent := frozen.take(max_reports)) is not None:
            source.make_durable(intent)
            driver.begin(intent)
            result = result.plus(intent, driver.commit(intent, frozen))
            progress(result.size, total)
        if not stopped:
            driver.publish_due(now)
        driver.note(future=frozen.future)
        return replace(
            result,
            generation=driver.manifest.generation,
            seconds=seconds(),
            future=frozen.future,
            unit=source.unit,
            as_of=as_of,
            unpublished="; ".join(filter(None, (driver.unprojected, driver.unpublished))),
        )


@contextmanager
def opened(
    state_dir: str | os.PathLike[str],
    plans: Sequence[CompiledPlan],
    candidates: Candidates | None,
    database: str | URL | None,
    checkpoint: Checkpoint,
    publish: Sequence[Publish] = (),
    runner: Runner = EMBEDDED,
    elsewhere: str | None = None,
    wait: float = 0.0,
    counts_on: bool = False,
) -> Iterator[tuple[Driver, Callable[[], float]]]:
    """Hold what :func:`aggregate` is given; give its driver, and seconds since the start.

    ``counts_on``: as of :class:`~pipelines.bounded.driver.Driver`.
    """
    began = time.monotonic()
    directory = StateDirectory(state_dir)
    with directory.lock(wait):
        try:
            # Under the lock: another process may have added plans.
            registry, strings = directory.plans.with_given(plans, candidates or {})
            registry.require_signatures()
            with Results(database or of_state(directory.path)) as results:
                driver = Driver(
                    directory,
                    registry,
                    strings,
                    results,
                    checkpoint,
                    publish,
                    runner,
                    elsewhere,
                    counts_on,
                )
                yield driver, lambda: time.monotonic() - began
        except NoManifestError:
            raise
        except Exception as error:
            full = shutil.disk_usage(directory.path).free < _LITTLE
            LastRun.leave_failure(directory.path, Problem.DISK if full else problem_of(error))
            if isinstance(error, OSError | FormatError):
                raise AggregationError(f"the run was not finished: {error}") from error
            raise


def problem_of(error: BaseException) -> Problem:
    """Return what an error, or one of its causes, is, for a note that has no text of it.

    >>> problem_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))).value
    'disk'
    """
    at: BaseException | None = error
    while at is not None:
        # An error of a job's worker arrives as text.
        if any(text in str(at) for text in _FULL):
            return Problem.DISK
        at = at.__cause__ or at.__context__
    if isinstance(error, BrokerError):
        return Problem.BROKER
    return Problem.DATABASE if isinstance(error, SinkError) else Problem.OTHER


def _finish(driver: Driver, source: BoundedSource, as_of: int | None) -> RunResult:
    """Do what an interrupted run was to do, if one was."""
    result = RunResult(driver.manifest.generation)
    interrupted = driver.interrupted()
    if interrupted is None:
        return result
    if as_of is not None and interrupted.clock is not None and as_of < interrupted.clock:
        raise AggregationError(
            f"as of {minute(as_of)} is before {minute(interrupted.clock)}, up to which an "
            "interrupted run has begun to count"
        )
    if interrupted.items:
        source.check(interrupted.ends, interrupted.last)
    return result.plus(interrupted, driver.commit(interrupted, source))


def reports_that_fit() -> int:
    """Return how many reports a run takes: fewer, larger jobs cost less, as memory allows.

    Four million where 6 GiB are free, of the machine and within the control group's limit, one
    million elsewhere. Two million took 0.9 GB.
    """
    free = []
    with suppress(OSError, ValueError):
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(int(fields["MemAvailable"].split()[0]) << 10)
        with suppress(OSError, ValueError):
            most = int(Path("/sys/fs/cgroup/memory.max").read_text())
            free.append(most - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return MORE_REPORTS if free and min(free) >= _AMPLE else MAX_REPORTS


def settle_memory() -> bool:
    """Let this process keep memory that it frees; return whether its C library can, as glibc does.

    Every run needs the same large buffers as the one before. By default the C library gives them
    back to the system and asks for fresh, zeroed pages the next time, which costs more than copying
    reports into them does. The process stays as large as it ever was: a command decides that, no
    library. All that is loaded stays as well, and collections of garbage pass over it.
    """
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
