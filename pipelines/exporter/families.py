"""Samples of the catalogue's metrics, made from readings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.committed import Committed, Period
from pipelines.exporter.documents import Documents
from pipelines.exporter.lag import Lag
from pipelines.exporter.projected import Projected, Sunk
from pipelines.exporter.sources import Source, Status
from pipelines.sinks.quarantine_records import CURABLE
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason

#: The newest budget periods of which something is said; others vanish from the exposition.
PERIODS_EXPOSED = 8
#: A micro-epsilon, a millisecond.
_MICRO, _MILLI = 1e6, 1e3


@dataclass(frozen=True)
class Reading:
    """All sources at one time; None for those that are not asked for.

    Parameters
    ----------
    at : int
        When it was read, ms of the wall clock.
    seconds : float
        How long it took.
    state : Source of Committed, optional
    database : Source of Projected, optional
    log : Source of Lag, optional
    documents : Source of Documents, optional
    registry : Registry, optional
        The plans, where no state directory says which.
    """

    at: int
    seconds: float
    state: Source[Committed] | None = None
    database: Source[Projected] | None = None
    log: Source[Lag] | None = None
    documents: Source[Documents] | None = None
    registry: Registry | None = None

    @property
    def sources(self) -> dict[str, Source[object]]:
        """The sources asked for, by name."""
        named = {
            "state": self.state,
            "database": self.database,
            "log": self.log,
            "documents": self.documents,
        }
        return {name: Source(s.status, s.value, s.problem) for name, s in named.items() if s}


class Samples:
    """Collects samples; only metrics of the catalogue, with exactly its labels, are taken."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[tuple[str, ...], float]]] = {}

    def add(self, name: str, value: float | None, *labels: object) -> None:
        """Take a sample; none where the value is None."""
        assert len(labels) == len(CATALOGUE[name].labels)
        if value is not None:
            self._found.setdefault(name, []).append((tuple(map(str, labels)), float(value)))

    def families(self) -> Iterator[Metric]:
        """Yield what was taken, in the catalogue's order."""
        for name, described in CATALOGUE.items():
            if name not in self._found:
                continue
            kind = CounterMetricFamily if described.type == "counter" else GaugeMetricFamily
            family = kind(name, described.help, labels=described.labels)
            for labels, value in self._found[name]:
                family.add_metric(labels, value)
            yield family


def families(reading: Reading | None, now: int, exceeded: int) -> Iterator[Metric]:
    """Yield the metrics of a reading.

    Parameters
    ----------
    reading : Reading or None
        None if there has been none in time.
    now : int
        Milliseconds of the wall clock, to which ages are counted.
    exceeded : int
        Scrapes that a reading did not answer in time.
    """
    samples = Samples()
    samples.add("sotto_exporter_deadline_exceeded_total", exceeded)
    if reading is not None:
        samples.add("sotto_exporter_read_seconds", reading.seconds)
        samples.add("sotto_exporter_read_age_seconds", _age(reading.at, now))
        for name, source in reading.sources.items():
            for status in Status:
                samples.add("sotto_source_status", status == source.status, name, status)
        _of_reading(samples, reading, now)
    yield from samples.families()


def _of_reading(samples: Samples, reading: Reading, now: int) -> None:
    state = reading.state.value if reading.state else None
    database = reading.database.value if reading.database else None
    lag = reading.log.value if reading.log else None
    if state is not None:
        _state(samples, state, now)
    if database is not None:
        _database(samples, database)
        samples.add(
            "sotto_database_behind_generations",
            None if state is None else max(state.generation - database.generation, 0),
        )
    sunk = database.sunk if database and state is None else None
    if sunk is not None:
        _sunk(samples, sunk)
    registry = state.registry if state else reading.registry
    if registry is not None:
        _plans(samples, registry)
    # What is committed is ahead of what is projected, if anything.
    newest = state or database
    if newest is not None:
        clock = None if newest.clock is None else newest.clock / _MILLI
        samples.add("sotto_clock_timestamp_seconds", clock)
        samples.add("sotto_run_generation", None if sunk else newest.generation)
        for reason in Reason:
            rows = newest.rejected.get(reason.label, 0)
            samples.add("sotto_reports_rejected_total", rows, reason.label)
        # A streaming job cannot tell.
        none = 0 if state or newest.requeued else None
        for reason in CURABLE:
            again = newest.requeued.get(reason.label, none)
            samples.add("sotto_reports_requeued_total", again, reason.label)
        _periods(samples, newest.periods, registry)
    if lag is not None:
        _lag(samples, lag, now)
    documents = reading.documents.value if reading.documents else None
    if documents is not None:
        age = None if documents.newest is None else _age(documents.newest, now)
        samples.add("sotto_document_age_seconds", age)
        samples.add("sotto_sink_lag_records", documents.behind)


def _age(then: int, now: int) -> float:
    return max(now - then, 0) / _MILLI


def _state(samples: Samples, state: Committed, now: int) -> None:
    add = samples.add
    add("sotto_run_undertaken", state.undertaken)
    if state.last is not None:
        add("sotto_run_look_age_seconds", _age(state.last.looked, now))
        add("sotto_run_duration_seconds", state.last.seconds)
        if state.last.finished is not None:
            add("sotto_run_finished_timestamp_seconds", state.last.finished / _MILLI)
            add("sotto_run_age_seconds", _age(state.last.finished, now))
    for part, size in state.size.items():
        add("sotto_state_bytes", size, part)
    live = [period.totals for period in state.periods if not period.closed]
    add("sotto_state_chains", sum(totals.chains for totals in live))
    add("sotto_state_pseudonyms", sum(totals.pseudonyms for totals in live))
    add("sotto_reports_read_total", state.tally.reports)
    add("sotto_reports_duplicates_total", state.tally.duplicates)


def _sunk(samples: Samples, sunk: Sunk) -> None:
    """Add what a streaming job says of itself, under the names that runs have for it."""
    health = sunk.health
    samples.add("sotto_reports_read_total", health["reports"])
    samples.add("sotto_reports_duplicates_total", health["duplicates"])
    samples.add("sotto_state_chains", health["chains"])
    samples.add("sotto_state_pseudonyms", health["pseudonyms"])
    samples.add("sotto_state_bytes", health["state_bytes"], "states")


def _plans(samples: Samples, registry: Registry) -> None:
    samples.add("sotto_period_allowed_epsilon", registry.budget / _MICRO)
    for _, _, plan, metric in registry.metrics:
        first = (metric.delays[0] + plan.resolution) / _MILLI
        labels = (plan.plan, plan.version, metric.name)
        samples.add("sotto_metric_first_release_seconds", first, *labels)


def _database(samples: Samples, database: Projected) -> None:
    add = samples.add
    add("sotto_database_generation", database.generation)
    add("sotto_database_bytes", database.size)
    for key, rungs in database.rungs.items():
        add("sotto_reports_accepted", sum(rungs), *key)
        for rung, reports in enumerate(rungs):
            add("sotto_reports_by_rung", reports, *key, rung)
    for key, window in database.windows.items():
        add("sotto_estimate_window_reports", window.reports, *key)
        add("sotto_estimate_window_withheld", window.withheld, *key)
        add("sotto_estimate_window_start_timestamp_seconds", window.start / _MILLI, *key)
        add("sotto_estimate_window_end_timestamp_seconds", window.end / _MILLI, *key)
    for row in database.estimates:
        labels = (*row.metric, row.kind, row.item, row.unit, row.method)
        add("sotto_estimate", row.value, *labels)
        add("sotto_estimate_standard_error", row.standard_error, *labels)
        add("sotto_estimate_low", row.low, *labels)
        add("sotto_estimate_high", row.high, *labels)
    add("sotto_estimates_exposed", len(database.estimates))
    add("sotto_estimates_omitted", database.omitted)


def _periods(samples: Samples, periods: tuple[Period, ...], registry: Registry | None) -> None:
    add, budget = samples.add, None if registry is None else registry.budget / _MICRO
    for period in periods[-PERIODS_EXPOSED:]:
        name, totals = _day(period.start), period.totals
        add("sotto_period_closed", period.closed, name)
        add("sotto_period_pseudonyms", totals.pseudonyms, name)
        add("sotto_period_chains", totals.chains, name)
        add("sotto_period_revoked_pseudonyms", totals.over_budget, name, "over_budget")
        add("sotto_period_revoked_pseudonyms", totals.equivocation, name, "equivocation")
        if budget is not None:
            add("sotto_period_allowed_sum_epsilon", budget * totals.pseudonyms, name)
        for audit, spent, most in (
            ("accepted", totals.accepted, totals.most_accepted),
            ("observed", totals.observed, totals.most_observed),
        ):
            add("sotto_period_spent_epsilon", spent / _MICRO, name, audit)
            add("sotto_period_spent_max_epsilon", most / _MICRO, name, audit)
            ratio = None if budget is None else most / _MICRO / budget
            add("sotto_period_spent_max_ratio", ratio, name, audit)


def _lag(samples: Samples, lag: Lag, now: int) -> None:
    samples.add("sotto_lag_bytes", lag.size)
    samples.add("sotto_lag_records", lag.records)
    samples.add("sotto_lag_lanes", lag.lanes)
    for partition, progress in lag.partitions.items():
        samples.add("sotto_partition_offset", progress.offset, partition)
        samples.add("sotto_partition_lag_records", progress.records, partition)
    samples.add("sotto_lag_seconds", 0.0 if lag.oldest is None else _age(lag.oldest, now))


def _day(time: int) -> str:
    """Return the name of a period that begins at a time, ms.

    Examples
    --------
    >>> _day(1_370_476_800_000), _day(1_370_480_400_000)
    ('2013-06-06', '2013-06-06T01:00Z')
    """
    try:
        name = f"{datetime.fromtimestamp(time // 1000, UTC):%Y-%m-%dT%H:%MZ}"
    except (OverflowError, ValueError, OSError):
        return f"{time} ms"
    return name.removesuffix("T00:00Z")
