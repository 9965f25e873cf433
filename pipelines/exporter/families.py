"""Makes samples of the catalogue's metrics from snapshots of the sources of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.committed import Committed
from pipelines.exporter.database import Projected
from pipelines.exporter.engine import Engine
from pipelines.exporter.lag import Documents, Lag
from pipelines.exporter.readings import Reading, Status
from pipelines.results.fields import milliseconds
from pipelines.results.records import Budget, Health
from pipelines.sinks.quarantine import CURABLE
from pipelines.storage.directory import Problem
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason

#: How many of the newest budget periods are exposed.
PERIODS_EXPOSED = 8
T = TypeVar("T")

#: A micro-epsilon, a millisecond.
_MICRO, _MILLI = 1e6, 1e3


@dataclass(frozen=True)
class Snapshot:
    """Readings of a job's sources at one time; None for sources that were not configured."""

    #: The job's collector; its state directory or topic as long as that is not known.
    collector: str
    at: int  #: when the sources were read, ms of the wall clock
    seconds: float  #: how long reading took
    state: Reading[Committed] | None = None
    database: Reading[Projected] | None = None
    log: Reading[Lag] | None = None
    documents: Reading[Documents] | None = None
    engine: Reading[Engine] | None = None
    registry: Registry | None = None  #: the plans, if there is no state directory that has them

    @property
    def readings(self) -> dict[str, Reading[Any]]:
        return {name: each for name, each in vars(self).items() if isinstance(each, Reading)}


class Samples:
    """Collects samples, of metrics of the catalogue only and with exactly its labels."""

    def __init__(self) -> None:
        self.collector = ""  #: the label ``collector`` of the samples that are added next
        self._found: dict[str, list[tuple[tuple[str, ...], float]]] = {}

    def add(self, name: str, value: float | None, *labels: object) -> None:
        """Add a sample, unless its value is None."""
        assert len(labels) == len(CATALOGUE[name].labels)
        if value is not None:
            whose = (self.collector, *map(str, labels))
            self._found.setdefault(name, []).append((whose, float(value)))

    def families(self) -> Iterator[Metric]:
        for name, described in CATALOGUE.items():
            if name not in self._found:
                continue
            kind = CounterMetricFamily if described.type == "counter" else GaugeMetricFamily
            family = kind(name, described.help, labels=("collector", *described.labels))
            for labels, value in self._found[name]:
                family.add_metric(labels, value)
            yield family


class Exposed(NamedTuple):
    """The exposed figures of a job."""

    collector: str  #: the label ``collector``
    exceeded: int  #: how many scrapes were answered with an older snapshot, or none
    snapshot: Snapshot | None  #: None before the first


def families(jobs: Sequence[Exposed], now: int) -> Iterator[Metric]:
    """Yield the metrics of jobs, with ages as of ``now``, ms."""
    samples = Samples()
    for collector, exceeded, snapshot in jobs:
        samples.collector = collector
        samples.add("sotto_exporter_deadline_exceeded_total", exceeded)
        if snapshot is None:
            continue
        samples.add("sotto_exporter_read_seconds", snapshot.seconds)
        samples.add("sotto_exporter_read_age_seconds", _age(snapshot.at, now))
        for name, reading in snapshot.readings.items():
            for status in Status:
                samples.add("sotto_source_status", status == reading.status, name, status)
        _job(samples, snapshot, now)
        _streams(samples, snapshot, now)
        engine = _value(snapshot.engine)
        if engine is not None:
            _engine(samples, engine, now)
    yield from samples.families()


def _value(reading: Reading[T] | None) -> T | None:
    return None if reading is None else reading.value


def _job(samples: Samples, snapshot: Snapshot, now: int) -> None:
    """Add the samples that come from state directory and database."""
    state, database = _value(snapshot.state), _value(snapshot.database)
    if state is not None:
        _state(samples, state, now)
    if database is not None:
        _database(samples, database)
        if state is not None:
            behind = max(state.manifest.generation - database.health.generation, 0)
            samples.add("sotto_database_behind_generations", behind)
    stream = state is None and database is not None and database.health.source is not None
    if database is not None and stream:
        _stream_health(samples, database.health)
    registry = state.registry if state else snapshot.registry
    if registry is not None:
        _plans(samples, registry)
    # The committed state may be ahead of the database, never behind it.
    newest = state or database
    if newest is None:
        return
    how = newest.manifest if isinstance(newest, Committed) else newest.health
    clock = milliseconds(how.clock) if isinstance(how.clock, datetime) else how.clock
    samples.add("sotto_clock_timestamp_seconds", _seconds(clock))
    samples.add("sotto_run_generation", None if stream else how.generation)
    for reason in Reason:
        rows = newest.rejected.get(reason.label, 0)
        samples.add("sotto_reports_rejected_total", rows, reason.label)
    # A streaming job does not know how many reports were requeued.
    again = newest.manifest.requeued if isinstance(newest, Committed) else newest.requeued
    none = 0 if state or again else None
    for reason in CURABLE:
        samples.add("sotto_reports_requeued_total", again.get(reason.label, none), reason.label)
    _periods(samples, newest.periods, registry)


def _streams(samples: Samples, snapshot: Snapshot, now: int) -> None:
    """Add the samples that come from the log or topics, and from the topic of estimates."""
    lag, documents = _value(snapshot.log), _value(snapshot.documents)
    if lag is not None:
        samples.add("sotto_lag_bytes", lag.size)
        samples.add("sotto_lag_records", lag.records)
        samples.add("sotto_lag_partitions", lag.lagging)
        for partition, progress in lag.partitions.items():
            samples.add("sotto_partition_offset", progress.offset, partition)
            samples.add("sotto_partition_lag_records", progress.records, partition)
        samples.add("sotto_lag_seconds", 0.0 if lag.oldest is None else _age(lag.oldest, now))
    if documents is not None:
        samples.add("sotto_document_age_seconds", _age(documents.newest, now))
        samples.add("sotto_sink_lag_records", documents.behind)


def _engine(samples: Samples, engine: Engine, now: int) -> None:
    add = samples.add
    add("sotto_engine_running", engine.running)
    add("sotto_engine_restarts_total", engine.restarts)
    add("sotto_engine_checkpoint_age_seconds", _age(engine.checkpointed, now))
    add("sotto_engine_checkpoint_interval_seconds", _seconds(engine.interval))
    add("sotto_engine_checkpoint_duration_seconds", _seconds(engine.duration))
    add("sotto_engine_checkpoint_bytes", engine.size)
    add("sotto_engine_checkpoints_total", engine.completed)
    add("sotto_engine_checkpoints_failed_total", engine.failed)
    add("sotto_engine_watermark_timestamp_seconds", _seconds(engine.watermark))
    add("sotto_engine_watermark_age_seconds", _age(engine.watermark, now))
    add("sotto_engine_backpressure_ratio", engine.backpressure)
    add("sotto_engine_busy_ratio", engine.busy)
    add("sotto_engine_heap_ratio", engine.heap)
    add("sotto_engine_worker_bytes", engine.worker_bytes)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / _MILLI


def _timestamp(at: datetime) -> float:
    return milliseconds(at) / _MILLI


def _age(then: int | None, now: int) -> float | None:
    return None if then is None else max(now - then, 0) / _MILLI


def _state(samples: Samples, state: Committed, now: int) -> None:
    add = samples.add
    add("sotto_run_in_progress", state.begun is not None)
    if state.last is not None:
        add("sotto_run_check_age_seconds", _age(state.last.looked, now))
        add("sotto_run_duration_seconds", state.last.seconds)
        add("sotto_future_records_total", state.last.future)
        for problem in Problem:
            add("sotto_run_failed", problem == state.last.problem, problem)
        add("sotto_run_finished_timestamp_seconds", _seconds(state.last.finished))
        add("sotto_run_age_seconds", _age(state.last.finished, now))
    for part, size in state.size.items():
        add("sotto_state_bytes", size, part)
    live = [period for period in state.periods if not period.closed]
    add("sotto_state_chains", sum(period.chains for period in live))
    add("sotto_state_pseudonyms", sum(period.pseudonyms for period in live))
    add("sotto_reports_read_total", state.manifest.tally.reports)
    add("sotto_reports_duplicates_total", state.manifest.tally.duplicates)


def _stream_health(samples: Samples, health: Health) -> None:
    """Add a streaming job's health, under the names of the metrics of aggregation runs."""
    number = health.numbers.get
    samples.add("sotto_reports_read_total", number("reports"))
    samples.add("sotto_reports_duplicates_total", number("duplicates"))
    samples.add("sotto_state_chains", number("chains"))
    samples.add("sotto_state_pseudonyms", number("pseudonyms"))
    samples.add("sotto_state_bytes", number("state_bytes"), "states")
    samples.add("sotto_future_records_total", number("future"))


def _plans(samples: Samples, registry: Registry) -> None:
    samples.add("sotto_period_allowed_epsilon", registry.budget / _MICRO)
    for _, _, plan, metric in registry.metrics:
        first = (metric.delays[0] + plan.resolution) / _MILLI
        labels = (plan.plan, plan.version, metric.name)
        samples.add("sotto_metric_first_release_seconds", first, *labels)


def _database(samples: Samples, database: Projected) -> None:
    add = samples.add
    add("sotto_database_generation", database.health.generation)
    add("sotto_database_bytes", database.size)
    for (_, *key), levels in database.levels.items():
        add("sotto_reports_accepted", sum(levels), *key)
        for level, reports in enumerate(levels):
            add("sotto_reports_by_level", reports, *key, level)
    for (_, *key), (window, last) in database.windows.items():
        add("sotto_estimate_window_reports", window.reports, *key)
        add("sotto_estimate_window_withheld", window.withheld is not None, *key)
        add("sotto_estimate_window_complete", window.complete, *key)
        add("sotto_newest_window_end_timestamp_seconds", _timestamp(last.window_end), *key)
        add("sotto_estimate_window_start_timestamp_seconds", _timestamp(window.window_start), *key)
        add("sotto_estimate_window_end_timestamp_seconds", _timestamp(window.window_end), *key)
    for ((_, *key), kind), number in database.alarms.items():
        add("sotto_poisoning_alarms", number, *key, kind)
    for row in database.estimates:
        how = (row.unit or "", row.method or "unbiased")
        labels = (row.plan, row.version, row.metric, row.kind, row.item, *how)
        add("sotto_estimate", row.value, *labels)
        add("sotto_estimate_standard_error", row.standard_error, *labels)
        add("sotto_estimate_low", row.low, *labels)
        add("sotto_estimate_high", row.high, *labels)
    add("sotto_estimates_exposed", len(database.estimates))
    add("sotto_estimates_omitted", database.omitted)


def _periods(samples: Samples, periods: Sequence[Budget], registry: Registry | None) -> None:
    add, budget = samples.add, None if registry is None else registry.budget / _MICRO
    for period in periods[-PERIODS_EXPOSED:]:
        name = _day(milliseconds(period.period_start))
        add("sotto_period_closed", period.closed, name)
        add("sotto_period_pseudonyms", period.pseudonyms, name)
        add("sotto_period_chains", period.chains, name)
        add("sotto_period_revoked_pseudonyms", period.over_budget, name, "over_budget")
        add("sotto_period_revoked_pseudonyms", period.equivocation, name, "equivocation")
        if budget is not None:
            add("sotto_period_allowed_sum_epsilon", budget * period.pseudonyms, name)
        for audit, spent, most in (
            ("accepted", period.accepted, period.most_accepted),
            ("observed", period.observed, period.most_observed),
        ):
            add("sotto_period_spent_epsilon", spent, name, audit)
            add("sotto_period_spent_max_epsilon", most, name, audit)
            ratio = None if budget is None else most / budget
            add("sotto_period_spent_max_ratio", ratio, name, audit)


def _day(time: int) -> str:
    """Return the name of a period that begins at a time, ms.

    >>> _day(1_370_476_800_000), _day(1_370_480_400_000)
    ('2013-06-06', '2013-06-06T01:00Z')
    """
    try:
        name = f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%dT%H:%MZ}"
    except (OverflowError, ValueError, OSError):
        return f"{time} ms"
    return name.removesuffix("T00:00Z")
