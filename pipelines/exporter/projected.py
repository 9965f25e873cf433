"""What a database of results holds, read in one transaction that cannot write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import sqlalchemy as sql
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipelines.audit import Totals
from pipelines.exporter.committed import Period
from pipelines.exporter.sources import ATTEMPTS, MissingError, UnreadableError
from pipelines.results import ESTIMATES, META, PERIODS, QUARANTINE, WINDOWS
from sotto.errors import DrainError

#: How long PostgreSQL is waited for, s.
_PATIENCE = 3
#: Series that an estimate makes: its value, standard error and two ends.
SERIES = 4
_KEY = ("collector", "plan", "version", "metric")


class MetricKey(NamedTuple):
    """A metric of a plan's version."""

    plan: str
    version: int
    metric: str


@dataclass(frozen=True)
class NewestWindow:
    """The newest window of a metric that has reports: its ends in ms, and how many it has."""

    start: int
    end: int
    reports: int


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
    rejected : mapping
        Reports by reason.
    periods : tuple of Period
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
    periods: tuple[Period, ...]


class Database:
    """A database of results that is only read.

    Parameters
    ----------
    url : str or URL
        As SQLAlchemy takes it.
    max_series : int
        Series of estimates at most.

    Raises
    ------
    DrainError
        It is no database that can be used here.
    """

    def __init__(self, url: str | sql.URL, max_series: int) -> None:
        try:
            self._url = sql.make_url(url)
            dialect = self._url.get_dialect()
            dialect.import_dbapi()
        except (SQLAlchemyError, ImportError) as error:
            raise DrainError(f"the database cannot be used: {error}") from error
        sqlite = self._url.get_backend_name() == "sqlite"
        self._file = Path(self._url.database or "") if sqlite else None
        self._most = max_series // SERIES
        self._last: Projected | None = None

    def read(self) -> Projected:
        """Return what the database says; what has not changed since the last call is not read.

        Raises
        ------
        MissingError
            There is none, or none with results.
        UnreadableError
            It cannot be read now.
        DrainError
            It is damaged.
        """
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
            raise UnreadableError(_first_line(error)) from error
        except (DatabaseError, SQLAlchemyError) as error:
            raise DrainError(_first_line(error)) from error

    def _read(self, connection: sql.Connection) -> Projected:
        if not sql.inspect(connection).has_table(META.name):
            raise MissingError("the database has no results")
        columns = (META.c.projected_generation, META.c.lineage, META.c.clock)
        found = connection.execute(sql.select(*columns)).one_or_none()
        if found is None:
            raise MissingError("the database has no results yet")
        size = self._size()
        last = self._last
        if last is not None and (last.generation, last.lineage) == found[:2]:
            return replace(last, size=size)
        rungs, windows = _windows(connection)
        estimates, omitted = _estimates(connection, self._most)
        return Projected(
            *found,
            size=size,
            rungs=rungs,
            windows=windows,
            estimates=estimates,
            omitted=omitted,
            rejected=_rejected(connection),
            periods=_periods(connection),
        )

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
            wait = {"connect_timeout": _PATIENCE, "options": options}
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


def _windows(
    connection: sql.Connection,
) -> tuple[dict[MetricKey, tuple[int, ...]], dict[MetricKey, NewestWindow]]:
    """Return reports by rung over all windows, and the newest window, of every metric."""
    names = ("plan", "version", "metric", "window_start", "window_end", "n", "reports_by_level")
    columns = [WINDOWS.c[name] for name in names]
    rungs: dict[MetricKey, list[int]] = {}
    newest: dict[MetricKey, NewestWindow] = {}
    query = sql.select(*columns).order_by(*columns[:4])
    for plan, version, metric, start, end, number, by_level in connection.execute(query):
        key = MetricKey(plan, version, metric)
        before = rungs.setdefault(key, [0] * len(by_level))
        rungs[key] = [one + other for one, other in zip(before, by_level, strict=True)]
        newest[key] = NewestWindow(start, end, number)
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


def _rejected(connection: sql.Connection) -> dict[str, int]:
    total: Counter[str] = Counter()
    for reason, rows in connection.execute(sql.select(QUARANTINE.c.reason, QUARANTINE.c.rows)):
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


def _first_line(error: Exception) -> str:
    # What follows are the statement and its parameters.
    return str(error).splitlines()[0]
