"""Results in a SQL database: of aggregation runs, or of the documents of one job.

A database knows whose results it holds and up to which generation or offset.

Aggregation runs project what they commit: a commit in one transaction, which raises the generation
and refuses to lower it. A database that has fallen behind, or has been deleted, is given all
windows that changed since.

Documents and the offsets after them are written in one transaction, so that a sink that is killed
anywhere goes on where the database is. A document replaces what an older revision of its key said,
and nothing newer. The results of another job replace those of the current one only on demand.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import NamedTuple, Self

import sqlalchemy as sql
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipelines.sinks import tables
from pipelines.sinks.documents import Document, parse
from sotto.errors import AggregationError, install_hint
from sotto.plan.registry import Registry

#: How long a statement waits for another process that holds a SQLite file, s.
SQLITE_TIMEOUT = 30


class ProjectionError(AggregationError):
    """What is committed could not be written to the database; it can be later."""


@dataclass(frozen=True)
class Projection:
    """The results that a database is to hold after a commit."""

    state: str  #: name of the state directory
    generation: int  #: the committed one
    clock: int | None  #: the log's clock, ms
    #: Rows of windows that changed and of their estimates, some windows at a time; all earlier
    #: rows of these windows are replaced, those of one without estimates are removed. Iterated
    #: once, within the transaction.
    changed: Iterable[tuple[Sequence[tables.Row], Sequence[tables.Row]]]
    #: All rows of these tables.
    periods: Sequence[tables.Row]
    quarantine: Sequence[tables.Row]
    lineage: str | None = None  #: digest of the generation
    anew: bool = False  #: whether all that the database holds is removed first


def of_state(state_dir: str | os.PathLike[str]) -> sql.URL:
    """Return the URL of the database in a state directory."""
    return sql.URL.create("sqlite", database=str(Path(state_dir) / "results.db"))


class Database:
    """A SQL database; ``create`` is whether a SQLite file may be created.

    Raises AggregationError here and in every method if the database cannot be used, or
    ProjectionError if not now.
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
            lacks = isinstance(error, ModuleNotFoundError) and error.name == "psycopg"
            brings = f"; {install_hint('postgres')}" if lacks else ""
            raise AggregationError(
                f"the database cannot be used: {first_line(error)}{brings}"
            ) from error
        if not create and self._sqlite and not Path(file).is_file():
            raise AggregationError(f"there are no results in {file}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    def prepare(self) -> None:
        """Create the tables of results, and the columns that an older database lacks."""
        tables.METADATA.create_all(self.engine)
        for table in (tables.WINDOWS, tables.ESTIMATES):
            with self.engine.connect() as connection:
                older = tables.lacks_segments(connection, table)
            if older:
                with self.engine.begin() as connection:
                    if self._sqlite:
                        # The driver begins none before statements that change tables.
                        connection.exec_driver_sql("BEGIN IMMEDIATE")
                    tables.add_segments(connection, table)
        for table in (tables.WINDOWS, tables.ESTIMATES, tables.QUARANTINE):
            have = {each["name"] for each in sql.inspect(self.engine).get_columns(table.name)}
            with self.engine.begin() as connection:
                for column in table.columns:
                    if column.name not in have:
                        kind = column.type.compile(self.engine.dialect)
                        added = f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}"
                        connection.exec_driver_sql(added)
        if self._sqlite:
            # Readers do not block writers.
            with self.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")


class Results(Database):
    """The results of aggregation runs; parameters as of :class:`Database`."""

    def projected(self, state: str) -> int:
        """Return the generation that is projected, 0 for none; create tables if needed."""
        with _mapped("the database cannot be used"):
            self.prepare()
            with self.engine.connect() as connection:
                found = connection.execute(sql.select(tables.META)).one_or_none()
        if found is None:
            return 0
        if found.state != state:
            raise AggregationError("the database holds the results of another state directory")
        return int(found.projected_generation)

    def withholds_as(self, registry: Registry) -> bool:
        """Return whether all windows were estimated under the plans' ``minimum_reports``.

        They were not where the owner has changed it since, or the database is older than the rule;
        nor are they under the right name where a lower version of a plan has come since.
        """
        names = ("plan", "version", "metric", "minimum_reports")
        columns = [tables.WINDOWS.c[name] for name in names]
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
        found = self.table(tables.META)
        return str(found[0]["lineage"]) if found else None

    def project(self, projection: Projection) -> None:
        """Write what a commit changed, in one transaction."""
        generation = projection.generation
        failed = f"generation {generation} is committed, but its results could not be written"
        with _mapped(failed), self.engine.begin() as connection:
            if projection.anew:
                for table in tables.METADATA.sorted_tables:
                    connection.execute(sql.delete(table))
            _raise_generation(connection, projection)
            for windows, estimates in projection.changed:
                tables.replace_windows(connection, windows, estimates)
            tables.replace_all(connection, tables.PERIODS, projection.periods)
            tables.replace_all(connection, tables.QUARANTINE, projection.quarantine)

    def estimates(
        self, metric: str | None = None, at: int | None = None
    ) -> list[dict[str, object]]:
        """Return estimates in order, of one metric or a time in ms if these are given."""
        order = ("plan", "version", "metric", "window_start", "segment", "position")
        columns = tables.ESTIMATES.c
        query = sql.select(tables.ESTIMATES).order_by(*(columns[name] for name in order))
        if metric is not None:
            query = query.where(columns.metric == metric)
        if at is not None:
            query = query.where(columns.window_start <= at).where(at < columns.window_end)
        return self._rows(query)

    def table(self, table: sql.Table) -> list[dict[str, object]]:
        return self._rows(sql.select(table).order_by(*table.primary_key.columns))

    def _rows(self, query: sql.Select[tuple[object, ...]]) -> list[dict[str, object]]:
        try:
            with self.engine.connect() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]
        except SQLAlchemyError as error:
            raise AggregationError(f"the database cannot be read: {first_line(error)}") from error


class Applied(NamedTuple):
    """How many documents were written and not."""

    written: int = 0
    stale: int = 0  #: of revisions that the results have already, or newer ones
    others: int = 0  #: of another job
    refused: int = 0  #: that the database cannot store

    def plus(self, other: Applied) -> Applied:
        return Applied(*map(add, self, other))


class DocumentDatabase(Database):
    """The results of one job, from its documents; parameters as of :class:`Database`."""

    def offsets(self, topic: str, id: str, *, replace: bool = False) -> dict[int, int]:
        """Return the next offset of each partition; create tables if needed.

        ``topic``, ``id``: name and id of the topic. ``replace``: whether this topic replaces
        another, and the other job seen last the current one. Then no offsets are left.
        """
        with _mapped("the database cannot be used"):
            self._prepare()
            with self.engine.begin() as connection:
                return _offsets(connection, topic, id, replace)

    def apply(
        self, topic: str, id: str, read: Sequence[tables.Advance], documents: Sequence[Document]
    ) -> Applied:
        """Write documents of a topic, and the offsets after them, in one transaction."""

        def begin(connection: sql.Connection) -> None:
            # First of all, since this takes the lock of a SQLite file.
            for part in read:
                tables.advance(connection, topic, id, part)

        return self._write(begin, documents)

    def add(self, job: str, documents: Sequence[Document]) -> Applied:
        """Write documents from one of several workers of a pipeline, in one transaction."""
        with _mapped("the database cannot be used"):
            self._prepare()
        return self._write(lambda connection: tables.lock_for(connection, job), documents)

    def _prepare(self) -> None:
        self.prepare()
        tables.SINK_METADATA.create_all(self.engine)

    def _write(
        self, begin: Callable[[sql.Connection], None], documents: Sequence[Document]
    ) -> Applied:
        """Write documents in one transaction; one by one if the database refuses values."""
        with _mapped("documents could not be written"):
            for singly in (False, True):
                try:
                    with self.engine.begin() as connection:
                        begin(connection)
                        return _applied(connection, documents, singly=singly)
                except DBAPIError as error:
                    if singly or not _unstorable(error):
                        raise
        raise AssertionError("unreachable")


class SqlSink:
    """Writes a pipeline's documents to a database; see :class:`pipelines.beam.graph.Sink`."""

    def __init__(self, url: str, job: str) -> None:
        self._url = url
        self._job = job

    def write(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        with DocumentDatabase(self._url) as database:
            database.add(self._job, [parse(*each) for each in items])

    def close(self) -> None: ...


@contextmanager
def _mapped(failed: str) -> Iterator[None]:
    """Raise errors of SQLAlchemy as :class:`ProjectionError`."""
    try:
        yield
    except SQLAlchemyError as error:
        raise ProjectionError(f"{failed}: {first_line(error)}") from error


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
        sql.update(tables.META)
        .where(tables.META.c.state == projection.state)
        .where(tables.META.c.projected_generation < projection.generation)
        .values(now)
    )
    if raised.rowcount:
        return
    if connection.execute(sql.select(tables.META.c.id)).first() is not None:
        raise AggregationError(f"the database is not behind generation {projection.generation}")
    connection.execute(sql.insert(tables.META).values(id=1, state=projection.state, **now))


def _applied(connection: sql.Connection, documents: Sequence[Document], *, singly: bool) -> Applied:
    ours, others = tables.of_current_job(connection, documents)
    fresh = tables.newer(connection, ours)
    refused = 0
    if singly:
        refused = sum(not _stored(connection, each) for each in fresh)
    elif fresh:
        tables.write_documents(connection, fresh)
    if fresh:
        tables.mark_changed(connection, len(fresh))
    return Applied(len(fresh) - refused, len(documents) - others - len(fresh), others, refused)


def _stored(connection: sql.Connection, document: Document) -> bool:
    """Write a document, or nothing of it if the database cannot store it."""
    try:
        with connection.begin_nested():
            tables.write_documents(connection, [document])
    except DBAPIError as error:
        if not _unstorable(error):
            raise
        return False
    return True


def _unstorable(error: DBAPIError) -> bool:
    """Return whether a database refused values for what they are, as it always will."""
    # Of PostgreSQL, 22 are values out of range and 54 such as are too long for an index.
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, DataError) or state[:2] in ("22", "54")


def _offsets(connection: sql.Connection, topic: str, id: str, replace: bool) -> dict[int, int]:
    found = connection.execute(sql.select(tables.OFFSETS)).all()
    if not found and connection.execute(sql.select(tables.META.c.id)).first() is not None:
        if connection.execute(sql.select(tables.META.c.lineage)).scalar() is not None:
            raise AggregationError(
                "the database holds the results of aggregation runs: give another one to the sink"
            )
        return {}
    others = [row for row in found if row.topic != topic]
    again = [row for row in found if row.topic == topic and row.topic_id != id]
    if (others or again) and replace:
        tables.empty(connection)
        connection.execute(sql.delete(tables.JOBS))
        return {}
    if others:
        raise AggregationError(
            f"the database holds the results of topic {others[0].topic}: give another database, "
            f"or --replace to have those of {topic} in their place"
        )
    if again:
        raise AggregationError(
            f"topic {topic} was deleted and created again since its documents were read: give "
            "another database, or --replace to begin anew"
        )
    if replace and tables.replace_job(connection):
        return {}
    return {row.partition: row.next for row in found}


def first_line(error: Exception) -> str:
    """Return a database's message without the statement and its parameters, which follow it."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
