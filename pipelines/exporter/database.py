"""A database of results: reports, budgets and the newest windows, read in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import sqlalchemy as sql
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipelines.aggregation.audit import Totals
from pipelines.exporter.committed import Period
from pipelines.exporter.readings import ATTEMPTS, UnreadableError
from pipelines.sinks.documents import WINDOW_KEY
from pipelines.sinks.sql import first_line
from pipelines.sinks.tables import ESTIMATES, HEALTH, META, OFFSETS, PERIODS, QUARANTINE, WINDOWS
from pipelines.sources.base import MissingError
from sotto.errors import AggregationError

#: How long PostgreSQL may take to answer, s.
_PATIENCE = 3
#: By which a server that has gone without a word is noticed, as libpq takes it.
_KEEPALIVE = {
    "tcp_user_timeout": 5000,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
}
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
        try:
            self._url = sql.make_url(url)
            self._url.get_dialect().import_dbapi()
        except (SQLAlchemyError, ImportError) as error:
            raise AggregationError(f"the database cannot be used: {error}") from error
        sqlite = self._url.get_backend_name() == "sqlite"
        name = self._url.database or ":memory:"
        if sqlite and ":memory:" in name:
            raise AggregationError("results are not kept in memory: the database must be a file")
        self._file = Path(name) if sqlite else None
        self._most = max_series // SERIES
        self._last: Projected | None = None

    def read(self) -> Projected:
        """Return a reading; what has not changed since the last call is not read again."""
        try:
            for _ in range(ATTEMPTS):
                before = self._stamp()
                with self._connection() as connection:
                    found = self._read(connection)
                # Without its journal the file was read as if nobody could write it.
                if before is None or before == self._stamp():
                    self._last = found
                    return found
            raise UnreadableError("the database changes all the time")
        except OperationalError as error:
            raise UnreadableError(first_line(error)) from error
        except (DatabaseError, SQLAlchemyError) as error:
            raise AggregationError(first_line(error)) from error

    def _read(self, connection: sql.Connection) -> Projected:
        if not sql.inspect(connection).has_table(META.name):
            raise MissingError("the database has no results")
        found = connection.execute(sql.select(META)).first()
        if found is None:
            raise MissingError("the database has no results yet")
        last = self._last
        now = (found.projected_generation, found.lineage)
        if last is None or (last.generation, last.lineage) != now:
            last = _projected(connection, *now, found.clock, self._most)
        return replace(last, size=self._size(), sink=_sink(connection))

    @property
    def _journal(self) -> Path:
        return Path(f"{self._file}-wal")

    def _stamp(self) -> tuple[int, int] | None:
        """Return by what a file without a journal is known to be unchanged; None if it has one."""
        if self._file is None or not self._file.exists() or self._journal.exists():
            return None
        found = self._file.stat()
        return found.st_mtime_ns, found.st_size

    @contextmanager
    def _connection(self) -> Iterator[sql.Connection]:
        engine = self._engine()
        try:
            with engine.connect() as connection:
                if self._file is not None:
                    # One snapshot for all that is read; Python's driver would take one a query.
                    connection.exec_driver_sql("BEGIN")
                yield connection
        finally:
            engine.dispose()

    def _engine(self) -> sql.Engine:
        if self._file is None:
            options = f"-c statement_timeout={_PATIENCE * 1000}"
            wait = {"connect_timeout": _PATIENCE, "options": options, **_KEEPALIVE}
            postgres = self._url.get_backend_name() == "postgresql"
            engine = sql.create_engine(
                self._url, poolclass=NullPool, connect_args=wait if postgres else {}
            )
            return engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        if not self._file.is_file():
            raise MissingError(f"there are no results in {self._file}")
        # Without a journal nobody writes, and SQLite is kept from making files beside it.
        query = {"uri": "true", "mode": "ro"}
        if not self._journal.exists():
            query["immutable"] = "1"
        name = "file:" + quote(str(self._file.absolute()))
        url = sql.URL.create("sqlite", database=name, query=query)
        return sql.create_engine(url, poolclass=NullPool, connect_args={"timeout": 1})

    def _size(self) -> int | None:
        if self._file is None:
            return None
        present = (path for path in (self._file, self._journal) if path.exists())
        return sum(path.stat().st_size for path in present)


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
    query = sql.select(*columns).where(WINDOWS.c.segment == "").order_by(*columns[:4])
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
    # Of all reports: a series for each segment would be too many.
    known = sql.and_(ESTIMATES.c.value.is_not(None), ESTIMATES.c.segment == "")
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
