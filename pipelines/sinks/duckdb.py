"""A DuckDB file of results, for analysis: ``duckdb:///FILE``, with four slashes for a full path.

Its tables have the columns of the views of the same names (``docs/reference/tables.md``), and the
key of the document that a row is from. DuckDB lets one process at a time have a file open, so a
sink opens it for each write, and waits for others and for other threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, cast

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
from pipelines.sinks.rows import finite, newest
from sotto.errors import AggregationError, install_hint

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: How long to wait while another process has the file open, s, and how often to look, s.
PATIENCE, _LOOK = 30.0, 0.05
#: Threads of a process share the open file, and one of two transactions at a time would fail.
_WRITING = threading.Lock()
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
#: Tables of the sink's own: the revision of each key, and the jobs whose documents came.
_OWN = (
    "CREATE TABLE IF NOT EXISTS sotto_documents"
    " (key VARCHAR PRIMARY KEY, collector VARCHAR, revision BIGINT)",
    "CREATE TABLE IF NOT EXISTS sotto_jobs"
    " (collector VARCHAR, job VARCHAR, replaced BOOLEAN, PRIMARY KEY (collector, job))",
)
_BIASED = {each.value for each in Method if each.biased}


class DuckDbSink(Sink):
    """Keeps the rows of documents in a DuckDB file."""

    def __init__(self, path: str, job: str = "") -> None:
        self._path, self._job = path, job

    @classmethod
    def open(cls, url: str, job: str = "") -> Self:
        path = url.removeprefix("duckdb:///")
        if path in ("", url):
            raise AggregationError("a DuckDB file is given as duckdb:///FILE")
        try:
            import duckdb  # noqa: F401
        except ImportError as error:
            raise AggregationError(f"duckdb is missing: {install_hint('duckdb')}") from error
        return cls(path, job)

    def write(self, documents: Sequence[Document], progress: ReadTopic | None = None) -> Applied:
        with self._transaction() as connection:
            replace = progress is not None and progress.replace
            ours, others = _of_current_jobs(connection, documents, replace=replace)
            if self._job in {each.job for each in documents} - {each.job for each in ours}:
                raise AggregationError(f"{self._path} holds another job's results: give another")
            known = dict(connection.execute("SELECT key, revision FROM sotto_documents").fetchall())
            fresh = {
                key: each for key, each in newest(ours).items() if each.revision > known.get(key, 0)
            }
            if fresh:
                _write_fresh(connection, fresh)
            return Applied(len(fresh), len(documents) - others - len(fresh), others)

    @contextmanager
    def _transaction(self) -> Iterator[DuckDBPyConnection]:
        """Open the file, with all tables, for one transaction."""
        import duckdb

        try:
            with _WRITING, self._opened() as connection:
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
            stays = isinstance(error, duckdb.ProgrammingError | duckdb.DataError)
            raised = AggregationError if stays else SinkError
            raise raised(f"documents could not be written to {self._path}: {reason}") from error

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


def _of_current_jobs(
    connection: DuckDBPyConnection, documents: Sequence[Document], *, replace: bool
) -> tuple[list[Document], int]:
    """Return the documents of each collector's current job, and how many are of other jobs.

    ``replace``: whether a job that has not been read before takes the place of the current one,
    whose results are removed.
    """
    jobs: dict[str, str] = {}
    replaced: set[tuple[str, str]] = set()
    for collector, job, gone in connection.execute("SELECT * FROM sotto_jobs").fetchall():
        if gone:
            replaced.add((collector, job))
        else:
            jobs[collector] = job
    ours: list[Document] = []
    others = 0
    for each in documents:
        collector = each.collector_name
        if (collector, each.job) in replaced:
            continue
        current = jobs.setdefault(collector, each.job)
        if current != each.job and not replace:
            others += 1
            continue
        if current != each.job:
            replaced.add((collector, current))
            jobs[collector] = each.job
            ours = [one for one in ours if one.collector_name != collector]
            for name in (*(view.name for view in _VIEWS.values()), "sotto_documents"):
                connection.execute(f"DELETE FROM {name} WHERE collector = ?", [collector])
        ours.append(each)
    rows = [(*each, True) for each in replaced] + [(*each, False) for each in jobs.items()]
    for whose in rows:
        connection.execute("INSERT OR REPLACE INTO sotto_jobs VALUES (?, ?, ?)", whose)
    return ours, others


def _write_fresh(connection: DuckDBPyConnection, fresh: Mapping[str, Document]) -> None:
    """Write documents, given by key, in place of all rows that have their keys."""

    def replace(name: str, key: str, rows: pa.Table) -> None:
        connection.executemany(f"DELETE FROM {name} WHERE {key} = ?", [(each,) for each in fresh])
        connection.register("rows", rows)
        connection.execute(f"INSERT INTO {name} SELECT * FROM rows")

    for record, view in _VIEWS.items():
        rows = [
            {**_values(record, row), "document": key}
            for key, document in fresh.items()
            for row in document.rows().get(record, ())
        ]
        replace(view.name, "document", pa.Table.from_pylist(rows, _SCHEMAS[record]))
    revisions = [
        {"key": key, "collector": each.collector_name, "revision": each.revision}
        for key, each in fresh.items()
    ]
    replace("sotto_documents", "key", pa.Table.from_pylist(revisions))


def _values(record: type, row: Mapping[str, object]) -> dict[str, object]:
    """Return a row in the form of the view of its record: epsilon, and no biased intervals."""
    found = {each.name: finite(row.get(each.stored)) for each in fields_of(record)}
    for each in fields_of(record):
        if each.about.micro:
            found[each.name] = cast(int, found[each.name]) / 1e6
    if record is EstimateRecord:
        found["biased"] = found["method"] in _BIASED
        if found["biased"]:
            found |= dict.fromkeys(ENDS)
    return found
