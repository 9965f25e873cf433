"""A DuckDB file of results, for analysis: ``duckdb:///FILE``, with four slashes for a full path.

Its tables have the columns of the views of the same names (``docs/reference/tables.md``), and the
key of the document that a row is from. DuckDB lets one process at a time have a file open, so a
sink opens it for each write, and waits for others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from mechanisms.items import Method
from pipelines.results.documents import Document
from pipelines.results.encode import arrow_schema
from pipelines.results.fields import fields_of
from pipelines.results.records import Alarm, Budget, EstimateRecord, Rejection, Window
from pipelines.results.views import (
    ENDS,
    VIEW_ALARMS,
    VIEW_BUDGETS,
    VIEW_ESTIMATES,
    VIEW_REJECTIONS,
    VIEW_WINDOWS,
    View,
)
from pipelines.sinks.base import Applied, ReadTopic, Sink, SinkError
from sotto.errors import AggregationError, install_hint

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: How long another process may have the file open, s, and how often that is looked at.
PATIENCE, _LOOK = 30.0, 0.05
_VIEWS: Mapping[type, View] = {
    Window: VIEW_WINDOWS,
    EstimateRecord: VIEW_ESTIMATES,
    Alarm: VIEW_ALARMS,
    Budget: VIEW_BUDGETS,
    Rejection: VIEW_REJECTIONS,
}
_SCHEMAS = {
    record: arrow_schema(view).append(pa.field("document", pa.string()))
    for record, view in _VIEWS.items()
}
#: The revision that the file has of each key, and the jobs that were read.
_OWN = (
    "CREATE TABLE IF NOT EXISTS sotto_documents"
    " (key VARCHAR PRIMARY KEY, collector VARCHAR, revision BIGINT)",
    "CREATE TABLE IF NOT EXISTS sotto_jobs"
    " (collector VARCHAR, job VARCHAR, replaced BOOLEAN, PRIMARY KEY (collector, job))",
)
_BIASED = {each.value for each in Method if each.biased}


class DuckDbSink(Sink):
    """Keeps the rows of documents in a DuckDB file."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def open(cls, url: str, job: str = "") -> Self:
        path = url.removeprefix("duckdb:///")
        if path in ("", url):
            raise AggregationError("a DuckDB file is given as duckdb:///FILE")
        try:
            import duckdb  # noqa: F401
        except ImportError as error:
            raise AggregationError(f"duckdb is missing: {install_hint('duckdb')}") from error
        return cls(path)

    def write(self, documents: Sequence[Document], progress: ReadTopic | None = None) -> Applied:
        with self._transaction() as connection:
            batch = _DocumentBatch(connection, replace=progress is not None and progress.replace)
            for document in documents:
                batch.add(document)
            return batch.write()

    @contextmanager
    def _transaction(self) -> Iterator[DuckDBPyConnection]:
        """Open the file, with all tables, for one transaction."""
        import duckdb

        try:
            with self._opened() as connection:
                connection.begin()
                for statement in _OWN:
                    connection.execute(statement)
                for record, view in _VIEWS.items():
                    connection.register("empty", _SCHEMAS[record].empty_table())
                    made = f"CREATE TABLE IF NOT EXISTS {view.name} AS SELECT * FROM empty"
                    connection.execute(made)
                yield connection
                connection.commit()
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise SinkError(f"documents could not be written to {self._path}: {reason}") from error

    def _opened(self) -> DuckDBPyConnection:
        import duckdb

        until = time.monotonic() + PATIENCE
        while True:
            try:
                return duckdb.connect(self._path)
            except duckdb.IOException as error:
                if "lock" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(_LOOK)


class _DocumentBatch:
    """Documents that are written in one transaction.

    ``replace``: whether a job that has not been read before takes the place of the current one.
    """

    def __init__(self, connection: DuckDBPyConnection, *, replace: bool) -> None:
        self._connection = connection
        self._replace = replace
        self._replaced: set[tuple[str, str]] = set()
        self._jobs: dict[str, str] = {}
        for collector, job, replaced in self._all("SELECT * FROM sotto_jobs"):
            if replaced:
                self._replaced.add((collector, job))
            else:
                self._jobs[collector] = job
        self._known = self._revisions()
        self._new: dict[str, Document] = {}
        self._stale = self._others = 0

    def add(self, document: Document) -> None:
        """Take a document, unless it is of another job or no newer than what there is."""
        collector, key = document.collector_name, document.key.decode()
        if (collector, document.job) in self._replaced:
            self._stale += 1
            return
        if self._jobs.setdefault(collector, document.job) != document.job:
            if not self._replace:
                self._others += 1
                return
            self._forget(collector)
            self._jobs[collector] = document.job
        before = self._new.get(key)
        if document.revision <= (before.revision if before else self._known.get(key, 0)):
            self._stale += 1
            return
        self._stale += before is not None
        self._new[key] = document

    def write(self) -> Applied:
        """Write what was taken over what there is of its keys."""
        tables = {record: view.name for record, view in _VIEWS.items()}
        keys = [(key,) for key in self._new]
        for name in (*tables.values(), "sotto_documents") if keys else ():
            key = "key" if name == "sotto_documents" else "document"
            self._connection.executemany(f"DELETE FROM {name} WHERE {key} = ?", keys)
        for record, name in tables.items():
            rows = [
                {**_values(record, row), "document": key}
                for key, document in self._new.items()
                for row in document.rows().get(record, ())
            ]
            self._insert(name, pa.Table.from_pylist(rows, _SCHEMAS[record]))
        revisions = [
            {"key": key, "collector": each.collector_name, "revision": each.revision}
            for key, each in self._new.items()
        ]
        if revisions:
            self._insert("sotto_documents", pa.Table.from_pylist(revisions))
        jobs = [(*whose, True) for whose in self._replaced]
        jobs += [(*whose, False) for whose in self._jobs.items()]
        for whose in jobs:
            self._connection.execute("INSERT OR REPLACE INTO sotto_jobs VALUES (?, ?, ?)", whose)
        return Applied(len(self._new), self._stale, self._others)

    def _forget(self, collector: str) -> None:
        """Remove what there is of a collector, whose job is replaced."""
        self._replaced.add((collector, self._jobs.pop(collector)))
        for name in (*(view.name for view in _VIEWS.values()), "sotto_documents"):
            self._connection.execute(f"DELETE FROM {name} WHERE collector = ?", [collector])
        self._known = self._revisions()
        self._new = {
            key: each for key, each in self._new.items() if each.collector_name != collector
        }

    def _revisions(self) -> dict[str, int]:
        return dict(self._all("SELECT key, revision FROM sotto_documents"))

    def _all(self, query: str) -> list[Any]:
        return self._connection.execute(query).fetchall()

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._connection.register("rows", rows)
        self._connection.execute(f"INSERT INTO {name} SELECT * FROM rows")


def _values(record: type, row: Mapping[str, object]) -> dict[str, object]:
    """Return a row as the view of its record has it."""
    found = {each.name: _finite(row.get(each.stored)) for each in fields_of(record)}
    for each in fields_of(record):
        if each.about.micro:
            found[each.name] = cast(int, found[each.name]) / 1e6
    if record is EstimateRecord:
        found["biased"] = found["method"] in _BIASED
        if found["biased"]:
            found |= dict.fromkeys(ENDS)
    return found


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
