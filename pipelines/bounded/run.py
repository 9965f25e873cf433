"""The driver on one machine: drains a log, or topics, to the end, one bounded drain at a time.

A drain commits (:mod:`pipelines.storage.directory`): intent, then the job's files, then the
manifest, then
the projection into the database. A process that is killed anywhere leaves the last commit; the
next drain goes on from there, first with what the interrupted one had undertaken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import URL

from pipelines.beam.runners import EMBEDDED, Runner
from pipelines.bounded.driver import Driver
from pipelines.estimation.rows import Candidates
from pipelines.sinks.kafka import Publish
from pipelines.sinks.sql import Results, of_state
from pipelines.sources.base import TRUST, BoundedSource
from pipelines.sources.frozen import FrozenLog
from pipelines.sources.log import source_of
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent
from pipelines.storage.written import Tally, Written
from sotto.errors import DrainError, FormatError
from sotto.log.writer import now_ms
from sotto.plan.compiled import CompiledPlan

#: Reports that one drain takes at most.
MAX_REPORTS = 1_000_000


@dataclass(frozen=True)
class DrainResult:
    """What draining a log came to.

    Parameters
    ----------
    generation : int
        The last one committed.
    drains : int
        How many were committed.
    size : int
        How much of the source was taken, in its unit.
    tally : Tally
        What became of the reports.
    rejects : mapping of str to int
        Rejected reports by reason; what could not be decoded counts as one.
    seconds : float
        Wall time.
    ahead : tuple of str
        Lanes that hold records from the future, which were left, with all that follows them.
    unit : str
        ``bytes`` of a log or ``messages`` of topics.
    unpublished : str
        Why results could not be published, if so: all is committed, and the next drain tries again.
    """

    generation: int
    drains: int = 0
    size: int = 0
    tally: Tally = field(default_factory=Tally)
    rejects: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    ahead: tuple[str, ...] = ()
    unit: str = "bytes"
    unpublished: str = ""

    def plus(self, intent: Intent, written: Written) -> DrainResult:
        """Return this with one more drain."""
        both = Written.sum([Written(rejects=self.rejects, tally=self.tally), written])
        return replace(
            self,
            generation=intent.generation,
            drains=self.drains + 1,
            size=self.size + intent.size,
            tally=both.tally,
            rejects=dict(both.rejects),
        )


#: Told, before the first drain and after each, how much is taken, and how much will be at the end.
Progress = Callable[[int, int], None]


def drain(
    log: str | os.PathLike[str] | BoundedSource,
    state_dir: str | os.PathLike[str],
    plans: Sequence[CompiledPlan] = (),
    database: str | URL | None = None,
    as_of: int | None = None,
    max_reports: int = MAX_REPORTS,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    candidates: Candidates | None = None,
    publish: Publish | None = None,
    runner: Runner = EMBEDDED,
    elsewhere: str | None = None,
    stop: Callable[[], bool] = lambda: False,
    trust: int = TRUST,
    clock: Callable[[], int] = now_ms,
) -> DrainResult:
    """Take all of a log up to its ends of now into state, counts and estimates.

    Parameters
    ----------
    log : path or BoundedSource
        The directory of an embedded log, or another source:
        :class:`~pipelines.sources.kafka.KafkaTopics`.
    state_dir : path
        Made if it does not exist. One drain at a time works on it.
    plans : sequence of CompiledPlan
        Plans and versions of one collector whose reports the log may hold, besides those that
        the state directory has. What is given once it keeps.
    database : str or URL, optional
        As SQLAlchemy takes it; ``results.db`` in the state directory if not given.
    as_of : int, optional
        Take only what was appended up to then, ms.
    max_reports : int
        At most so many a drain; bounds memory.
    progress : callable, optional
        Told of every drain.
    checkpoint : callable, optional
        Told of every step of a commit; tests stop the process there.
    candidates : mapping, optional
        Strings to look for, by plan fingerprint and metric; kept like plans.
    publish : Publish, optional
        Publishes what is committed: :class:`~pipelines.sinks.kafka.EstimatesTopic`,
        :class:`~pipelines.sinks.kafka.QuarantineTopic`.
    runner : Runner
        Of the jobs: the embedded one, or that of any options of Beam's.
    elsewhere : str, optional
        Folder or URI where jobs have their files, if not in ``state_dir``; all workers reach it
        under that name. Fixed when the state directory is made.
    stop : callable
        Asked after every drain; draining ends where it says so.
    trust : int
        Without ``as_of``, records appended more than so many ms after now are left.
    clock : callable
        Says what now is.

    Raises
    ------
    DrainError
        It cannot go on. The last commit is intact, and another drain goes on from there.
    BrokerError
        So it is, for a broker.
    PlanError
        The plans are not of one collector.

    Examples
    --------
    See ``tests/pipelines/test_drain.py``; the command is ``sotto aggregate``.
    """
    if max_reports < 1:
        raise DrainError(f"max_reports {max_reports} must be at least 1")
    source = source_of(log)
    directory = StateDirectory(state_dir)
    registry, _ = directory.plans.with_given(plans, {})
    registry.require_signatures()
    source.open(registry)
    began = time.monotonic()
    with directory.lock(), Results(database or of_state(directory.path)) as results:
        try:
            note = checkpoint or _ignore
            # Before the lock was held, another process may have added plans.
            registry, strings = directory.plans.with_given(plans, candidates or {})
            driver = Driver(directory, registry, strings, results, note, publish, runner, elsewhere)
            trusted = clock() + trust if as_of is None else None
            result = _drain(driver, source, as_of, trusted, max_reports, progress or _ignore, stop)
        except (OSError, FormatError) as error:
            raise DrainError(f"the drain was not finished: {error}") from error
        finally:
            source.close()
    return replace(result, seconds=time.monotonic() - began, unit=source.unit)


def _ignore(*_: object) -> None:
    pass


def _drain(
    driver: Driver,
    source: BoundedSource,
    as_of: int | None,
    trusted: int | None,
    max_reports: int,
    progress: Progress,
    stop: Callable[[], bool],
) -> DrainResult:
    """Finish what was undertaken, then take the log to its end of now."""
    result = DrainResult(driver.manifest.generation)
    undertaken = driver.undertaken()
    if undertaken is not None:
        if as_of is not None and undertaken.clock is not None and as_of < undertaken.clock:
            raise DrainError(
                f"as of {as_of} ms is before {undertaken.clock} ms, up to which an "
                "interrupted drain has undertaken to count"
            )
        if undertaken.items:
            source.check(undertaken.ends, undertaken.marks)
        result = result.plus(undertaken, driver.commit(undertaken, source))
    frozen = FrozenLog(source, driver.manifest, as_of, trusted)
    total = result.size + frozen.size
    progress(result.size, total)
    while not stop() and (intent := frozen.take(max_reports)) is not None:
        source.make_durable(intent)
        driver.begin(intent)
        result = result.plus(intent, driver.commit(intent, source))
        progress(result.size, total)
    driver.note()
    ahead = () if trusted is None else frozen.ahead
    return replace(result, ahead=ahead, unpublished=driver.unpublished)
