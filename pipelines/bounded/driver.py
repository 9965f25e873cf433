"""Commits generations to a state directory: takes ranges of a log or messages of quarantine, or
forgets pseudonyms.

A commit has these steps, in this order. The text in brackets says what a crash during the step
leaves.

1. :meth:`Driver.begin` makes the *intent* durable. It lists the ranges of the log or the messages
   of quarantine that the generation takes, or the pseudonyms that it forgets. [The last commit.]
2. A job writes states, counts and quarantine into the folder of its attempt. [The last commit, an
   intent, and files that are never read. The next process removes these files, and takes what the
   intent lists, however far the log has grown.]
3. The files that the job's summary lists are moved to the names at which they count, and made
   durable. [The same.]
4. The *manifest* that names those files is made durable and renamed: this is the commit. [The same,
   or the new generation.]
5. Files that are no longer named, and the intent, are removed. [The new generation, and files that
   the next process removes.]
6. Results are projected into the database, in one transaction that stores their generation. [A
   database that is behind: the next process projects what it lacks. If the database is away,
   reports are counted without it, and it is behind, too.]
7. Changed windows are published to topics, if there are any. [A topic that is behind: the next
   process publishes what it lacks.]
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

from pipelines.aggregation.result_rows import Candidates
from pipelines.beam.runners import EMBEDDED, Runner
from pipelines.bounded.forgetting import forget
from pipelines.bounded.job import Job, run
from pipelines.sinks.base import SinkError
from pipelines.sinks.committed import CommittedGeneration
from pipelines.sinks.kafka import Publish
from pipelines.sinks.sql import Results
from pipelines.sources.base import Ranges
from pipelines.storage.directory import LastRun, Problem, StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent, WorkItem
from pipelines.storage.manifest import advance
from pipelines.storage.output import JobOutput
from pipelines.storage.published import publish
from pipelines.storage.quarantine_files import QuarantineFiles
from sotto.clocks import now_ms
from sotto.errors import AggregationError, BrokerError
from sotto.plan.registry import Registry, names_of

#: The names that ``checkpoint`` is called with in a commit that is projected, in order.
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


@dataclass(eq=False, repr=False)
class Driver:
    """Commits to a state directory; it is made and used under the directory's lock.

    ``registry``: all plans under which reports have been counted, and maybe more. ``candidates``:
    strings to look for, by plan fingerprint and metric. ``results``: the database into which each
    commit is projected. ``checkpoint``: called after every step of a commit; tests kill the process
    in it. ``publish``: functions that publish a commit. ``runner``: runs the jobs. ``elsewhere``:
    as for :meth:`pipelines.storage.directory.StateDirectory.open`. ``counts_on``: whether to go on
    counting while the database is away.

    Attributes: ``manifest`` is what is committed. ``unprojected`` and ``unpublished`` say why a
    commit could not be projected or published; it is then not tried again by this driver.

    Raises AggregationError if the directory cannot be used or a plan is missing, PlanError if a
    plan has another fingerprint than one of its name and version had before.
    """

    directory: StateDirectory
    registry: Registry
    candidates: Candidates
    results: Results
    checkpoint: Checkpoint
    publish: Sequence[Publish] = ()
    runner: Runner = EMBEDDED
    elsewhere: InitVar[str | None] = None
    counts_on: bool = False
    unprojected: str = field(default="", init=False)
    unpublished: str = field(default="", init=False)

    def __post_init__(self, elsewhere: str | None) -> None:
        self.manifest = self.directory.open(elsewhere)
        self._last = LastRun.of(self.directory.path)
        self.manifest.check_plans(self.registry)
        self.directory.plans.keep(self.registry.plans, self.candidates)
        self.publish_due()
        self._project()
        self._publish()

    def interrupted(self) -> Intent | None:
        return self.directory.intent(self.manifest)

    def own_interrupted(self, kind: str | None) -> Intent | None:
        """Return the intent of an interrupted command, if there is one.

        Raises AggregationError if it is of another kind than ``kind``.
        """
        found = self.interrupted()
        if found is not None and found.kind != kind:
            raise AggregationError("a run was interrupted: finish it first with sotto aggregate")
        return found

    def begin(self, intent: Intent) -> None:
        """Make an intent durable; from here on a restart takes the same input."""
        self.directory.write_intent(intent, self.checkpoint)
        self.checkpoint("begun")

    def commit(self, intent: Intent, source: Ranges | None) -> JobOutput:
        """Take the input of an intent that has begun, and commit it; ``source`` has its ranges.

        Raises AggregationError or BrokerError if nothing was committed (a restart takes the input
        again), or if it was committed and could not be projected.
        """
        began = time.monotonic()
        ranges, items = self._taken(intent, source)
        job = Job.of(ranges, self.directory.files, self.registry, self.manifest, intent)
        output = forget(job, intent) if intent.kind == "forget" else self._run(job, items)
        self.checkpoint("written")
        job.files.place(job.attempt, output.files)
        self.checkpoint("placed")
        self._advance(intent, output)
        self._project()
        self.note(time.monotonic() - began)
        self._publish()
        return output

    def _taken(self, intent: Intent, source: Ranges | None) -> tuple[Ranges, tuple[WorkItem, ...]]:
        """Return the source of an intent's reports, and the work items to read from it."""
        if intent.kind == "run":
            assert source is not None
            return source, intent.items
        known = names_of(self.registry.plans)
        missing = sorted({each.plan for each in intent.requeue} - known.keys())
        if missing:
            raise AggregationError(
                "an interrupted requeue takes reports of plans that are missing: "
                + ", ".join(missing)
            )
        withheld = QuarantineFiles(self.directory.files, intent.requeue, self.manifest.quarantine)
        return withheld, withheld.items

    def _run(self, job: Job, items: tuple[WorkItem, ...]) -> JobOutput:
        """Run a job; an unexpected error of it becomes an :class:`AggregationError`."""
        try:
            return run(job, items, self.runner)
        except (AggregationError, BrokerError):
            raise
        except Exception as error:
            # Beam raises a stage's exception again, as the same or as another class.
            reason = self.runner.reason(error)
            raise AggregationError(f"the run was not committed: {reason}") from error

    def expire(self, now: int) -> None:
        """Commit a generation that drops quarantine whose retention is over by ``now``, ms."""
        manifest = self.manifest
        self._advance(Intent(manifest.generation + 1, manifest.clock, ()), JobOutput(), now)
        self._project()
        self._publish()

    def _advance(self, intent: Intent, output: JobOutput, now: int | None = None) -> None:
        manifest = advance(self.manifest, intent, output, self.registry, now)
        pages = output.pages | manifest.due(self.registry.plans, manifest.time)
        published = publish(self.directory.files, manifest, pages, self.registry)
        manifest = replace(manifest, published={**manifest.published, **published})
        manifest = manifest.with_plans(self.registry.plans)
        self.directory.files.sync(manifest)
        self.checkpoint("synced")
        self.directory.write_manifest(manifest, self.checkpoint)
        self.checkpoint("committed")
        self.manifest = manifest
        self.directory.collect(manifest)
        self.checkpoint("collected")

    def publish_due(self, now: int | None = None) -> None:
        """Commit a generation without new reports, if some page has something to publish.

        Such pages have a window that becomes complete by ``now``, ms, or one whose plan asks for
        another number of reports than before. While a commit is interrupted nothing is done, since
        finishing it does the same.
        """
        began, manifest = time.monotonic(), self.manifest
        plans = [p for p in self.registry.plans if p.fingerprint_hex in manifest.plans]
        if not manifest.due(plans, now) or self.interrupted() is not None:
            return
        intent = Intent(manifest.generation + 1, manifest.clock, (), time=now)
        self._advance(intent, JobOutput())
        self._project()
        self.note(time.monotonic() - began)
        self._publish()

    def note(self, seconds: float | None = None, future: Mapping[str, int] | None = None) -> None:
        """Leave a note of how the run went, for exporter and pages.

        ``seconds``: how long a run took that is finished now; None if none is. ``future``: how many
        records from the future were taken, by partition.
        """
        generation, now = self.manifest.generation, now_ms()
        last = self._last or LastRun(generation, now)
        note = replace(last, generation=generation, looked=now, failed=None, problem="")
        if seconds is not None or last.generation != generation:
            note = replace(note, finished=None if seconds is None else now, seconds=seconds)
        if future:
            total = note.future + sum(future.values())
            note = replace(note, future=total, future_at=now, future_in=", ".join(sorted(future)))
        if self.unprojected or self.unpublished:
            problem = Problem.DATABASE if self.unprojected else Problem.UNPUBLISHED
            note = replace(note, failed=now, problem=problem)
        note.leave(self.directory.path)
        self._last = note

    def _project(self) -> None:
        """Bring the database to the committed generation, if it is behind and not away."""
        if self.unprojected:
            return
        try:
            self._bring_forward()
        except SinkError as error:
            if not self.counts_on:
                raise
            self.unprojected = str(error)

    def _bring_forward(self) -> None:
        manifest = self.manifest
        since = self.results.projected(self.registry.collector, manifest.state)
        if since > manifest.generation:
            raise AggregationError(
                f"the database has generation {since}, but the state directory only "
                f"{manifest.generation}: one of them was restored from a copy"
            )
        # If the digests differ, the results are of a copy of the directory that went another way.
        lineage = self.results.lineage(self.registry.collector)
        anew = since == 0 or lineage != manifest.digest(since)
        since = 0 if anew else since
        if since < manifest.generation:
            self.results.project(self._generation.projection(since, anew=anew))
            self.checkpoint("projected")

    @property
    def _generation(self) -> CommittedGeneration:
        return CommittedGeneration(self.directory, self.manifest, self.registry, self.candidates)

    def _publish(self) -> None:
        """Bring each topic to the committed generation, even if another cannot be reached."""
        if not self.publish or self.unpublished:
            return
        failed = []
        for each in self.publish:
            try:
                each(self._generation)
            except BrokerError as error:
                failed.append(str(error))
        self.unpublished = "; ".join(failed)
        if not failed:
            self.checkpoint("published")
