"""The tables of results, and what is written to them from documents.

The tables are plain SQL that SQLite and PostgreSQL share; times are milliseconds since the epoch,
privacy amounts micro-epsilon. Every row is of a collector, so that one database serves several.
``docs/formats.md`` describes every column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import sqlalchemy as sql

from pipelines.sinks.documents import (
    WINDOW_KEY,
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)

Row: TypeAlias = Mapping[str, object]

#: The tables of results, and those that a sink has besides.
METADATA = sql.MetaData()
SINK_METADATA = sql.MetaData()
#: What estimates and alarms repeat of their window.
_REPEATED = (*WINDOW_KEY, "segment", "window_end", "revision")
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


#: By collector: of which state directory or job its results are, up to which generation, and from
#: which topic a sink takes them; none of aggregation runs.
META = sql.Table(
    "meta",
    METADATA,
    sql.Column("collector", sql.String, primary_key=True),
    sql.Column("state", sql.String, nullable=False),
    *_numbers("projected_generation"),
    sql.Column("clock", sql.BigInteger),
    *_columns(sql.String, "lineage", "source"),
)

#: The windows that have reports.
WINDOWS = sql.Table(
    "stored_windows",
    METADATA,
    *_window_key(),
    *_numbers("window_end"),
    *_columns(sql.String, "type", "mechanism", nullable=False),
    *_numbers("n"),
    sql.Column("reports_by_level", sql.JSON, nullable=False),
    *_numbers("revision"),
    sql.Column("minimum_reports", sql.BigInteger),
    sql.Column("withheld", sql.String),
    sql.Column("complete", sql.Boolean),
)

#: What is estimated in them. Null stands for what the reports do not determine, and for what is
#: withheld; then ``withheld`` says why.
ESTIMATES = sql.Table(
    "stored_estimates",
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
    sql.Column("reach", sql.JSON(none_as_null=True)),
    sql.Column("complete", sql.Boolean),
)

#: What honest devices do not do, of windows where that is seen.
ALARMS = sql.Table(
    "stored_alarms",
    METADATA,
    *_window_key(),
    *_keys(sql.String, "kind"),
    *_numbers("window_end"),
    *_columns(sql.Float, "statistic", "expected", "threshold", "p_value", nullable=False),
    *_numbers("n"),
    sql.Column("message", sql.String, nullable=False),
    *_numbers("revision"),
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
    sql.Column("collector", sql.String, primary_key=True),
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
    sql.Column("collector", sql.String, nullable=False),
    *_numbers("revision"),
)
#: Other jobs whose documents were read, in the order of their last ones, and which were replaced.
JOBS = sql.Table(
    "sink_jobs",
    SINK_METADATA,
    *_keys(sql.String, "collector", "topic", "job"),
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
    revisions = [
        {
            "key": each.key.decode(),
            "collector": each.collector_name,
            "revision": each.revision,
        }
        for each in documents
    ]
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
            replace_all(connection, QUARANTINE, each.collector, _quarantine(each))
        elif isinstance(each, HealthDocument):
            row = {
                "collector": each.collector,
                "revision": each.revision,
                "document": dict(each.health),
            }
            _replace(connection, HEALTH, ("collector",), [row], [row])
            now = {"projected_generation": each.revision, "clock": each.health["clock"]}
            connection.execute(
                sql.update(META).where(META.c.collector == each.collector).values(now)
            )


def _quarantine(document: RejectsDocument) -> list[Row]:
    requeued = document.requeued
    return [
        {
            "collector": document.collector,
            "generation": 0,
            "reason": reason,
            "rows": rows,
            "requeued": None if requeued is None else requeued.get(reason, 0),
        }
        for reason, rows in document.rejects.items()
    ]


def mark_changed(connection: sql.Connection, collector: str, documents: int) -> None:
    """Change the digest by which readers notice that a collector's results have changed."""
    ours = META.c.collector == collector
    before = connection.execute(sql.select(META.c.lineage).where(ours)).scalar() or "0 documents"
    written = int(before.split()[0]) + documents
    connection.execute(sql.update(META).where(ours).values(lineage=f"{written} documents"))


def replace_windows(
    connection: sql.Connection, windows: Sequence[Row], estimates: Sequence[Row]
) -> None:
    """Replace all rows of some windows, of all segments; one without estimates is removed.

    The row of all reports has as ``alarms`` those of the table of that name, without their key.
    """
    stale = [row for row in windows if not row["segment"]]
    alarms = [
        {**{name: row[name] for name in _REPEATED}, **alarm}
        for row in stale
        for alarm in cast(Sequence[Row], row.get("alarms") or ())
    ]
    estimated = {tuple(row[name] for name in WINDOW_KEY) for row in estimates}
    kept = [
        {name: row[name] for name in row if name != "alarms"}
        for row in windows
        if tuple(row[name] for name in WINDOW_KEY) in estimated
    ]
    _replace(connection, ESTIMATES, WINDOW_KEY, stale, estimates)
    _replace(connection, WINDOWS, WINDOW_KEY, stale, kept)
    _replace(connection, ALARMS, WINDOW_KEY, stale, alarms)


def replace_all(
    connection: sql.Connection, table: sql.Table, collector: str, rows: Sequence[Row]
) -> None:
    """Replace all rows that a table has of a collector."""
    connection.execute(sql.delete(table).where(table.c.collector == collector))
    _insert(connection, table, rows)


def forget(connection: sql.Connection, collector: str, state: str | None = None) -> None:
    """Remove all results of a collector, and whose they are: if a state is given, if its."""
    for table in METADATA.sorted_tables:
        remove = sql.delete(table).where(table.c.collector == collector)
        # Another one's may have come since it was looked: then the transaction is to fail.
        others = table is META and state is not None
        connection.execute(remove.where(META.c.state == state) if others else remove)


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
