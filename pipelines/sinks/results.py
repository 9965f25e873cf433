"""Results in a SQL database: a projection of what is committed, which can always be made again.

A database knows whose results it holds (a state directory's random name) and up to which
generation. A commit is projected in one transaction, which raises that generation and refuses to
lower it. One that has fallen behind, or has been deleted, is given all windows that changed since.

The tables are plain SQL that SQLite and PostgreSQL share; times are milliseconds since the epoch,
privacy amounts micro-epsilon.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from sotto.errors import AggregationError
from sotto.plan.registry import Registry

#: How long a statement waits for another process that holds a SQLite file, s.
SQLITE_TIMEOUT = 30

Row: TypeAlias = Mapping[str, object]

METADATA = sql.MetaData()


class ProjectionError(AggregationError):
    """What is committed could not be projected; it can be later."""


def _window_key() -> list[sql.Column[object]]:
    return [
        sql.Column("collector", sql.String, primary_key=True),
        sql.Column("plan", sql.String, primary_key=True),
        sql.Column("version", sql.Integer, primary_key=True),
        sql.Column("metric", sql.String, primary_key=True),
        sql.Column("window_start", sql.BigInteger, primary_key=True),
    ]


#: One row: whose results these are, and up to which generation.
META = sql.Table(
    "meta",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("projected_generation", sql.BigInteger, nullable=False),
    sql.Column("clock", sql.BigInteger),
    sql.Column("lineage", sql.String),
)

#: The windows that have reports.
WINDOWS = sql.Table(
    "windows",
    METADATA,
    *_window_key(),
    sql.Column("window_end", sql.BigInteger, nullable=False),
    sql.Column("type", sql.String, nullable=False),
    sql.Column("mechanism", sql.String, nullable=False),
    sql.Column("n", sql.BigInteger, nullable=False),
    sql.Column("reports_by_level", sql.JSON, nullable=False),
    sql.Column("revision", sql.BigInteger, nullable=False),
    sql.Column("minimum_reports", sql.BigInteger),
    sql.Column("withheld", sql.String),
)

#: What is estimated in them. Null stands for what the reports do not determine, and for what is
#: withheld; then ``withheld`` says why.
ESTIMATES = sql.Table(
    "estimates",
    METADATA,
    *_window_key(),
    sql.Column("kind", sql.String, primary_key=True),
    sql.Column("item", sql.String, primary_key=True),
    sql.Column("window_end", sql.BigInteger, nullable=False),
    sql.Column("position", sql.Integer, nullable=False),
    sql.Column("value", sql.Float),
    sql.Column("standard_error", sql.Float),
    sql.Column("low", sql.Float),
    sql.Column("high", sql.Float),
    sql.Column("display", sql.Float),
    sql.Column("n", sql.BigInteger, nullable=False),
    sql.Column("reports_by_level", sql.JSON, nullable=False),
    sql.Column("detection_floor", sql.Float),
    sql.Column("significant", sql.Boolean),
    sql.Column("p_value", sql.Float),
    sql.Column("confounded_with", sql.JSON(none_as_null=True)),
    sql.Column("unit", sql.String),
    sql.Column("method", sql.String),
    sql.Column("revision", sql.BigInteger, nullable=False),
    sql.Column("withheld", sql.String),
)

#: The audit of every budget period, summed over devices; the largest of a single one beside it.
PERIODS = sql.Table(
    "periods",
    METADATA,
    sql.Column("collector", sql.String, primary_key=True),
    sql.Column("period_start", sql.BigInteger, primary_key=True),
    sql.Column("period_end", sql.BigInteger, nullable=False),
    sql.Column("closed", sql.Boolean, nullable=False),
    sql.Column("pseudonyms", sql.BigInteger, nullable=False),
    sql.Column("chains", sql.BigInteger, nullable=False),
    sql.Column("accepted", sql.BigInteger, nullable=False),
    sql.Column("observed", sql.BigInteger, nullable=False),
    sql.Column("most_accepted", sql.BigInteger, nullable=False),
    sql.Column("most_observed", sql.BigInteger, nullable=False),
    sql.Column("over_budget", sql.BigInteger, nullable=False),
    sql.Column("equivocation", sql.BigInteger, nullable=False),
)

#: Rejected reports by generation and reason, and how many of them have been requeued since;
#: generation 0 sums those whose retention is over.
QUARANTINE = sql.Table(
    "quarantine",
    METADATA,
    sql.Column("generation", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("reason", sql.String, primary_key=True),
    sql.Column("rows", sql.BigInteger, nullable=False),
    sql.Column("requeued", sql.BigInteger),
)


@dataclass(frozen=True)
class Projection:
    """What a database is to hold after a commit.

    Parameters
    ----------
    state : str
        Name of the state directory.
    generation : int
        The committed one.
    clock : int or None
        The log's clock, ms.
    changed : iterable of (sequence of Row, sequence of Row)
        Rows of windows that changed and of their estimates, some windows at a time; all earlier
        rows of these windows are replaced, those of one without estimates are removed. Gone
        through once, within the transaction.
    periods, quarantine : sequence of Row
        All there are.
    lineage : str, optional
        Digest of the generation.
    anew : bool
        Whether all that the database holds goes first.
    """

    state: str
    generation: int
    clock: int | None
    changed: Iterable[tuple[Sequence[Row], Sequence[Row]]]
    periods: Sequence[Row]
    quarantine: Sequence[Row]
    lineage: str | None = None
    anew: bool = False


def of_state(state_dir: str | os.PathLike[str]) -> sql.URL:
    """Return the URL of the database that a state directory itself holds."""
    return sql.URL.create("sqlite", database=str(Path(state_dir) / "results.db"))


class Results:
    """A database of results.

    Parameters
    ----------
    url : str or URL
        As SQLAlchemy takes it, such as ``sqlite:///results.db`` or ``postgresql+psycopg://…``.
    create : bool
        Whether a SQLite file may be made that does not exist.

    Raises
    ------
    AggregationError
        Here and in every method: the database cannot be used.
    """

    def __init__(self, url: str | sql.URL, *, create: bool = True) -> None:
        try:
            parsed = sql.make_url(url)
            self._sqlite = parsed.get_backend_name() == "sqlite"
            file = parsed.database or ":memory:"
            if self._sqlite and (":memory:" in file or parsed.query.get("mode") == "memory"):
                raise AggregationError(
                    "results cannot be kept in memory: the database must be a file"
                )
            wait = {"timeout": SQLITE_TIMEOUT} if self._sqlite else {}
            self.engine = sql.create_engine(parsed, poolclass=NullPool, connect_args=wait)
            if self._sqlite:
                sql.event.listen(self.engine, "connect", _overwrite_deleted)
        except (SQLAlchemyError, ImportError) as error:
            brings = "; pip install 'sotto[postgres]' brings it" if _lacks_psycopg(error) else ""
            raise AggregationError(
                f"the database cannot be used: {first_line(error)}{brings}"
            ) from error
        if not create and self._sqlite and not Path(file).is_file():
            raise AggregationError(f"there are no results in {file}")

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.engine.dispose()

    def projected(self, state: str) -> int:
        """Return the generation that is projected, 0 for none; make the tables if need be.

        Raises
        ------
        ProjectionError
            The database cannot be used.
        AggregationError
            The results are another state directory's.
        """
        try:
            self.prepare()
            with self.engine.connect() as connection:
                found = connection.execute(sql.select(META)).one_or_none()
        except SQLAlchemyError as error:
            raise ProjectionError(f"the database cannot be used: {first_line(error)}") from error
        if found is None:
            return 0
        if found.state != state:
            raise AggregationError("the database holds the results of another state directory")
        return int(found.projected_generation)

    def prepare(self) -> None:
        """Make the tables, if need be.

        Raises
        ------
        SQLAlchemyError
            The database cannot be used.
        """
        METADATA.create_all(self.engine)
        self._complete()
        if self._sqlite:
            # Who reads does not keep a run from writing.
            with self.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    def _complete(self) -> None:
        """Add the columns that an older database lacks; in its rows they are null."""
        for table in (WINDOWS, ESTIMATES, QUARANTINE):
            have = {each["name"] for each in sql.inspect(self.engine).get_columns(table.name)}
            with self.engine.begin() as connection:
                for column in table.columns:
                    if column.name not in have:
                        kind = column.type.compile(self.engine.dialect)
                        added = f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}"
                        connection.exec_driver_sql(added)

    def withholds_as(self, registry: Registry) -> bool:
        """Return whether all windows were estimated under the plans' ``minimum_reports``.

        They were not where the owner has changed it since, or the database is older than the rule;
        nor are they under the right name where a lower version of a plan has come since.
        """
        names = ("plan", "version", "metric", "minimum_reports")
        columns = [WINDOWS.c[name] for name in names]
        found = {tuple(row.values()) for row in self._rows(sql.select(*columns).distinct())}
        return found <= {
            (
                first.plan.plan,
                first.plan.version,
                first.metric.name,
                registry.minimum_reports(first.fingerprint, first.metric.index),
            )
            for first, *_ in registry.same.values()
        }

    def lineage(self) -> str | None:
        """Return the digest of the generation that is projected."""
        found = self.table(META)
        return str(found[0]["lineage"]) if found else None

    def project(self, projection: Projection) -> None:
        """Write what a commit changed, in one transaction.

        Raises
        ------
        ProjectionError
            It could not be written.
        AggregationError
            The database is no longer behind that commit, or holds another directory's results.
        """
        try:
            with self.engine.begin() as connection:
                if projection.anew:
                    for table in METADATA.sorted_tables:
                        connection.execute(sql.delete(table))
                _raise_generation(connection, projection)
                for windows, estimates in projection.changed:
                    replace_windows(connection, windows, estimates)
                _replace_all(connection, PERIODS, projection.periods)
                _replace_all(connection, QUARANTINE, projection.quarantine)
        except SQLAlchemyError as error:
            raise ProjectionError(
                f"generation {projection.generation} is committed, but its results could not be "
                f"written: {first_line(error)}"
            ) from error

    def estimates(
        self, metric: str | None = None, at: int | None = None
    ) -> list[dict[str, object]]:
        """Return estimates, ordered by plan, version, metric, window, and as they were made.

        Parameters
        ----------
        metric : str, optional
            Only of this one.
        at : int, optional
            Only of windows that contain this time, ms.
        """
        order = ("plan", "version", "metric", "window_start", "position")
        query = sql.select(ESTIMATES).order_by(*(ESTIMATES.c[name] for name in order))
        if metric is not None:
            query = query.where(ESTIMATES.c.metric == metric)
        if at is not None:
            query = query.where(ESTIMATES.c.window_start <= at).where(at < ESTIMATES.c.window_end)
        return self._rows(query)

    def table(self, table: sql.Table) -> list[dict[str, object]]:
        """Return all rows of a table, by its key."""
        return self._rows(sql.select(table).order_by(*table.primary_key.columns))

    def _rows(self, query: sql.Select[tuple[object, ...]]) -> list[dict[str, object]]:
        try:
            with self.engine.connect() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]
        except SQLAlchemyError as error:
            raise AggregationError(f"the database cannot be read: {first_line(error)}") from error


def _overwrite_deleted(connection: sqlite3.Connection, record: object) -> None:
    """Have SQLite overwrite what is deleted, so that no withheld estimate stays in its file."""
    connection.execute("PRAGMA secure_delete=ON")


def _raise_generation(connection: sql.Connection, projection: Projection) -> None:
    now = {
        "projected_generation": projection.generation,
        "clock": projection.clock,
        "lineage": projection.lineage,
    }
    raised = connection.execute(
        sql.update(META)
        .where(META.c.state == projection.state)
        .where(META.c.projected_generation < projection.generation)
        .values(now)
    )
    if raised.rowcount:
        return
    if connection.execute(sql.select(META.c.id)).first() is not None:
        raise AggregationError(f"the database is not behind generation {projection.generation}")
    connection.execute(sql.insert(META).values(id=1, state=projection.state, **now))


def replace_windows(
    connection: sql.Connection, windows: Sequence[Row], estimates: Sequence[Row]
) -> None:
    """Replace all rows of some windows; one without estimates is removed."""
    keys = ("collector", "plan", "version", "metric", "window_start")
    if not windows:
        return
    stale = [{f"old_{name}": row[name] for name in keys} for row in windows]
    estimated = {tuple(row[name] for name in keys) for row in estimates}
    windows = [row for row in windows if tuple(row[name] for name in keys) in estimated]
    for table, rows in ((ESTIMATES, estimates), (WINDOWS, windows)):
        same = (table.c[name] == sql.bindparam(f"old_{name}") for name in keys)
        connection.execute(sql.delete(table).where(*same), stale)
        insert_rows(connection, table, rows)


def _replace_all(connection: sql.Connection, table: sql.Table, rows: Sequence[Row]) -> None:
    connection.execute(sql.delete(table))
    insert_rows(connection, table, rows)


def insert_rows(connection: sql.Connection, table: sql.Table, rows: Iterable[Row]) -> None:
    """Insert rows; what is not finite becomes null."""
    values = [{name: _storable(value) for name, value in row.items()} for row in rows]
    if values:
        connection.execute(sql.insert(table), values)


def _storable(value: object) -> object:
    """Return a value that every database takes: null for what is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lacks_psycopg(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name == "psycopg"


def first_line(error: Exception) -> str:
    """Return what a database says, without anything of what it holds."""
    # What follows are the statement and its parameters.
    return str(error).splitlines()[0] if str(error) else type(error).__name__
