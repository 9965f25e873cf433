"""The tables of results; most are made of the records of :mod:`pipelines.results.records`.

The tables are plain SQL that SQLite and PostgreSQL share; times are milliseconds since the epoch,
privacy amounts micro-epsilon. Every row is of a collector, so that one database serves several.
Meanings of tables and columns are comments in PostgreSQL, and in ``docs/reference/tables.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import sqlalchemy as sql

from pipelines.results.fields import Field, Kind, stored_fields
from pipelines.results.records import Alarm, Budget, EstimateRecord, Health, Rejection, Window

Row: TypeAlias = Mapping[str, object]

#: The tables of results, and those that a sink has besides.
METADATA = sql.MetaData()
SINK_METADATA = sql.MetaData()

_TYPES: Mapping[Kind, Any] = {
    "text": sql.String,
    "integer": sql.BigInteger,
    "number": sql.Float,
    "boolean": sql.Boolean,
    "time": sql.BigInteger,
    "integers": sql.JSON,
    "texts": sql.JSON(none_as_null=True),
    "pairs": sql.JSON(none_as_null=True),
}


def _of_record(name: str, record: type, comment: str) -> sql.Table:
    """Return the table of a record."""
    return sql.Table(name, METADATA, *map(_column, stored_fields(record)), comment=comment)


def _column(field: Field) -> sql.Column[Any]:
    kind, unit, about = _TYPES[field.kind], "", field.about
    if field.kind == "time":
        unit = ", ms since the epoch"
    elif about.micro:
        kind, unit = sql.BigInteger, ", in micro-epsilon"
    elif about.small:
        kind = sql.Integer
    # Rows of earlier releases have no value.
    absent = about.absent is not None
    return sql.Column(
        field.stored,
        kind,
        primary_key=about.key,
        nullable=field.null or (absent and not about.key),
        server_default=str(about.absent) if absent and about.key else None,
        comment=about.text + unit,
    )


def _text(name: str, comment: str, **options: Any) -> sql.Column[Any]:
    return sql.Column(name, sql.String, comment=comment, **options)


def _number(name: str, comment: str, **options: Any) -> sql.Column[Any]:
    options = {"nullable": False, **options}
    return sql.Column(name, sql.BigInteger, comment=comment, **options)


def _collector() -> sql.Column[Any]:
    return _text("collector", "who collects", primary_key=True)


META = sql.Table(
    "meta",
    METADATA,
    _collector(),
    _text("state", "random name of the state directory, or of the streaming job", nullable=False),
    _number(
        "projected_generation",
        "generation of the state directory, or revision of the job's newest health document",
    ),
    _number(
        "clock", "append time up to which reports have been read, ms since the epoch", nullable=True
    ),
    _text("lineage", "digest of that generation, or number of documents written"),
    _text("source", "topic from which a sink takes the results; null for aggregation runs"),
    comment="by collector: whose results these are, and up to which generation",
)
WINDOWS = _of_record(
    "stored_windows", Window, "the windows that have reports; the view windows has them for people"
)
#: Null stands for what the reports do not determine, and for what is withheld.
ESTIMATES = _of_record(
    "stored_estimates",
    EstimateRecord,
    "what is estimated in them; the view estimates has them for people",
)
ALARMS = _of_record(
    "stored_alarms",
    Alarm,
    "windows whose reports are not those of honest devices; the view alarms has them for people",
)
PERIODS = _of_record(
    "periods",
    Budget,
    "the audit of every budget period, in micro-epsilon; the view budgets has it in epsilon",
)
QUARANTINE = sql.Table(
    "quarantine",
    METADATA,
    _collector(),
    _number(
        "generation",
        "0; release 0.4.0 wrote the generation of the state directory",
        primary_key=True,
        autoincrement=False,
        default=0,
    ),
    _text("reason", "why they were rejected", primary_key=True),
    _number("rows", "reports rejected"),
    _number("requeued", "of these, taken again since; null if that is not known", nullable=True),
    comment="rejected reports by reason; the view rejections has them for people",
)

OFFSETS = sql.Table(
    "sink_offsets",
    SINK_METADATA,
    _text(
        "topic",
        "name of the topic; 'a pipeline' where documents come from one directly",
        primary_key=True,
    ),
    sql.Column("partition", sql.Integer, primary_key=True, comment="number of the partition"),
    _text(
        "topic_id", "id of the topic, by which one that was made anew is noticed", nullable=False
    ),
    _number("next", "offset after the last record that was written"),
    comment="up to where a sink has read the topic of estimates",
)
REVISIONS = sql.Table(
    "sink_revisions",
    SINK_METADATA,
    _text("key", "key of the document", primary_key=True),
    _text("collector", "who collects", nullable=False),
    _number("revision", "of the document that changed it last"),
    comment="the revision that the results have of each document",
)
JOBS = sql.Table(
    "sink_jobs",
    SINK_METADATA,
    _collector(),
    _text("topic", "name of the topic", primary_key=True),
    _text("job", "random name of the job", primary_key=True),
    _number("seen", "order in which they were read last"),
    sql.Column(
        "replaced", sql.Boolean, nullable=False, comment="whether another job has replaced it"
    ),
    comment="other jobs whose documents a sink has read",
)
HEALTH = sql.Table(
    "health",
    SINK_METADATA,
    _collector(),
    _number("revision", "of the document that changed it last"),
    sql.Column(
        "document",
        sql.JSON,
        nullable=False,
        comment="its numbers: reports, duplicates, chains, pseudonyms, offsets, clock",
    ),
    comment="the state of a streaming job, as it reports it",
)

#: The table that keeps the rows of a record.
TABLES: Mapping[type, sql.Table] = {
    Window: WINDOWS,
    EstimateRecord: ESTIMATES,
    Alarm: ALARMS,
    Budget: PERIODS,
    Rejection: QUARANTINE,
    Health: HEALTH,
}
