"""The tables of results, and what is written to them from documents.

The tables are plain SQL that SQLite and PostgreSQL share; times are milliseconds since the epoch,
privacy amounts micro-epsilon. ``docs/formats.md`` describes every column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sql
from sqlalchemy.exc import IntegrityError

from pipelines.sinks.documents import (
    WINDOW_KEY,
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from sotto.errors import AggregationError

Row: TypeAlias = Mapping[str, object]

#: The tables of results, and those that a sink has besides.
METADATA = sql.MetaData()
SINK_METADATA = sql.MetaData()
#: Keys that one query asks for.
_QUERIED = 500


def _columns(kind: Any, *names: str, **options: Any) -> list[sql.Column[Any]]:
    return [sql.Column(name, kind, **options) for name in names]


def _keys(kind: Any, *names: str) -> list[sql.Column[Any]]:
    return _columns(kind, *names, primary_key=True)


def _window_key() -> list[sql.Column[Any]]:
    return [
        *_keys(sql.String, "collector", "plan"),
        *_keys(sql.Integer, "version"),
        *_keys(sql.String, "metric"),
        *_keys(sql.BigInteger, "window_start"),
        sql.Column("segment", sql.String, primary_key=True, server_default=""),
    ]


def _numbers(*names: str) -> list[sql.Column[Any]]:
    return _columns(sql.BigInteger, *names, nullable=False)


#: One row: whose results these are, and up to which generation.
META = sql.Table(
    "meta",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("state", sql.String, nullable=False),
    *_numbers("projected_generation"),
    sql.Column("clock", sql.BigInteger),
    sql.Column("lineage", sql.String),
)

#: The windows that have reports.
WINDOWS = sql.Table(
    "windows",
    METADATA,
    *_window_key(),
    *_numbers("window_end"),
    *_columns(sql.String, "type", "mechanism", nullable=False),
    *_numbers("n"),
    sql.Column("reports_by_level", sql.JSON, nullable=False),
    *_numbers("revision"),
    sql.Column("minimum_reports", sql.BigInteger),
    sql.Column("withheld", sql.String),
)

#: What is estimated in them. Null stands for what the reports do not determine, and for what is
#: withheld; then ``withheld`` says why.
ESTIMATES = sql.Table(
    "estimates",
    METADATA,
    *_window_key(),
    *_keys(sql.String, "kind", "item"),
    *_numbers("window_end"),
    sql.Column("position", sql.Integer, nullable=False),
    *_columns(sql.Float, "value", "standard_error", "low", "high", "display", "detection_floor"),
    *_numbers("n"),
    sql.Column("reports_by_level", sql.JSON, nullable=False),
    sql.Column("significant", sql.Boolean),
    sql.Column("p_value", sql.Float),
    sql.Column("confounded_with", sql.JSON(none_as_null=True)),
    *_columns(sql.String, "unit", "method"),
    *_numbers("revision"),
    sql.Column("withheld", sql.String),
)

#: The audit of every budget period, summed over devices; the largest of a single one beside it.
PERIODS = sql.Table(
    "periods",
    METADATA,
    sql.Column("collector", sql.String, primary_key=True),
    sql.Column("period_start", sql.BigInteger, primary_key=True),
    *_numbers("period_end"),
    sql.Column("closed", sql.Boolean, nullable=False),
    *_numbers("pseudonyms", "chains", "accepted", "observed", "most_accepted", "most_observed"),
    *_numbers("over_budget", "equivocation"),
)

#: Rejected reports by generation and reason, and how many of them have been requeued since;
#: generation 0 sums those whose retention is over.
QUARANTINE = sql.Table(
    "quarantine",
    METADATA,
    sql.Column("generation", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("reason", sql.String, primary_key=True),
    *_numbers("rows"),
    sql.Column("requeued", sql.BigInteger),
)

#: The offset after the last record that was written, by partition of the topic.
OFFSETS = sql.Table(
    "sink_offsets",
    SINK_METADATA,
    sql.Column("topic", sql.String, primary_key=True),
    sql.Column("partition", sql.Integer, primary_key=True),
    sql.Column("topic_id", sql.String, nullable=False),
    *_numbers("next"),
)
#: The revision that the results have of each key.
REVISIONS = sql.Table(
    "sink_revisions",
    SINK_METADATA,
    sql.Column("key", sql.String, primary_key=True),
    *_numbers("revision"),
)
#: Other jobs whose documents were read, in the order of their last ones, and which were replaced.
JOBS = sql.Table(
    "sink_jobs",
    SINK_METADATA,
    sql.Column("job", sql.String, primary_key=True),
    *_numbers("seen"),
    sql.Column("replaced", sql.Boolean, nullable=False),
)
#: The state of the job, as it reports it.
HEALTH = sql.Table(
    "health",
    SINK_METADATA,
    sql.Column("collector", sql.String, primary_key=True),
    *_numbers("revision"),
    sql.Column("document", sql.JSON, nullable=False),
)

#: Stands for a topic where documents come from a pipeline directly; no topic has this name.
DIRECT = "a pipeline"


class Advance(NamedTuple):
    """Records that were read of a partition: the offsets from ``start`` up to ``end``."""

    partition: int
    start: int
    end: int


def advance(connection: sql.Connection, topic: str, id: str, part: Advance) -> None:
    """Write the offset up to which a partition is written."""
    where = (OFFSETS.c.topic == topic, OFFSETS.c.partition == part.partition)
    raised = connection.execute(
        sql.update(OFFSETS)
        .where(*where, OFFSETS.c.topic_id == id, OFFSETS.c.next == part.start)
        .values(next=part.end)
    )
    if raised.rowcount:
        return
    row = {"topic": topic, "partition": part.partition, "topic_id": id, "next": part.end}
    try:
        if connection.execute(sql.select(OFFSETS).where(*where)).first() is None:
            connection.execute(sql.insert(OFFSETS), row)
            return
    except IntegrityError as error:
        raise AggregationError("another sink writes to the database") from error
    raise AggregationError("another sink writes to the database")


def lock_for(connection: sql.Connection, job: str) -> None:
    """Lock the database for one of several writers of a job's documents."""
    raised = connection.execute(
        sql.update(OFFSETS)
        .where(OFFSETS.c.topic == DIRECT, OFFSETS.c.topic_id == job)
        .values(next=OFFSETS.c.next + 1)
    )
    if raised.rowcount:
        return
    found = connection.execute(sql.select(OFFSETS)).first()
    if found is not None or connection.execute(sql.select(META.c.id)).first() is not None:
        raise AggregationError("the database holds other results: give another one to the pipeline")
    row = {"topic": DIRECT, "partition": 0, "topic_id": job, "next": 1}
    connection.execute(sql.insert(OFFSETS), row)


def of_current_job(
    connection: sql.Connection, documents: Sequence[Document]
) -> tuple[list[Document], int]:
    """Return the documents of the job whose results these are, and how many are of others.

    Where there are no results yet, it is the first document's job. A job that was replaced is
    none of the others.
    """
    replaced = set(connection.execute(sql.select(JOBS.c.job).where(JOBS.c.replaced)).scalars())
    current = connection.execute(sql.select(META.c.state)).scalar()
    ours: list[Document] = []
    others: dict[str, int] = {}
    for each in documents:
        if current is None and each.job not in replaced:
            current = each.job
            connection.execute(sql.insert(META).values(id=1, state=current, projected_generation=0))
        if each.job == current:
            ours.append(each)
        elif each.job not in replaced:
            others[each.job] = others.pop(each.job, 0) + 1
    _note_jobs(connection, list(others))
    return ours, sum(others.values())


def _note_jobs(connection: sql.Connection, jobs: Sequence[str]) -> None:
    if not jobs:
        return
    last = connection.execute(sql.select(sql.func.max(JOBS.c.seen))).scalar() or 0
    connection.execute(sql.delete(JOBS).where(JOBS.c.job.in_(jobs)))
    rows = [{"job": job, "seen": last + 1 + at, "replaced": False} for at, job in enumerate(jobs)]
    connection.execute(sql.insert(JOBS), rows)


def replace_job(connection: sql.Connection) -> bool:
    """Let the other job seen last replace the current one; False if none has been seen."""
    query = sql.select(JOBS.c.job).where(~JOBS.c.replaced).order_by(JOBS.c.seen.desc())
    newest = connection.execute(query).scalar()
    if newest is None:
        return False
    before = connection.execute(sql.select(META.c.state)).scalar()
    empty(connection)
    connection.execute(sql.delete(JOBS).where(JOBS.c.job == newest))
    connection.execute(sql.update(JOBS).values(replaced=True))
    if before is not None:
        connection.execute(sql.insert(JOBS).values(job=before, seen=0, replaced=True))
    connection.execute(sql.insert(META).values(id=1, state=newest, projected_generation=0))
    return True


def empty(connection: sql.Connection) -> None:
    """Remove all results and offsets; what is known of jobs stays."""
    for table in (*METADATA.sorted_tables, OFFSETS, REVISIONS, HEALTH):
        connection.execute(sql.delete(table))


def newer(connection: sql.Connection, documents: Sequence[Document]) -> list[Document]:
    """Return the newest document of each key that is newer than the results, in order."""
    newest: dict[str, Document] = {}
    for each in documents:
        key = each.key.decode()
        known = newest.get(key)
        if known is None or known.revision < each.revision:
            newest.pop(key, None)
            newest[key] = each
    keys = list(newest)
    have: dict[str, int] = {}
    for at in range(0, len(keys), _QUERIED):
        query = sql.select(REVISIONS).where(REVISIONS.c.key.in_(keys[at : at + _QUERIED]))
        have |= {row.key: row.revision for row in connection.execute(query)}
    return [each for key, each in newest.items() if each.revision > have.get(key, 0)]


def write_documents(connection: sql.Connection, documents: Sequence[Document]) -> None:
    """Write documents, at most one of a key, over what there is of their keys."""
    revisions = [{"key": each.key.decode(), "revision": each.revision} for each in documents]
    _replace(connection, REVISIONS, ("key",), revisions, revisions)
    found = [each.rows() for each in documents if isinstance(each, WindowDocument)]
    replace_windows(
        connection,
        [row for windows, _ in found for row in windows],
        [row for _, estimates in found for row in estimates],
    )
    for each in documents:
        if isinstance(each, PeriodDocument):
            key = ("collector", "period_start")
            _replace(connection, PERIODS, key, [each.period], [each.period])
        elif isinstance(each, RejectsDocument):
            replace_all(connection, QUARANTINE, _quarantine(each))
        elif isinstance(each, HealthDocument):
            row = {
                "collector": each.collector,
                "revision": each.revision,
                "document": dict(each.health),
            }
            _replace(connection, HEALTH, ("collector",), [row], [row])
            now = {"projected_generation": each.revision, "clock": each.health["clock"]}
            connection.execute(sql.update(META).values(now))


def _quarantine(document: RejectsDocument) -> list[Row]:
    requeued = document.requeued
    return [
        {
            "generation": 0,
            "reason": reason,
            "rows": rows,
            "requeued": None if requeued is None else requeued.get(reason, 0),
        }
        for reason, rows in document.rejects.items()
    ]


def mark_changed(connection: sql.Connection, documents: int) -> None:
    """Change the digest by which readers notice that the results have changed."""
    before = connection.execute(sql.select(META.c.lineage)).scalar() or "0 documents"
    written = int(before.split()[0]) + documents
    connection.execute(sql.update(META).values(lineage=f"{written} documents"))


def replace_windows(
    connection: sql.Connection, windows: Sequence[Row], estimates: Sequence[Row]
) -> None:
    """Replace all rows of some windows, of all segments; one without estimates is removed."""
    estimated = {tuple(row[name] for name in WINDOW_KEY) for row in estimates}
    kept = [row for row in windows if tuple(row[name] for name in WINDOW_KEY) in estimated]
    stale = [row for row in windows if not row["segment"]]
    _replace(connection, ESTIMATES, WINDOW_KEY, stale, estimates)
    _replace(connection, WINDOWS, WINDOW_KEY, stale, kept)


def lacks_segments(connection: sql.Connection, table: sql.Table) -> bool:
    """Return whether a table is of a release before segments, which are in its key now."""
    return all(
        each["name"] != "segment" for each in sql.inspect(connection).get_columns(table.name)
    )


def add_segments(connection: sql.Connection, table: sql.Table) -> None:
    """Make a table of an earlier release anew; its rows are those of all reports."""
    if not lacks_segments(connection, table):
        return
    former = f"{table.name}_without_segments"
    have = [each["name"] for each in sql.inspect(connection).get_columns(table.name)]
    connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {former}")
    table.create(connection)
    names = ", ".join(f'"{name}"' for name in have)
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {former}")
    connection.exec_driver_sql(f"DROP TABLE {former}")


def replace_all(connection: sql.Connection, table: sql.Table, rows: Sequence[Row]) -> None:
    connection.execute(sql.delete(table))
    _insert(connection, table, rows)


def _replace(
    connection: sql.Connection,
    table: sql.Table,
    key: Sequence[str],
    stale: Sequence[Row],
    rows: Sequence[Row],
) -> None:
    if stale:
        same = (table.c[name] == sql.bindparam(f"old_{name}") for name in key)
        keys = [{f"old_{name}": row[name] for name in key} for row in stale]
        connection.execute(sql.delete(table).where(*same), keys)
    _insert(connection, table, rows)


def _insert(connection: sql.Connection, table: sql.Table, rows: Iterable[Row]) -> None:
    """Insert rows; what is not finite becomes null."""
    values = [{name: _finite(value) for name, value in row.items()} for row in rows]
    if values:
        connection.execute(sql.insert(table), values)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
