"""A database of results: reports, budgets and the newest windows, read in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sqlalchemy as sql

from pipelines.aggregation.audit import Totals
from pipelines.exporter.committed import Period
from pipelines.results.database import ReadOnlyDatabase
from pipelines.sinks.documents import WINDOW_KEY
from pipelines.sinks.tables import ESTIMATES, HEALTH, META, OFFSETS, PERIODS, QUARANTINE, WINDOWS

#: Series that an estimate makes: its value, standard error and two ends.
SERIES = 4
#: Numbers of a job's health.
NUMBERS = ("reports", "duplicates", "chains", "pseudonyms", "state_bytes")


class MetricKey(NamedTuple):
    """A metric of a plan's version."""

    plan: str
    version: int
    metric: str


@dataclass(frozen=True)
class NewestWindow:
    """The newest window of a metric that has reports: its ends in ms, and how many it has.

    ``withheld`` is whether these are too few for estimates to be published.
    """

    start: int
    end: int
    reports: int
    withheld: bool


@dataclass(frozen=True)
class SinkState:
    """What a sink's database has besides."""

    #: Topic and partition to the offset that the sink reads next.
    taken: Mapping[tuple[str, int], int]
    #: The job's health, as it reports it: numbers, or None for what it does not know.
    health: Mapping[str, int | None]
    #: Partition to the offset that the job reads next, as it reports it; None for no report yet.
    offsets: Mapping[str, int] | None


@dataclass(frozen=True)
class Projected:
    """A reading of a database."""

    generation: int
    lineage: str | None
    clock: int | None  #: milliseconds
    levels: Mapping[MetricKey, tuple[int, ...]]  #: metric to the reports that count, by level
    windows: Mapping[MetricKey, NewestWindow]  #: metric to its newest window
    estimates: tuple[sql.Row[Any], ...]  #: of the newest windows, the first of every metric first
    omitted: int  #: estimates beyond the limit
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
        self._last: Projected | None = None

    def read(self) -> Projected:
        """Return a reading; what has not changed since the last call is not read again."""
        self._last = self._database.read(self._read)
        return self._last

    def _read(self, connection: sql.Connection) -> Projected:
        found = connection.execute(sql.select(META)).one()
        last = self._last
        now = (found.projected_generation, found.lineage)
        if last is None or (last.generation, last.lineage) != now:
            last = _projected(connection, *now, found.clock, self._most)
        return replace(last, size=self._database.size, sink=_sink(connection))


def _projected(
    connection: sql.Connection, generation: int, lineage: str | None, clock: int | None, most: int
) -> Projected:
    levels, windows = _windows(connection)
    estimates, omitted = _estimates(connection, most)
    return Projected(
        generation=generation,
        lineage=lineage,
        clock=clock,
        levels=levels,
        windows=windows,
        estimates=estimates,
        omitted=omitted,
        rejected=_by_reason(connection, QUARANTINE.c.rows),
        requeued=_by_reason(connection, QUARANTINE.c.requeued),
        periods=_periods(connection),
    )


def _sink(connection: sql.Connection) -> SinkState | None:
    """Return what a sink's database has besides; None for that of aggregation runs."""
    if not sql.inspect(connection).has_table(OFFSETS.name):
        return None
    taken = {
        (row.topic, row.partition): row.next for row in connection.execute(sql.select(OFFSETS))
    }
    newest = sql.select(HEALTH.c.document).order_by(HEALTH.c.revision.desc())
    health = connection.execute(newest).scalar() or {}
    numbers = {name: health.get(name) for name in NUMBERS}
    return SinkState(
        taken,
        {name: n if type(n) is int else None for name, n in numbers.items()},
        health.get("offsets"),
    )


def _windows(
    connection: sql.Connection,
) -> tuple[dict[MetricKey, tuple[int, ...]], dict[MetricKey, NewestWindow]]:
    """Return reports by level over all windows, and the newest window, of every metric."""
    about = ("window_start", "window_end", "n", "reports_by_level", "withheld")
    columns = [WINDOWS.c[name] for name in (*MetricKey._fields, *about)]
    levels: dict[MetricKey, list[int]] = {}
    newest: dict[MetricKey, NewestWindow] = {}
    query = sql.select(*columns).order_by(*columns[:4])
    for plan, version, metric, start, end, number, by_level, why in connection.execute(query):
        key = MetricKey(plan, version, metric)
        before = levels.setdefault(key, [0] * len(by_level))
        levels[key] = [one + other for one, other in zip(before, by_level, strict=True)]
        newest[key] = NewestWindow(start, end, number, why is not None)
    return {key: tuple(numbers) for key, numbers in levels.items()}, newest


def _estimates(connection: sql.Connection, most: int) -> tuple[tuple[sql.Row[Any], ...], int]:
    """Return estimates of the newest windows, and how many there are beyond ``most``."""
    metric = [WINDOWS.c[name] for name in WINDOW_KEY[:-1]]
    newest = (
        sql.select(*metric, sql.func.max(WINDOWS.c.window_start).label("window_start"))
        .group_by(*metric)
        .subquery()
    )
    same = [ESTIMATES.c[name] == newest.c[name] for name in WINDOW_KEY]
    joined = ESTIMATES.join(newest, sql.and_(*same))
    names = (*MetricKey._fields, "kind", "item", "value", "standard_error", "low", "high")
    order = ("position", *WINDOW_KEY[:-1], "kind", "item")
    known = ESTIMATES.c.value.is_not(None)
    columns: list[sql.ColumnElement[Any]] = [
        *(ESTIMATES.c[name] for name in names),
        sql.func.coalesce(ESTIMATES.c.unit, "").label("unit"),
        sql.func.coalesce(ESTIMATES.c.method, "unbiased").label("method"),
    ]
    chosen = (
        sql.select(*columns)
        .select_from(joined)
        .where(known)
        .order_by(*(ESTIMATES.c[name] for name in order))
        .limit(most)
    )
    rows = tuple(connection.execute(chosen))
    number = sql.select(sql.func.count()).select_from(joined).where(known)
    return rows, connection.execute(number).scalar_one() - len(rows)


def _by_reason(connection: sql.Connection, numbers: sql.Column[int]) -> dict[str, int]:
    total: Counter[str] = Counter()
    query = sql.select(QUARANTINE.c.reason, numbers).where(numbers.is_not(None))
    for reason, rows in connection.execute(query):
        total[reason] += rows
    return dict(sorted(total.items()))


def _periods(connection: sql.Connection) -> tuple[Period, ...]:
    names = Totals.__dataclass_fields__
    query = sql.select(
        PERIODS.c.period_start, PERIODS.c.closed, *(PERIODS.c[name] for name in names)
    ).order_by(PERIODS.c.period_start)
    return tuple(
        Period(start, closed, Totals(*totals))
        for start, closed, *totals in connection.execute(query)
    )
