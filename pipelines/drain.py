"""The driver on one machine: drains a log, or topics, to the end, one bounded drain at a time.

A drain commits (:mod:`pipelines.commit`): intent, then the job's files, then the manifest, then
the projection into the database. A process that is killed anywhere leaves the last commit; the
next drain goes on from there, first with what the interrupted one had undertaken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import URL

from pipelines.commit import StateDirectory
from pipelines.estimates import Candidates
from pipelines.files import Checkpoint
from pipelines.intent import Intent
from pipelines.job import Job, run
from pipelines.lanes import Source, source_of
from pipelines.lastdrain import LastDrain
from pipelines.manifest import Terms, advance
from pipelines.projection import projection
from pipelines.results import Results, of_state
from pipelines.source import FrozenLog
from pipelines.written import Tally, Written
from sotto.compiled import CompiledPlan
from sotto.errors import BrokerError, DrainError, FormatError
from sotto.log import now_ms
from sotto.registry import Registry

#: Reports that one drain takes at most.
MAX_REPORTS = 1_000_000

#: How far, in ms, the clock of a log's writer may run ahead of the drain's. A record from later
#: than that would make all other lanes late: it is left where it is.
TRUST = 3_600_000


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
    """

    generation: int
    drains: int = 0
    size: int = 0
    tally: Tally = field(default_factory=Tally)
    rejects: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    ahead: tuple[str, ...] = ()
    unit: str = "bytes"

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
    log: str | os.PathLike[str] | Source,
    state_dir: str | os.PathLike[str],
    plans: Sequence[CompiledPlan],
    database: str | URL | None = None,
    as_of: int | None = None,
    max_reports: int = MAX_REPORTS,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    candidates: Candidates | None = None,
    stop: Callable[[], bool] = lambda: False,
    trust: int = TRUST,
    clock: Callable[[], int] = now_ms,
) -> DrainResult:
    """Take all of a log up to its ends of now into state, counts and estimates.

    Parameters
    ----------
    log : path or Source
        The directory of an embedded log, or another source: :class:`~pipelines.topic.KafkaTopics`.
    state_dir : path
        Made if it does not exist. One drain at a time works on it.
    plans : sequence of CompiledPlan
        All plans and versions of one collector whose reports the log may hold. Once counted, a
        plan has to be given for ever.
    database : str or URL, optional
        As SQLAlchemy takes it; ``results.db`` in the state directory if not given. Of a source
        that is a share of others nothing is projected: that is for :mod:`pipelines.combine`.
    as_of : int, optional
        Take only what was appended up to then, ms.
    max_reports : int
        At most so many a drain; bounds memory.
    progress : callable, optional
        Told of every drain.
    checkpoint : callable, optional
        Told of every step of a commit; tests stop the process there.
    candidates : mapping, optional
        Strings to look for, by plan fingerprint and metric.
    stop : callable
        Asked after every drain; draining ends where it says so.
    trust : int
        Without ``as_of``, records appended more than so many ms after now are left.
    clock : callable
        Says what now is.

    Raises
    ------
    DrainError
        It cannot go on. The last commit is intact, and another drain goes on from there. Or a
        share's results are to go to a database.
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
    if source.share is not None and database is not None:
        raise DrainError("a share has no database of its own: sotto combine writes that of all")
    directory = StateDirectory(state_dir)
    registry = Registry(plans)
    source.open(registry)
    began = time.monotonic()
    with directory.lock(), _results(source, database, directory) as results:
        try:
            driver = _Driver(
                source, directory, registry, candidates or {}, results, checkpoint or _ignore
            )
            trusted = clock() + trust if as_of is None else None
            result = driver.drain(as_of, trusted, max_reports, progress or _ignore, stop)
        except (OSError, FormatError) as error:
            raise DrainError(f"the drain was not finished: {error}") from error
        finally:
            source.close()
    return replace(result, seconds=time.monotonic() - began, unit=source.unit)


def _results(
    source: Source, database: str | URL | None, directory: StateDirectory
) -> AbstractContextManager[Results | None]:
    """Return where results are projected to; None for a share's."""
    if source.share is not None:
        return nullcontext()
    return Results(database or of_state(directory.path))


def _ignore(*_: object) -> None:
    pass


class _Driver:
    """Drains under the lock of a state directory."""

    def __init__(
        self,
        source: Source,
        directory: StateDirectory,
        registry: Registry,
        candidates: Candidates,
        results: Results | None,
        checkpoint: Checkpoint,
    ) -> None:
        self.source = source
        self.directory = directory
        self.registry = registry
        self.candidates = candidates
        self.results = results
        self.checkpoint = checkpoint
        self.manifest = directory.open(source.share)
        self.noted = _noted(directory.path)
        self.names = {plan.fingerprint.hex(): _name(plan) for plan in registry.plans}
        self._check_plans()

    def drain(
        self,
        as_of: int | None,
        trusted: int | None,
        max_reports: int,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> DrainResult:
        """Finish what was undertaken, then take the log to its end of now."""
        self.directory.keep_plans(self.registry.plans)
        self._project()
        result = DrainResult(self.manifest.generation)
        undertaken = self.directory.intent(self.manifest)
        if undertaken is not None:
            if as_of is not None and undertaken.clock is not None and as_of < undertaken.clock:
                raise DrainError(
                    f"as of {as_of} ms is before {undertaken.clock} ms, up to which an "
                    "interrupted drain has undertaken to count"
                )
            self.source.check(undertaken.ends, undertaken.marks)
            result = result.plus(undertaken, self._commit(undertaken))
        frozen = FrozenLog(self.source, self.manifest, as_of, trusted)
        total = result.size + frozen.size
        progress(result.size, total)
        while not stop() and (intent := frozen.take(max_reports)) is not None:
            self.source.make_durable(intent)
            self.directory.begin(intent, self.checkpoint)
            result = result.plus(intent, self._commit(intent))
            progress(result.size, total)
        self._note()
        return replace(result, ahead=() if trusted is None else frozen.ahead)

    def _commit(self, intent: Intent) -> Written:
        """Do what an intent says, commit and project it."""
        began = time.monotonic()
        job = Job.of(self.source, self.directory.path, self.registry, self.manifest)
        written = _run(job, intent)
        self.checkpoint("written")
        manifest = advance(self.manifest, intent, written, Terms.of(self.registry))
        manifest = replace(manifest, plans={**manifest.plans, **self.names})
        self.directory.commit(manifest, self.checkpoint)
        self.manifest = manifest
        self.directory.collect(manifest)
        self.checkpoint("collected")
        self._project()
        self._note(time.monotonic() - began)
        return written

    def _note(self, seconds: float | None = None) -> None:
        """Leave a note for those who watch; ``seconds`` of a drain that is finished now."""
        generation, now = self.manifest.generation, now_ms()
        note = LastDrain(generation, now, None if seconds is None else now, seconds)
        if seconds is None and self.noted is not None and self.noted.generation == generation:
            note = replace(self.noted, looked=now)
        note.leave(self.directory.path)
        self.noted = note

    def _project(self) -> None:
        """Bring the database to what is committed, if it is behind."""
        if self.results is None:
            return
        manifest = self.manifest
        since = self.results.projected(manifest.state)
        if since > manifest.generation:
            raise DrainError(
                f"the database has generation {since}, but the state directory only "
                f"{manifest.generation}: one of them was restored from a copy"
            )
        # The results may be of a copy of the state directory that went another way.
        anew = since > 0 and self.results.lineage() != manifest.digest(since)
        since = 0 if anew else since
        if since < manifest.generation:
            self.results.project(
                projection(
                    self.directory, manifest, self.registry, self.candidates, since, anew=anew
                )
            )
            self.checkpoint("projected")

    def _check_plans(self) -> None:
        if len(set(self.names.values())) < len(self.names):
            raise DrainError("two different plans have the same name and version")
        missing = {
            fingerprint: name
            for fingerprint, name in self.manifest.plans.items()
            if fingerprint not in self.names
        }
        if missing:
            listed = ", ".join(f"{name} ({fingerprint})" for fingerprint, name in missing.items())
            raise DrainError(f"reports have been counted under plans that are missing: {listed}")


def _noted(state_dir: Path) -> LastDrain | None:
    """Return the last drain's note; one that is damaged is as good as none."""
    try:
        return LastDrain.of(state_dir)
    except (OSError, DrainError):
        return None


def _name(plan: CompiledPlan) -> str:
    return f"{plan.plan} version {plan.version}"


def _run(job: Job, intent: Intent) -> Written:
    """Run a job; whatever stops it becomes a :class:`DrainError`."""
    try:
        return run(job, intent)
    except (DrainError, BrokerError):
        raise
    except Exception as error:
        # Beam raises what a stage raised again, as the same or as another exception.
        raise DrainError(f"the drain was not committed: {error}") from error
