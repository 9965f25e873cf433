"""Aggregates a log, or topics, to the end: one bounded run after another.

Each run commits a generation (:mod:`pipelines.bounded.driver`). A process that is killed at any
moment leaves the last commit; the next process first finishes the interrupted run, and goes on.
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
from sqlalchemy.exc import SQLAlchemyError

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
from pipelines.storage.directory import (
    FullDiskError,
    LastRun,
    NoManifestError,
    Problem,
    StateDirectory,
)
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
#: A disk with fewer bytes free counts as full, since SQLite may only say that a write has failed.
_LITTLE = 1 << 20
#: Error texts of the system and of SQLite that mean a full disk.
_FULL = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    "database or disk is full",
)

#: The most reports that one run takes, if memory is short and if it is not; and how many bytes of
#: memory must be free for the second.
MAX_REPORTS, MORE_REPORTS = 1_000_000, 4_000_000
_AMPLE = 6 << 30


@dataclass(frozen=True)
class RunResult:
    """The result of aggregating a log."""

    generation: int  #: the last generation that was committed
    runs: int = 0  #: how many runs were committed
    size: int = 0  #: how much of the source was taken, in ``unit``
    tally: Tally = field(default_factory=Tally)  #: the outcomes of the reports
    #: Rejected reports by reason; a message that could not be decoded counts as one.
    rejects: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0  #: wall time
    #: How many records were rejected because they were ahead of this machine's clock, by partition.
    future: Mapping[str, int] = field(default_factory=dict)
    unit: str = "bytes"  #: ``bytes`` of a log, ``messages`` of topics or requeued ``reports``
    as_of: int | None = None  #: records appended after this time, ms, were left out
    #: Why results could not be published, empty if they were; the next run tries again.
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
        """Return the result as lines for people."""
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


#: A function that is called with how much is taken, and how much will be at the end.
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
    """Take all of a log, up to its present end, into state, counts and estimates.

    Parameters
    ----------
    log : path or source
        The directory of an embedded log, or another source, such as
        :class:`~pipelines.sources.kafka.KafkaTopics`.
    state_dir : path
        Made if it does not exist. One run at a time works on it.
    plans : sequence of CompiledPlan
        Plans and versions of one collector whose reports the log may hold, besides those that the
        state directory has. It keeps the plans that it is given.
    database : str or sqlalchemy.URL, optional
        By default ``results.db`` in the state directory.
    as_of : int, optional
        Take only records appended up to this time, ms.
    max_reports : int, optional
        The most reports of a run, which bounds memory; by default :func:`reports_that_fit`.
    progress : callable
        Called before the first run and after each, with how much is taken, and how much will be.
    checkpoint : callable
        Called after every step of a commit; tests kill the process in it.
    candidates : mapping, optional
        Strings to look for, by plan fingerprint and metric; kept like plans.
    publish : sequence of callable
        Publish each commit: :class:`~pipelines.sinks.kafka.EstimatesTopic`,
        :class:`~pipelines.sinks.kafka.QuarantineTopic`.
    runner : Runner
        Runs the jobs: the embedded one, or any that Beam's options name.
    elsewhere : str, optional
        Folder or URI for the files of jobs, if not ``state_dir``; all workers reach it under this
        name. It is fixed when the state directory is made.
    stop : callable
        Called before every run; no further run begins once it returns True.
    clock : callable
        Returns the current time, ms.
    wait : float
        Seconds to wait while another process holds the directory.
    since : int, optional
        Leave out records appended before this time, ms, of partitions that are new to the state
        directory.

    Raises
    ------
    AggregationError
        It cannot go on. The last commit is intact, and another run goes on from it.
    BrokerError
        The same, because of a broker.
    PlanError
        The plans are not of one collector.

    Notes
    -----
    The command is ``sotto aggregate``. A record that was appended more than the plans' grace after
    both now and ``as_of`` is rejected as from the future.
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
    """Lock a state directory; yield its driver, and a function for the seconds since the start.

    An error in the block is noted as the failure of the last run. Parameters are as for
    :func:`aggregate`; ``counts_on`` as for :class:`~pipelines.bounded.driver.Driver`.
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
            problem = Problem.DISK if full else problem_of(error)
            LastRun.leave_failure(directory.path, problem)
            unclear = isinstance(error, OSError | FormatError)
            text = f"the run was not finished: {error}" if unclear else str(error)
            if problem is Problem.DISK:
                raise FullDiskError(text) from error
            if unclear:
                raise AggregationError(text) from error
            raise


def problem_of(error: BaseException) -> Problem:
    """Return the kind of an error or of one of its causes, for a note without its text.

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
    of_database = isinstance(error, SinkError) or isinstance(error.__cause__, SQLAlchemyError)
    return Problem.DATABASE if of_database else Problem.OTHER


def _finish(driver: Driver, source: BoundedSource, as_of: int | None) -> RunResult:
    """Finish an interrupted run, if there is one."""
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
    """Return how many reports a run takes: as many as memory allows, since larger jobs cost less.

    They are four million if 6 GiB are free, both on the machine and within the control group's
    limit, else one million. Two million took 0.9 GB.
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
    """Let this process keep memory that it frees; return whether its C library can, as glibc can.

    Every run needs the same large buffers as the one before. By default the C library returns them
    to the system and asks for fresh, zeroed pages the next time, which costs more than copying
    reports into them. The process then stays as large as it ever was, so a command has to decide
    this, and no library. Objects that are loaded now are also exempt from garbage collection.
    """
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
