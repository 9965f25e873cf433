"""A database of results: reports, budgets and the newest windows, read in one transaction."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sqlalchemy as sql

from mechanisms.estimators.poisoning import KINDS
from pipelines.aggregation.audit import Totals
from pipelines.exporter.committed import Period
from pipelines.results.database import ReadOnlyDatabase
from pipelines.results.documents import WINDOW_KEY
from pipelines.results.tables import (
    ALARMS,
    ESTIMATES,
    HEALTH,
    META,
    OFFSETS,
    PERIODS,
    QUARANTINE,
    WINDOWS,
)
from pipelines.results.views import ENDS, NEWEST, VIEW_ESTIMATES, is_complete, newest

#: Series that an estimate makes: its value, standard error and two ends.
SERIES = 4
#: Numbers of a job's health.
NUMBERS = ("reports", "duplicates", "chains", "pseudonyms", "state_bytes", "future")


class MetricKey(NamedTuple):
    """A metric of a plan's version."""

    plan: str
    version: int
    metric: str


@dataclass(frozen=True)
class NewestWindow:
    """The newest complete window of a metric: its ends in ms, and how many reports it has.

    It is the newest one where none is complete. ``withheld`` is whether its reports are too few for
    estimates to be published; ``last``: when the newest window ends, ms.
    """

    start: int
    end: int
    reports: int
    withheld: bool
    complete: bool
    last: int


@dataclass(frozen=True)
class SinkState:
    """Further figures of a sink's database."""

    #: Topic and partition to the offset that the sink reads next.
    taken: Mapping[tuple[str, int], int]
    #: The job's health, as it reports it: numbers, or None for what it does not know.
    health: Mapping[str, int | None]
    #: Partition to the offset that the job reads next, as it reports it; None for no report yet.
    offsets: Mapping[str, int] | None


@dataclass(frozen=True)
class Projected:
    """A reading of a collector's results."""

    source: str | None  #: the topic from which a sink takes them; None of aggregation runs
    job: str  #: name of the state directory, or the one that a streaming job's documents carry
    generation: int
    lineage: str | None
    clock: int | None  #: milliseconds
    levels: Mapping[MetricKey, tuple[int, ...]]  #: metric to the reports that count, by level
    windows: Mapping[MetricKey, NewestWindow]  #: metric to its newest window
    estimates: tuple[sql.Row[Any], ...]  #: of the newest windows, the first of every metric first
    omitted: int  #: estimates beyond the limit
    #: Metric and kind of alarm to the number of windows with it, of the newest two.
    alarms: Mapping[tuple[MetricKey, str], int]
    #: ``rejected`` and ``requeued``: reports by reason: all that were rejected, and those requeued
    #: since, where that is known.
    rejected: Mapping[str, int]
    requeued: Mapping[str, int]
    periods: tuple[Period, ...]
    size: int | None = None  #: bytes of a SQLite database
    sink: SinkState | None = None  #: where a sink writes the database


class Database:
    """A database of results that is only read, with so many series of estimates at most."""

    def __init__(self, url: str | sql.URL, max_series: int) -> None:
        self._database = ReadOnlyDatabase(url)
        self._most = max_series // SERIES
        self._last: dict[str, Projected] = {}
        self._lock = threading.Lock()

    def read(self) -> Mapping[str, Projected]:
        """Return a reading by collector; what has not changed since the last is not read again."""
        with self._lock:
            self._last = self._database.read(self._read)
            return self._last

    def _read(self, connection: sql.Connection) -> dict[str, Projected]:
        found = {}
        for row in connection.execute(sql.select(META).order_by(META.c.collector)):
            last = self._last.get(row.collector)
            now = (row.source, row.state, row.projected_generation, row.lineage)
            if last is None or (last.source, last.job, last.generation, last.lineage) != now:
                last = _projected(connection, row, self._most)
            sink = None if row.source is None else _sink(connection, row.collector)
            found[row.collector] = replace(last, size=self._database.size, sink=sink)
        return found


def _projected(connection: sql.Connection, row: sql.Row[Any], most: int) -> Projected:
    """Return what a database has of the collector of a row of ``meta``."""
    collector = row.collector
    levels, windows = _windows(connection, collector)
    estimates, omitted = _estimates(connection, collector, most)
    return Projected(
        source=row.source,
        job=row.state,
        generation=row.projected_generation,
        lineage=row.lineage,
        clock=row.clock,
        levels=levels,
        windows=windows,
        estimates=estimates,
        omitted=omitted,
        alarms=_alarms(connection, collector, windows),
        rejected=_by_reason(connection, collector, QUARANTINE.c.rows),
        requeued=_by_reason(connection, collector, QUARANTINE.c.requeued),
        periods=_periods(connection, collector),
    )


def _sink(connection: sql.Connection, collector: str) -> SinkState:
    """Return what a sink has written of a collector besides its results."""
    taken = {
        (row.topic, row.partition): row.next for row in connection.execute(sql.select(OFFSETS))
    }
    newest = sql.select(HEALTH.c.document).where(HEALTH.c.collector == collector)
    health = connection.execute(newest).scalar() or {}
    numbers = {name: health.get(name) for name in NUMBERS}
    return SinkState(
        taken,
        {name: n if type(n) is int else None for name, n in numbers.items()},
        health.get("offsets"),
    )


def _windows(
    connection: sql.Connection, collector: str
) -> tuple[dict[MetricKey, tuple[int, ...]], dict[MetricKey, NewestWindow]]:
    """Return reports by level over all windows, and the newest complete one, of every metric."""
    about = ("window_start", "window_end", "n", "reports_by_level", "withheld")
    columns = [*(WINDOWS.c[name] for name in (*MetricKey._fields, *about)), is_complete(WINDOWS)]
    levels: dict[MetricKey, list[int]] = {}
    found: dict[MetricKey, NewestWindow] = {}
    ours = (WINDOWS.c.collector == collector, WINDOWS.c.segment == "")
    query = sql.select(*columns).where(*ours).order_by(*columns[:4])
    for plan, version, metric, start, end, number, by_level, why, done in connection.execute(query):
        key = MetricKey(plan, version, metric)
        before = levels.setdefault(key, [0] * len(by_level))
        levels[key] = [one + other for one, other in zip(before, by_level, strict=True)]
        known = found.get(key)
        if done or known is None or not known.complete:
            found[key] = NewestWindow(start, end, number, why is not None, done, end)
        else:
            found[key] = replace(known, last=end)
    return {key: tuple(numbers) for key, numbers in levels.items()}, found


def _alarms(
    connection: sql.Connection, collector: str, windows: Mapping[MetricKey, NewestWindow]
) -> dict[tuple[MetricKey, str], int]:
    """Return how many of the newest two windows of each metric have each kind of alarm."""
    columns = [ALARMS.c[name] for name in (*MetricKey._fields, "kind", "window_start")]
    query = sql.select(*columns).where(ALARMS.c.collector == collector).order_by(*columns)
    found = dict.fromkeys(itertools.product(windows, KINDS), 0)
    for *names, kind, start in connection.execute(query):
        key = MetricKey(*names)
        if (key, kind) in found and start >= windows[key].last - 2 * (
            windows[key].end - windows[key].start
        ):
            found[key, kind] += 1
    return found


def _estimates(
    connection: sql.Connection, collector: str, most: int
) -> tuple[tuple[sql.Row[Any], ...], int]:
    """Return estimates of the newest complete windows, and how many there are beyond ``most``."""
    names = (*MetricKey._fields, "kind", "item", "value", *ENDS)
    shown = {each.name: each.source.label(each.name) for each in VIEW_ESTIMATES.columns}
    order = ("position", *WINDOW_KEY[:-1], "kind", "item")
    # Figures of all reports: a series for each segment would be too many.
    known = sql.and_(
        ESTIMATES.c.value.is_not(None),
        ESTIMATES.c.segment == "",
        newest(ESTIMATES, NEWEST.c.collector == collector),
    )
    columns: list[sql.ColumnElement[Any]] = [
        *(shown[name] for name in names),
        sql.func.coalesce(ESTIMATES.c.unit, "").label("unit"),
        sql.func.coalesce(ESTIMATES.c.method, "unbiased").label("method"),
    ]
    chosen = (
        sql.select(*columns)
        .where(known)
        .order_by(*(ESTIMATES.c[name] for name in order))
        .limit(most)
    )
    rows = tuple(connection.execute(chosen))
    number = sql.select(sql.func.count()).select_from(ESTIMATES).where(known)
    return rows, connection.execute(number).scalar_one() - len(rows)


def _by_reason(
    connection: sql.Connection, collector: str, numbers: sql.Column[int]
) -> dict[str, int]:
    total: Counter[str] = Counter()
    ours = (QUARANTINE.c.collector == collector, numbers.is_not(None))
    query = sql.select(QUARANTINE.c.reason, numbers).where(*ours)
    for reason, rows in connection.execute(query):
        total[reason] += rows
    return dict(sorted(total.items()))


def _periods(connection: sql.Connection, collector: str) -> tuple[Period, ...]:
    names = Totals.__dataclass_fields__
    columns = (PERIODS.c[name] for name in ("period_start", "closed", *names))
    ours = PERIODS.c.collector == collector
    query = sql.select(*columns).where(ours).order_by(PERIODS.c.period_start)
    return tuple(
        Period(start, closed, Totals(*totals))
        for start, closed, *totals in connection.execute(query)
    )
