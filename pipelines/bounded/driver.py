"""Commits under the lock of a state directory, whatever is taken: a log's records or others.

A commit (:mod:`pipelines.storage.directory`) is: intent, then the job's files, then the manifest,
then the
projection into the database. What a process that was killed had undertaken is done first by the
next one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from pipelines.beam.runners import EMBEDDED, Runner
from pipelines.bounded.job import Job, run
from pipelines.estimation.rows import Candidates
from pipelines.requeue.withheld import Withheld
from pipelines.sinks.committed import projection
from pipelines.sinks.kafka import Publish
from pipelines.sinks.sql import Results
from pipelines.sources.base import BoundedSource, Ranges
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent, WorkItem
from pipelines.storage.last_run import LastDrain
from pipelines.storage.manifest import Terms, advance
from pipelines.storage.plan_names import check_plans
from pipelines.storage.written import Written
from sotto.errors import BrokerError, DrainError
from sotto.log.writer import now_ms
from sotto.plan.registry import Registry, names_of

#: What a checkpoint is told of a commit that is projected, in order.
STEPS = (
    "intent.json written",
    "intent.json renamed",
    "begun",
    "written",
    "placed",
    "synced",
    "MANIFEST.json written",
    "MANIFEST.json renamed",
    "committed",
    "collected",
    "projected",
)


class Driver:
    """Commits to a state directory; to be made and used under its lock.

    Parameters
    ----------
    directory : StateDirectory
    registry : Registry
        All plans under which reports have been counted, and maybe more.
    candidates : mapping
        Strings to look for, by plan fingerprint and metric.
    results : Results
        What is committed is projected there.
    checkpoint : callable
        Told of every step of a commit; tests stop the process there.
    publish : Publish, optional
        What is committed is published by it, if by anything.
    runner : Runner
        Of the jobs.
    elsewhere : str, optional
        As of :meth:`pipelines.storage.directory.StateDirectory.open`.

    Attributes
    ----------
    manifest : Manifest
        What is committed.
    unpublished : str
        Why it could not be published, if so; then that is not tried again.

    Raises
    ------
    DrainError
        The directory cannot be used, or a plan is missing.
    PlanError
        A plan has another fingerprint than one of its name and version had before.
    """

    def __init__(
        self,
        directory: StateDirectory,
        registry: Registry,
        candidates: Candidates,
        results: Results,
        checkpoint: Checkpoint,
        publish: Publish | None = None,
        runner: Runner = EMBEDDED,
        elsewhere: str | None = None,
    ) -> None:
        self.directory = directory
        self.registry = registry
        self.candidates = candidates
        self.results = results
        self.checkpoint = checkpoint
        self.unpublished = ""
        self._to_topic = publish
        self.runner = runner
        self.manifest = directory.open(elsewhere)
        self._noted = _noted(directory.path)
        self._names = names_of(registry.plans)
        check_plans(self.manifest, registry)
        directory.plans.keep(registry.plans, candidates)
        began = time.monotonic()
        restated = self._restate()
        self._project()
        if restated:
            self.note(time.monotonic() - began)
        self._publish()

    def undertaken(self) -> Intent | None:
        """Return what an interrupted process has left to do."""
        return self.directory.intent(self.manifest)

    def begin(self, intent: Intent) -> None:
        """Undertake an intent; from here on a restart does the same."""
        self.directory.begin(intent, self.checkpoint)

    def commit(self, intent: Intent, source: BoundedSource | None) -> Written:
        """Do what an intent says, commit and project it.

        Parameters
        ----------
        intent : Intent
        source : BoundedSource or None
            Of the ranges; none is needed for what is taken from quarantine.

        Raises
        ------
        DrainError, BrokerError
            It was not committed, or not projected; it is undertaken still, or committed.
        """
        began = time.monotonic()
        ranges, items = self._taken(intent, source)
        job = Job.of(ranges, self.directory.files, self.registry, self.manifest, intent)
        written = _run(job, items, self.runner)
        self.checkpoint("written")
        job.files.place(job.attempt, written.files)
        self.checkpoint("placed")
        self._advance(intent, written)
        self._project()
        self.note(time.monotonic() - began)
        self._publish()
        return written

    def _advance(self, intent: Intent, written: Written) -> None:
        """Commit what is written for an intent."""
        manifest = advance(self.manifest, intent, written, Terms.of(self.registry))
        manifest = manifest.with_plans(self.registry.plans)
        self.directory.commit(manifest, self.checkpoint)
        self.manifest = manifest
        self.directory.collect(manifest)
        self.checkpoint("collected")

    def _restate(self) -> bool:
        """Commit that a plan asks for another number of reports than before, if one does.

        A generation without reports raises the revision of its windows, so that what is published
        of them is newer than what was. Where something is undertaken, its commit does that.
        """
        manifest = self.manifest
        if not manifest.must_restate(self.registry.plans) or self.undertaken() is not None:
            return False
        self._advance(Intent(manifest.generation + 1, manifest.clock, ()), Written())
        return True

    def _taken(
        self, intent: Intent, source: BoundedSource | None
    ) -> tuple[Ranges, tuple[WorkItem, ...]]:
        """Return what an intent takes, and of what."""
        if not intent.requeue:
            assert source is not None
            if not self.runner.embedded:
                # What was kept for a job in this process, others cannot use.
                source.close()
            return source, intent.items
        missing = sorted({each.plan for each in intent.requeue} - self._names.keys())
        if missing:
            raise DrainError(
                "an interrupted requeue takes reports of plans that are missing: "
                + ", ".join(missing)
            )
        withheld = Withheld(self.directory.files, intent.requeue)
        return withheld, withheld.items

    def note(self, seconds: float | None = None) -> None:
        """Leave a note for those who watch; ``seconds`` of a drain that is finished now."""
        generation, now = self.manifest.generation, now_ms()
        note = LastDrain(generation, now, None if seconds is None else now, seconds)
        if seconds is None and self._noted is not None and self._noted.generation == generation:
            note = replace(self._noted, looked=now)
        note.leave(self.directory.path)
        self._noted = note

    def _publish(self) -> None:
        """Bring the topic of estimates to what is committed, if it can be reached."""
        if self._to_topic is None or self.unpublished:
            return
        try:
            self._to_topic(self.directory, self.manifest, self.registry, self.candidates)
        except BrokerError as error:
            self.unpublished = str(error)
        else:
            self.checkpoint("published")

    def _project(self) -> None:
        """Bring the database to what is committed, if it is behind."""
        manifest = self.manifest
        since = self.results.projected(manifest.state)
        if since > manifest.generation:
            raise DrainError(
                f"the database has generation {since}, but the state directory only "
                f"{manifest.generation}: one of them was restored from a copy"
            )
        # The results may be of a copy of the state directory that went another way, or of plans
        # that asked for fewer reports.
        anew = since > 0 and (
            self.results.lineage() != manifest.digest(since)
            or not self.results.withholds_as(self.registry)
        )
        since = 0 if anew else since
        if since < manifest.generation:
            self.results.project(
                projection(
                    self.directory, manifest, self.registry, self.candidates, since, anew=anew
                )
            )
            self.checkpoint("projected")


def _noted(state_dir: Path) -> LastDrain | None:
    """Return the last drain's note; one that is damaged is as good as none."""
    try:
        return LastDrain.of(state_dir)
    except (OSError, DrainError):
        return None


def _run(job: Job, items: tuple[WorkItem, ...], runner: Runner) -> Written:
    """Run a job; whatever stops it becomes a :class:`DrainError`."""
    try:
        return run(job, items, runner)
    except (DrainError, BrokerError):
        raise
    except Exception as error:
        # Beam raises what a stage raised again, as the same or as another exception.
        raise DrainError(f"the drain was not committed: {runner.reason(error)}") from error
