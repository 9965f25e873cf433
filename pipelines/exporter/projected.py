"""What a database of results says of reports, budgets and the newest windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sql

from pipelines.aggregation.audit import Totals
from pipelines.exporter.committed import Period
from pipelines.exporter.sources import MissingError
from pipelines.sinks.results import ESTIMATES, META, PERIODS, QUARANTINE, WINDOWS
from pipelines.sinks.tables import HEALTH, OFFSETS

#: Of what a job says of itself.
NUMBERS = ("reports", "duplicates", "chains", "pseudonyms", "state_bytes")
_KEY = ("collector", "plan", "version", "metric")


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
class EstimateRow:
    """An estimate of a newest window; None for what the reports do not determine."""

    metric: MetricKey
    kind: str
    item: str
    unit: str
    method: str
    value: float
    standard_error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Sunk:
    """What a sink knows besides.

    Parameters
    ----------
    job : str
        The job whose results the database holds, as its documents name it.
    taken : mapping
        Topic and partition to the offset that it takes next.
    health : mapping
        How the job is, as it says itself: numbers, or None for what it does not know.
    offsets : mapping or None
        Partition to the offset that the job reads next, as it says itself; None if it has said
        nothing yet.
    """

    job: str
    taken: Mapping[tuple[str, int], int]
    health: Mapping[str, int | None]
    offsets: Mapping[str, int] | None


@dataclass(frozen=True)
class Projected:
    """What a database says.

    Parameters
    ----------
    generation : int
    lineage : str or None
    clock : int or None
        Milliseconds.
    size : int or None
        Bytes of a SQLite database.
    rungs : mapping
        Metric to the reports that count, by rung.
    windows : mapping
        Metric to its newest window.
    estimates : tuple of EstimateRow
        Of the newest windows, the first of every metric first.
    omitted : int
        Estimates beyond what was asked for.
    rejected, requeued : mapping
        Reports by reason: all that were rejected, and those taken again since, where that is known.
    periods : tuple of Period
    sunk : Sunk or None
        Where a sink writes the database: what it knows besides.
    """

    generation: int
    lineage: str | None
    clock: int | None
    size: int | None
    rungs: Mapping[MetricKey, tuple[int, ...]]
    windows: Mapping[MetricKey, NewestWindow]
    estimates: tuple[EstimateRow, ...]
    omitted: int
    rejected: Mapping[str, int]
    requeued: Mapping[str, int]
    periods: tuple[Period, ...]
    sunk: Sunk | None = None


def projected_generation(connection: sql.Connection) -> tuple[int, str | None]:
    """Return the generation that a database has, and its lineage.

    Raises
    ------
    MissingError
        It has no results.
    """
    if not sql.inspect(connection).has_table(META.name):
        raise MissingError("the database has no results")
    found = connection.execute(sql.select(META.c.projected_generation, META.c.lineage)).first()
    if found is None:
        raise MissingError("the database has no results yet")
    return found[0], found[1]


def projected(connection: sql.Connection, most: int) -> Projected:
    """Return what a database with results says.

    Parameters
    ----------
    connection : Connection
        In a transaction.
    most : int
        Estimates at most.
    """
    columns = (META.c.projected_generation, META.c.lineage, META.c.clock)
    generation, lineage, clock = connection.execute(sql.select(*columns)).one()
    rungs, windows = _windows(connection)
    estimates, omitted = _estimates(connection, most)
    return Projected(
        generation=generation,
        lineage=lineage,
        clock=clock,
        size=None,
        rungs=rungs,
        windows=windows,
        estimates=estimates,
        omitted=omitted,
        rejected=_by_reason(connection, QUARANTINE.c.rows),
        requeued=_by_reason(connection, QUARANTINE.c.requeued),
        periods=_periods(connection),
    )


def sunk(connection: sql.Connection) -> Sunk | None:
    """Return what a sink knows; None if none writes the database."""
    if not sql.inspect(connection).has_table(OFFSETS.name):
        return None
    taken = {
        (row.topic, row.partition): row.next for row in connection.execute(sql.select(OFFSETS))
    }
    newest = sql.select(HEALTH.c.document).order_by(HEALTH.c.revision.desc())
    health = connection.execute(newest).scalar() or {}
    numbers = {name: health.get(name) for name in NUMBERS}
    job = connection.execute(sql.select(META.c.state)).scalar_one()
    return Sunk(
        job,
        taken,
        {name: n if type(n) is int else None for name, n in numbers.items()},
        health.get("offsets"),
    )


def _windows(
    connection: sql.Connection,
) -> tuple[dict[MetricKey, tuple[int, ...]], dict[MetricKey, NewestWindow]]:
    """Return reports by rung over all windows, and the newest window, of every metric."""
    about = ("window_start", "window_end", "n", "reports_by_level", "withheld")
    columns = [WINDOWS.c[name] for name in (*MetricKey._fields, *about)]
    rungs: dict[MetricKey, list[int]] = {}
    newest: dict[MetricKey, NewestWindow] = {}
    query = sql.select(*columns).order_by(*columns[:4])
    for plan, version, metric, start, end, number, by_level, why in connection.execute(query):
        key = MetricKey(plan, version, metric)
        before = rungs.setdefault(key, [0] * len(by_level))
        rungs[key] = [one + other for one, other in zip(before, by_level, strict=True)]
        newest[key] = NewestWindow(start, end, number, why is not None)
    return {key: tuple(numbers) for key, numbers in rungs.items()}, newest


def _estimates(connection: sql.Connection, most: int) -> tuple[tuple[EstimateRow, ...], int]:
    """Return estimates of the newest windows, and how many there are beyond ``most``."""
    keys = [WINDOWS.c[name] for name in _KEY]
    newest = (
        sql.select(*keys, sql.func.max(WINDOWS.c.window_start).label("window_start"))
        .group_by(*keys)
        .subquery()
    )
    same = [ESTIMATES.c[name] == newest.c[name] for name in (*_KEY, "window_start")]
    joined = ESTIMATES.join(newest, sql.and_(*same))
    names = (*MetricKey._fields, "kind", "item", "unit", "method")
    numbers = ("value", "standard_error", "low", "high")
    order = ("position", *_KEY, "kind", "item")
    known = ESTIMATES.c.value.is_not(None)
    chosen = (
        sql.select(*(ESTIMATES.c[name] for name in (*names, *numbers)))
        .select_from(joined)
        .where(known)
        .order_by(*(ESTIMATES.c[name] for name in order))
        .limit(most)
    )
    rows = tuple(
        EstimateRow(
            MetricKey(row.plan, row.version, row.metric),
            row.kind,
            row.item,
            row.unit or "",
            row.method or "unbiased",
            row.value,
            row.standard_error,
            row.low,
            row.high,
        )
        for row in connection.execute(chosen)
    )
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
