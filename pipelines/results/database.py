"""A database of results that is only read: SQLite or PostgreSQL, also while a job writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sql
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from pipelines.results.schema import OLDER, is_older, read_as_null
from pipelines.results.tables import META
from pipelines.sinks.sql import database_url, first_line
from pipelines.sources.base import MissingError
from sotto.errors import AggregationError, ParameterError

#: How often a read is tried if the file of the database changes meanwhile.
ATTEMPTS = 5
#: How long PostgreSQL may take to answer, s.
_PATIENCE = 3
#: How long a SQLite file may be locked, s.
_LOCKED = 1.0
#: libpq's options by which a connection to a server that has vanished ends within seconds; the
#: first is in ms, intervals are in s.
_KEEPALIVE = {
    "tcp_user_timeout": 5000,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
}

#: The message about a database that something else has written to.
DAMAGED = (
    "the database is damaged: {}; remove it, and sotto aggregate or sotto sink writes all results "
    "that the state or the topic still has"
)

T = TypeVar("T")


class ResultsError(AggregationError):
    """The results cannot be read; the message says why, and what to do."""


class NoResultsError(ResultsError, MissingError):
    """There are no results, or not yet."""


class UnreadableError(ResultsError):
    """There may be results, but they cannot be read now."""


class UnknownNameError(ParameterError):
    """No results have a name that was given, and others there are."""


class ReadOnlyDatabase:
    """A database of results.

    Parameters
    ----------
    url : str or sqlalchemy.URL
        Of SQLite (a file) or PostgreSQL.
    kept : int
        Connections to a server that are kept open between reads.

    Raises
    ------
    ResultsError
        If the URL cannot be used.
    """

    def __init__(self, url: str | sql.URL, kept: int = 0) -> None:
        self._url = database_url(url, ResultsError)
        self._sqlite = self._url.get_backend_name() == "sqlite"
        #: The file of a SQLite database; None for a server.
        self.file = Path(self._url.database or "") if self._sqlite else None
        self._kept = kept
        #: Whether tables of results lacked columns when they were last read.
        self._lacking = False
        self._server: sql.Engine | None = None

    def read(self, query: Callable[[sql.Connection], T]) -> T:
        """Call ``query`` in one read-only transaction and return its result.

        The query is called again if the file has changed meanwhile, or lacks columns.

        Raises
        ------
        NoResultsError
            If there is no database, or there are no results in it.
        UnreadableError
            If it cannot be read now.
        ResultsError
            If it is damaged, or was written by another version of Sotto.
        """
        try:
            for _ in range(ATTEMPTS):
                before = self._stamp()
                try:
                    with self._connection() as connection:
                        if self._lacking:
                            self._lacking = read_as_null(connection)
                        if connection.execute(sql.select(META.c.state)).first() is None:
                            raise NoResultsError("the database has no results yet")
                        found = query(connection)
                except (SQLAlchemyError, JSONDecodeError):
                    if not self._lacking and self._is_lacking():
                        continue
                    # A file that changes while it is read can look damaged.
                    if before is None or before == self._stamp():
                        raise
                    continue
                # A file without a journal was opened as immutable: look whether it has changed.
                if before is None or before == self._stamp():
                    return found
            raise UnreadableError("the database changes all the time")
        except SQLAlchemyError as error:
            raise self._explained(error) from error
        except JSONDecodeError as error:
            raise ResultsError(DAMAGED.format("a list in it is no JSON")) from error

    def _is_lacking(self) -> bool:
        with self._connection() as connection:
            self._lacking = read_as_null(connection)
        return self._lacking

    def _explained(self, error: SQLAlchemyError) -> ResultsError:
        """Return why a database could not be read."""
        failed = f"the database cannot be read: {first_line(error)}"
        if isinstance(error, OperationalError) and "no such" not in failed:
            return UnreadableError(failed)
        with suppress(SQLAlchemyError), self._connection() as connection:
            if META.name not in sql.inspect(connection).get_table_names():
                return NoResultsError("the database has no results")
            if is_older(connection):
                return ResultsError(OLDER)
        return ResultsError(failed)

    def close(self) -> None:
        """Close the connections that are kept; the next read opens one again."""
        if self._server is not None:
            self._server.dispose()

    @property
    def size(self) -> int | None:
        """Bytes of a SQLite database and its journal; None for a server."""
        if self.file is None:
            return None
        present = (path for path in (self.file, self._journal) if path.exists())
        return sum(path.stat().st_size for path in present)

    @property
    def _journal(self) -> Path:
        return Path(f"{self.file}-wal")

    def _stamp(self) -> tuple[int, int] | None:
        """Return a file's time of change, ns, and size; None for a server, or with a journal."""
        if self.file is None or not self.file.exists() or self._journal.exists():
            return None
        found = self.file.stat()
        return found.st_mtime_ns, found.st_size

    @contextmanager
    def _connection(self) -> Iterator[sql.Connection]:
        with self._engine().connect() as connection:
            if self.file is not None:
                # All reads share one snapshot; Python's driver would take one for each query.
                connection.exec_driver_sql("BEGIN")
            yield connection

    def _engine(self) -> sql.Engine:
        if self.file is None:
            if self._server is None:
                self._server = _server(self._url, self._kept)
            return self._server
        if not self.file.is_file():
            raise NoResultsError(
                f"there are no results in {self.file}: sotto aggregate writes them"
            )
        # Without a journal nobody writes; ``immutable`` keeps SQLite from making files beside it.
        return _sqlite(self.file.absolute(), immutable=not self._journal.exists())


@lru_cache(maxsize=16)
def _sqlite(file: Path, *, immutable: bool) -> sql.Engine:
    query = {"uri": "true", "mode": "ro"} | ({"immutable": "1"} if immutable else {})
    url = sql.URL.create("sqlite", database="file:" + quote(str(file)), query=query)
    return sql.create_engine(url, poolclass=NullPool, connect_args={"timeout": _LOCKED})


def _server(url: sql.URL, kept: int) -> sql.Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        statement = f"-c statement_timeout={_PATIENCE * 1000}"
        options["connect_args"] = {"connect_timeout": _PATIENCE, "options": statement, **_KEEPALIVE}
    options |= {"pool_size": kept, "pool_pre_ping": True} if kept else {"poolclass": NullPool}
    return sql.create_engine(url, **options).execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True
    )
