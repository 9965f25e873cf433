"""Results in a SQL database: of aggregation runs (:class:`Results`), or of jobs (:class:`SqlSink`).

A database may hold the results of several collectors. For each it knows the state directory or job
that they are from (:mod:`pipelines.sinks.jobs`), and up to which generation or offset.

An aggregation run projects what it commits: it writes a commit in one transaction, which raises the
generation and refuses to lower it. A database that has fallen behind, or was deleted, is given all
windows that changed since.

A sink writes documents and the offsets after them in one transaction, so that it can be killed at
any moment and goes on where the database is. A document replaces only older revisions of its key.
The results of another job replace those of the current one only on demand.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import sqlalchemy as sql
from sqlalchemy import exc
from sqlalchemy.pool import NullPool

from pipelines.results import schema, tables
from pipelines.results.documents import Document
from pipelines.sinks import jobs, rows
from pipelines.sinks.base import Applied, ReadTopic, Sink, SinkError
from sotto.errors import AggregationError, install_hint

#: How long a statement waits for another process that holds a SQLite file, s.
SQLITE_TIMEOUT = 30
#: How many documents of a generation are in memory at a time.
_AT_ONCE = 64
#: Errors of a database that may be gone when the same is written again.
_PASSING = (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.IntegrityError)
_ANOTHER = "another state directory of {} has its results in the database: give --database another"


@dataclass(frozen=True)
class Projection:
    """The changes that bring a collector's results to a committed generation."""

    collector: str
    state: str  #: name of the state directory
    generation: int  #: the committed one
    clock: int | None  #: the log's clock, ms
    #: The documents that changed, and last the job's health; iterated once, in the transaction.
    documents: Iterable[Document]
    lineage: str | None = None  #: digest of the generation
    anew: bool = False  #: whether all that the database holds of the collector is removed first


def of_state(state_dir: str | os.PathLike[str]) -> sql.URL:
    """Return the URL of the database in a state directory."""
    return sql.URL.create("sqlite", database=str(Path(state_dir) / "results.db"))


def database_url(url: str | sql.URL, failure: type[AggregationError] = AggregationError) -> sql.URL:
    """Return the URL of a database that can hold results; raise ``failure`` if it is not one."""
    try:
        parsed = sql.make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise ValueError
    except (exc.SQLAlchemyError, ValueError):
        raise failure(
            "the database cannot be used: it takes a URL of SQLite or PostgreSQL, such as "
            "sqlite:///results.db for a file, or postgresql://host:5432/name"
        ) from None
    try:
        parsed.get_dialect().import_dbapi()
    except (exc.SQLAlchemyError, ImportError) as error:
        lacks = isinstance(error, ModuleNotFoundError) and error.name == "psycopg"
        brings = f"; {install_hint('postgres')}" if lacks else ""
        raise failure(f"the database cannot be used: {first_line(error)}{brings}") from error
    name = parsed.database or ":memory:"
    nowhere = parsed.host or ":memory:" in name or parsed.query.get("mode") == "memory"
    if nowhere and parsed.get_backend_name() == "sqlite":
        raise failure("results are kept in a file: name it after three slashes, as sqlite:///r.db")
    return parsed


class Database:
    """A SQL database; a SQLite file is created if there is none.

    Every method, and this one, raises AggregationError if the database cannot be used, SinkError if
    it cannot be used now.
    """

    def __init__(self, url: str | sql.URL) -> None:
        parsed = database_url(url)
        self._sqlite = parsed.get_backend_name() == "sqlite"
        wait = {"timeout": SQLITE_TIMEOUT} if self._sqlite else {}
        try:
            self.engine = sql.create_engine(parsed, poolclass=NullPool, connect_args=wait)
        except (exc.SQLAlchemyError, TypeError, ValueError):
            # The message may hold the URL, and so a password.
            said = "the database cannot be used: its URL has a wrong part"
            raise AggregationError(said) from None
        if self._sqlite:
            sql.event.listen(self.engine, "connect", _overwrite_deleted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    def prepare(self) -> None:
        """Create tables and views; see :func:`pipelines.results.schema.prepare`."""
        schema.prepare(self.engine)
        if self._sqlite:
            # Readers do not block writers.
            with self.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")


class Results(Database):
    """The results of aggregation runs; parameters as of :class:`Database`."""

    def projected(self, collector: str, state: str) -> int:
        """Return the generation that is projected, 0 for none; create tables if needed."""
        with _mapped("the database cannot be used"):
            self.prepare()
            found = self._meta(collector)
        if found is None:
            return 0
        if found.source is not None:
            raise AggregationError(
                f"a sink writes the results of {collector} to the database: give another one"
            )
        if found.state != state:
            raise AggregationError(_ANOTHER.format(collector))
        return int(found.projected_generation)

    def _meta(self, collector: str) -> sql.Row[tuple[object, ...]] | None:
        query = sql.select(tables.META).where(tables.META.c.collector == collector)
        with self.engine.connect() as connection:
            return connection.execute(query).one_or_none()

    def invalidate(self, state: str) -> str | None:
        """Let the next run make the results of a state again; return their collector, if any."""
        ours = tables.META.c.state == state
        with _mapped("the database cannot be used"):
            self.prepare()
            with self.engine.begin() as connection:
                found = connection.execute(sql.select(tables.META.c.collector).where(ours)).scalar()
                connection.execute(sql.delete(tables.META).where(ours))
        return found

    def lineage(self, collector: str) -> str | None:
        """Return the digest of the generation of a collector that is projected."""
        with _mapped("the database cannot be used"):
            found = self._meta(collector)
        return None if found is None else str(found.lineage)

    def project(self, projection: Projection) -> None:
        """Write what a commit changed, in one transaction."""
        generation, collector = projection.generation, projection.collector
        failed = f"the results of generation {generation} could not be written"
        with _mapped(failed), self.engine.begin() as connection:
            if projection.anew:
                rows.forget(connection, collector, projection.state)
            _raise_generation(connection, projection)
            documents = iter(projection.documents)
            while some := list(islice(documents, _AT_ONCE)):
                rows.write_documents(connection, rows.newer(connection, some))

    def table(self, table: sql.Table) -> list[dict[str, object]]:
        """Return all rows of a table of results, by its key, as they are stored."""
        query = sql.select(table).order_by(*table.primary_key.columns)
        with _mapped("the database cannot be read"), self.engine.connect() as connection:
            schema.read_as_null(connection)
            return [dict(row) for row in connection.execute(query).mappings()]


class SqlSink(Database, Sink):
    """The results of jobs, from their documents; parameters as of :class:`Database`.

    ``job``: name of the job whose workers write its documents here without a topic.
    """

    def __init__(self, url: str | sql.URL, job: str = "") -> None:
        super().__init__(url)
        self._made_of = url, job
        self._job = job

    @classmethod
    def open(cls, url: str, job: str = "") -> Self:
        return cls(url, job)

    def __reduce__(self) -> tuple[type[Self], tuple[str | sql.URL, str]]:
        return type(self), self._made_of

    def close(self) -> None:
        self.engine.dispose()

    def offsets(self, topic: str, id: str, *, replace: bool = False) -> dict[int, int]:
        """Return the next offset of each partition; create tables if needed.

        ``topic``, ``id``: name and id of the topic. ``replace``: whether this topic replaces an
        earlier one of its name, and the other job that was seen last in it the current job; if
        either is replaced, no offsets are left.
        """
        with _mapped("the database cannot be used"):
            self.prepare()
            with self.engine.begin() as connection:
                return jobs.offsets(connection, topic, id, replace)

    def write(self, documents: Sequence[Document], progress: ReadTopic | None = None) -> Applied:
        """Write documents, and how far their topic is read, in one transaction.

        They are written one by one if the database refuses values.
        """
        if progress is None:
            with _mapped("the database cannot be used"):
                self.prepare()
        with _mapped("documents could not be written"):
            for singly in (False, True):
                try:
                    with self.engine.begin() as connection:
                        return self._write(connection, documents, progress, singly)
                except exc.DBAPIError as error:
                    if singly or not _unstorable(error):
                        raise
        raise AssertionError("unreachable")

    def _write(
        self,
        connection: sql.Connection,
        documents: Sequence[Document],
        progress: ReadTopic | None,
        singly: bool,
    ) -> Applied:
        # These statements come first, since they take the lock of a SQLite file.
        if progress is None:
            jobs.lock_for(connection, self._job)
            source, replace = jobs.source_of(self._job), False
        else:
            for part in progress.read:
                jobs.advance(connection, progress.topic, progress.id, part)
            source, replace = progress.topic, progress.replace
        ours, others = jobs.of_current_jobs(connection, source, documents, replace)
        fresh = rows.newer(connection, ours)
        refused = 0
        if singly:
            refused = sum(not _stored(connection, each) for each in fresh)
        elif fresh:
            rows.write_documents(connection, fresh)
        for collector, number in Counter(each.collector_name for each in fresh).items():
            rows.mark_changed(connection, collector, number)
        stale = len(documents) - others - len(fresh)
        return Applied(len(fresh) - refused, stale, others, refused)


@contextmanager
def _mapped(failed: str) -> Iterator[None]:
    """Raise errors of SQLAlchemy as :class:`SinkError`, lasting ones as AggregationError."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        cause = getattr(error, "orig", None)
        code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
        # A table that is gone, 42P01 in PostgreSQL, is made again before the next try.
        gone = code == "42P01" or "no such table" in str(cause)
        # SQLite calls it an OperationalError, too, if a column is missing or a table is another.
        passes = gone or (isinstance(error, _PASSING) and code != "SQLITE_ERROR")
        raised = SinkError if passes else AggregationError
        raise raised(f"{failed}: {first_line(error)}") from error


def _overwrite_deleted(connection: sqlite3.Connection, record: object) -> None:
    """Let SQLite overwrite deleted rows, so that no withheld estimate stays in its file."""
    connection.execute("PRAGMA secure_delete=ON")


def _raise_generation(connection: sql.Connection, projection: Projection) -> None:
    now = {
        "projected_generation": projection.generation,
        "clock": projection.clock,
        "lineage": projection.lineage,
    }
    ours = tables.META.c.collector == projection.collector
    raised = connection.execute(
        sql.update(tables.META)
        .where(ours)
        .where(tables.META.c.state == projection.state)
        .where(tables.META.c.projected_generation < projection.generation)
        .values(now)
    )
    if raised.rowcount:
        return
    found = connection.execute(sql.select(tables.META.c.state).where(ours)).scalar()
    if found not in (None, projection.state):
        raise AggregationError(_ANOTHER.format(projection.collector))
    if found is not None:
        raise AggregationError(f"the database is not behind generation {projection.generation}")
    whose = {"collector": projection.collector, "state": projection.state}
    connection.execute(sql.insert(tables.META).values(**whose, **now))


def _stored(connection: sql.Connection, document: Document) -> bool:
    """Write a document, or nothing of it if the database cannot store it."""
    try:
        with connection.begin_nested():
            rows.write_documents(connection, [document])
    except exc.DBAPIError as error:
        if not _unstorable(error):
            raise
        return False
    return True


def _unstorable(error: exc.DBAPIError) -> bool:
    """Return whether a database refused the values themselves, so that it always will."""
    # PostgreSQL's class 22 is for values out of range, 54 for values too long for an index.
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, exc.DataError) or state[:2] in ("22", "54")


def first_line(error: Exception) -> str:
    """Return a database's message without the statement and its parameters, which follow it."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
