"""Submits a streaming pipeline, for ``sotto stream``, after everything has been checked.

A job's folder keeps what must stay the same from one submission to the next: ``job.json``, with the
name that the job's documents carry, and its plans. Workers read the plans there, also those that
come later, so all of them must reach the folder under the same path.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from pipelines.aggregation.result_rows import Candidates
from pipelines.beam.plans import PlansFolder, PlanSource, keep_since
from pipelines.beam.runners import Runner
from pipelines.beam.transforms import ReadReports, WriteEstimates, WriteRejects, aggregated
from pipelines.flink import JOB_PREFIX
from pipelines.sinks.base import RejectsSink, Sink
from pipelines.sinks.kafka import DocumentsSink, EstimatesTopic, QuarantineSink
from pipelines.sinks.quarantine import RejectsFolder
from pipelines.sinks.registry import open_sink
from pipelines.sources.base import ReportSource
from pipelines.sources.kafka import ReportEpochs, RequeueTopic
from pipelines.sources.log import EmbeddedLog
from pipelines.storage import files
from pipelines.storage.files import dump_document, load_document
from pipelines.storage.plans import StoredPlans
from sotto.errors import AggregationError, ParameterError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic, Stay
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

FORMAT = 1


@dataclass(frozen=True)
class Topics:
    """Topics of reports as source, and the topics of the same name for results and rejects."""

    broker: Broker
    #: Epochs of one name. A later epoch is read once its topic is there.
    topics: tuple[ReportTopic, ...]

    def __post_init__(self) -> None:
        if len({topic.name for topic in self.topics}) != 1:
            raise ParameterError("topics must be at least one, and epochs of one name")

    @property
    def name(self) -> str:
        return self.topics[0].name

    def check(self, registry: Registry) -> None:
        stay = Stay(registry.horizon, max(plan.retention for plan in registry.plans))
        with connected(self.broker) as found:
            for topic in self.topics:
                found.check(topic, registry.horizon)
            for kind in ("estimates", "quarantine"):
                found.check_sink(SinkTopic(self.name, kind), stay)

    def occupied(self) -> bool:
        """Return whether the topic of estimates has documents."""
        estimates = EstimatesTopic(self.broker, SinkTopic(self.name, "estimates"))
        with closing(estimates.records(estimates.found().partitions, {})) as records:
            return next(records, None) is not None

    def sources(self) -> list[ReportSource]:
        first = min(topic.epoch for topic in self.topics)
        return [
            ReportEpochs(self.broker, self.name, first),
            RequeueTopic(self.broker, str(SinkTopic(self.name, "requeue"))),
        ]

    def sinks(self, job: str) -> tuple[Sink, RejectsSink]:
        estimates = str(SinkTopic(self.name, "estimates"))
        rejected = str(SinkTopic(self.name, "quarantine"))
        return (DocumentsSink(self.broker, estimates), QuarantineSink(self.broker, rejected, job))


@dataclass(frozen=True)
class Log:
    """An embedded log as source, a database for results, and a folder for rejects."""

    path: Path  #: the log's folder
    database: str  #: URL
    quarantine: Path  #: the folder for rejects

    def check(self, registry: Registry) -> None:
        EmbeddedLog(self.path).open(registry)

    def sources(self) -> list[ReportSource]:
        return [EmbeddedLog(self.path.resolve())]

    def sinks(self, job: str) -> tuple[Sink, RejectsSink]:
        return open_sink(self.database, job), RejectsFolder(str(self.quarantine.resolve()))


class JobFolder:
    """The folder of a job.

    Raises AggregationError if it is a state directory of bounded runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._file = self.path / "job.json"
        if (self.path / "MANIFEST.json").exists():
            raise AggregationError(
                f"{path} is of sotto aggregate: a streaming job has its own folder"
            )

    @property
    def plans(self) -> StoredPlans:
        return StoredPlans(self.path / "plans")

    def job(self) -> str | None:
        """Return the random name that the job's documents carry; None if none was submitted."""
        try:
            value = load_document(self._file.read_bytes(), str(self._file), FORMAT)
        except FileNotFoundError:
            return None
        return str(value["name"])

    def begin(
        self,
        plans: Sequence[CompiledPlan],
        candidates: Candidates,
        before: str | None,
        *,
        anew: bool,
    ) -> str:
        """Return the name of the job that is about to be submitted; note it and its plans.

        ``before``: the name that :meth:`job` returned. ``anew``: whether to draw a new name.
        """
        job = secrets.token_hex(8) if before is None or anew else before
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "LOCK", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.job() != before:
                raise AggregationError(
                    f"the job in {self.path} has just been submitted by somebody else"
                )
            self.keep(plans, candidates)
            if before is None or anew:
                # A job that begins anew has all these plans from its start.
                keep_since(self.path / "plans", {})
            files.replace(self._file, dump_document({"format": FORMAT, "name": job}))
        return job

    def keep(self, plans: Sequence[CompiledPlan], candidates: Candidates) -> None:
        """Keep plans for the workers of a submitted job, and note when new plans came."""
        PlansFolder(str(self.path / "plans")).keep(plans, candidates)

    def forget(self, job: str, before: str | None) -> None:
        """Take back :meth:`begin`, since the engine has not accepted the job."""
        if self.job() == job:
            if before is None:
                self._file.unlink()
            else:
                files.replace(self._file, dump_document({"format": FORMAT, "name": before}))


def submit(
    folder: JobFolder,
    io: Topics | Log,
    plans: Sequence[CompiledPlan],
    candidates: Candidates,
    options: Sequence[str],
    *,
    anew: bool = False,
    until_end: bool = False,
    **settings: int,
) -> Any:
    """Submit a pipeline and return Beam's result, which can be waited for.

    ``io``: what is read and written. ``plans``, ``candidates``: those that are given now, in
    addition to those that the job has had. ``options``: Beam's, as on the command line. ``anew``:
    whether to count from the beginning although the job has run before; its documents are then
    those of another job. ``until_end``: whether to read up to the present end of all partitions,
    close all periods, and end. ``**settings``: those of :class:`~pipelines.beam.SottoOptions`,
    without ``sotto_``.

    Raises SottoError, which says what to do, if the job cannot run or would do harm; then nothing
    has been submitted.
    """
    runner = Runner(tuple(options))
    if not until_end:
        runner = _unbounded(runner)
    if not runner.embedded and isinstance(io, Log) and _has_password(io.database):
        raise ParameterError(
            "the database's URL has a password, which would be part of the pipeline, for engine "
            "and workers to keep: leave it out, and set PGPASSFILE where workers are started"
        )
    registry, strings = folder.plans.with_given(plans, candidates)
    registry.require_signatures()
    goes_on = any(each.partition("=")[0] in _GOING_ON for each in options)
    before = folder.job()
    if before is not None and not (goes_on or anew):
        raise AggregationError(
            f"the job in {folder.path} has run before: without its state it would count everything "
            "again. Go on from a savepoint or checkpoint with --savepoint_path, or give "
            "--from-scratch, which counts from the beginning under a new name"
        )
    if goes_on and anew:
        raise ParameterError(
            "--from-scratch begins without a state, --savepoint_path with one: what that has "
            "published, under the job's name of before, would never be published under a new name"
        )
    if goes_on and before is None:
        raise AggregationError(
            f"no job has run from {folder.path}: --savepoint_path goes with the folder of the job "
            "whose state it is, which holds the name of what that has published"
        )
    io.check(registry)
    if before is None and not anew and isinstance(io, Topics) and io.occupied():
        raise AggregationError(
            f"{io.name}-estimates has documents of another job, and sinks would take none of this "
            f"one's: give that job's folder instead of {folder.path}; or --from-scratch, with "
            "sotto sink --replace or another database"
        )
    job = folder.begin(registry.plans, strings, before, anew=anew)
    named = {f"sotto_{name}": value for name, value in settings.items()}
    try:
        pipeline = runner.pipeline(JOB_PREFIX + job, {"sotto_job": job, **named})
        lay_out(pipeline, io, job, PlansFolder(str(folder.path / "plans")), until_end=until_end)
        return pipeline.run()
    except Exception:
        folder.forget(job, before)
        raise


def lay_out(
    pipeline: beam.Pipeline,
    io: Topics | Log,
    job: str,
    plans: PlanSource,
    *,
    until_end: bool = False,
) -> None:
    """Add all transforms, from the sources to the sinks, to a pipeline."""
    messages = tuple(
        pipeline | f"Read {source.label}" >> ReadReports(source, plans, until_end=until_end)
        for source in io.sources()
    )
    documents, rejects = aggregated(messages, plans)
    to_documents, to_rejects = io.sinks(job)
    documents | "Write estimates" >> WriteEstimates(to_documents)
    rejects | "Write rejects" >> WriteRejects(to_rejects)


def _has_password(url: str) -> bool:
    with suppress(ArgumentError):  # A text that is no URL is refused by whoever connects.
        return make_url(url).password is not None
    return False


def _unbounded(runner: Runner) -> Runner:
    """Return a runner with the options that a pipeline without an end needs."""
    if runner.embedded:
        raise ParameterError(
            "--runner is missing: a pipeline without an end needs an engine, such as --runner "
            "PortableRunner --job_endpoint localhost:8099 (make flink starts one here); on one "
            "machine sotto aggregate --follow does the same without an engine"
        )
    given = {each.partition("=")[0] for each in runner.options}
    more = [*FLINK, f"--sdk_worker_parallelism={runner.parallelism}"] if runner.flink else []
    more = [each for each in more if each.partition("=")[0] not in given]
    return Runner((*runner.options, *more, "--streaming"), runner.report)


#: Options by which runners go on with a job's state.
_GOING_ON = ("--savepoint_path", "--update")
#: Options for Flink unless the command line has them.
#: ``--operator_chaining`` as a bare flag turns chaining off. A savepoint can be restored with
#: another parallelism only if operators are not chained and the maximum of parallelism never
#: changes.
#: ``--fail_on_checkpointing_errors`` as a bare flag turns off that a failed checkpoint ends the
#: job: each fails while output waits for a broker that is away.
#: ``--finish_bundle_before_checkpointing``: a checkpoint would keep output of an unfinished bundle
#: under a number of the stage's output, which can be another after a restart of the job server; a
#: restored job would then send it to the wrong stage.
#: ``--max_bundle_time_mills`` is Beam's spelling.
FLINK = (
    "--operator_chaining",
    "--max_parallelism=128",
    "--checkpointing_interval=10000",
    "--externalized_checkpoints_enabled",
    "--retain_externalized_checkpoints_on_cancellation",
    "--finish_bundle_before_checkpointing",
    "--fail_on_checkpointing_errors",
    "--max_bundle_size=1000",
    "--max_bundle_time_mills=500",
)
