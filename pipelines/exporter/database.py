"""A database of results, of which nothing but reading in one transaction is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sql
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipelines.exporter.projected import Projected, projected, projected_generation, sunk
from pipelines.exporter.sources import ATTEMPTS, MissingError, UnreadableError
from sotto.errors import AggregationError

#: How long PostgreSQL is waited for, s.
_PATIENCE = 3
#: By which a server that has gone without a word is noticed, as libpq takes it.
_NOTICED = {
    "tcp_user_timeout": 5000,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
}
#: Series that an estimate makes: its value, standard error and two ends.
SERIES = 4


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
    AggregationError
        It is no database that can be used here.
    """

    def __init__(self, url: str | sql.URL, max_series: int) -> None:
        try:
            self._url = sql.make_url(url)
            dialect = self._url.get_dialect()
            dialect.import_dbapi()
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
        """Return what the database says; what has not changed since the last call is not read.

        Raises
        ------
        MissingError
            There is none, or none with results.
        UnreadableError
            It cannot be read now.
        AggregationError
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
            raise AggregationError(_first_line(error)) from error

    def _read(self, connection: sql.Connection) -> Projected:
        generation, lineage = projected_generation(connection)
        last = self._last
        if last is None or (last.generation, last.lineage) != (generation, lineage):
            last = projected(connection, self._most)
        return replace(last, size=self._size(), sunk=sunk(connection))

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
            wait = {"connect_timeout": _PATIENCE, "options": options, **_NOTICED}
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


def _first_line(error: Exception) -> str:
    # What follows are the statement and its parameters.
    return str(error).splitlines()[0]
