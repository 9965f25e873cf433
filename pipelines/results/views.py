"""Views of the results for people: times as timestamps, privacy in epsilon, shares by name.

The columns are a contract. They are fields of :mod:`pipelines.results.records`, from which
``docs/reference/tables.md``, the comments in PostgreSQL and the description of the HTTP interface
are made, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from mechanisms.items import OF_EXPERIMENTS, Method
from pipelines.results.fields import About, Field, fields_of, milliseconds
from pipelines.results.records import (
    SHARE_COLUMNS,
    Alarm,
    ArmEffect,
    Budget,
    EstimateRecord,
    MetricKey,
    MetricRecord,
    OfWindow,
    RangeComparison,
    RangeEstimate,
    Rejection,
    RetentionRate,
    Window,
)
from pipelines.results.tables import ALARMS, ESTIMATES, PERIODS, QUARANTINE, TABLES, WINDOWS

#: The years 1 to 9999, ms. A document of a topic may name a time beyond: views have null for it.
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
_MICRO = 1e6
#: The order of windows and of estimates.
_ORDER = (*MetricKey._fields, "window_start", "segment", "position", "kind", "item")


@dataclass(frozen=True)
class RowSet:
    """Rows of one kind: their name, what a row is, and their columns."""

    name: str
    comment: str
    columns: Sequence[Field]


@dataclass(frozen=True)
class Column(Field):
    """A column of a view; its name can be another one than the field's."""

    source: sql.ColumnElement[Any] = field(kw_only=True)  #: of a table; a time is milliseconds

    @property
    def shown(self) -> sql.Label[Any]:
        """The column as the view has it."""
        source = self.source
        if self.kind == "time":
            known = source.between(sql.literal(_FIRST), sql.literal(_LAST))
            source = sql.case((known, _Timestamp(source)))
        return source.label(self.name)


@dataclass(frozen=True)
class View(RowSet):
    """A view: its name, what a row is, its columns, and which rows of its table it has."""

    columns: tuple[Column, ...]
    table: sql.Table
    where: tuple[sql.ColumnElement[bool], ...] = ()
    #: The columns by which rows of the table are grouped to one row; empty if none are grouped.
    grouped: tuple[str, ...] = ()
    #: Whether the view is for those who operate the collection, and not for everybody.
    private: bool = False

    @property
    def shown(self) -> sql.Select[Any]:
        """The view's query."""
        return self._select(column.shown for column in self.columns)

    @cached_property
    def stored(self) -> sql.Select[Any]:
        """The view's query with times in milliseconds, as the tables have them."""
        return self._select(column.source.label(column.name) for column in self.columns)

    def _select(self, columns: Iterable[sql.Label[Any]]) -> sql.Select[Any]:
        found = sql.select(*columns).where(*self.where)
        return found.group_by(*(self.table.c[name] for name in self.grouped))

    @property
    def order(self) -> tuple[str, ...]:
        """The columns of the table by which rows are ordered; no two rows have the same values."""
        columns = self.table.c
        of_windows = "metric" in columns and "window_start" in columns
        key = [name for name in _ORDER if name in columns] if of_windows else []
        return self.grouped or tuple(key or self.table.primary_key.columns.keys())

    def has(self, name: str) -> bool:
        """Return whether the view has a column."""
        return any(column.name == name for column in self.columns)


class _Timestamp(FunctionElement[Any]):
    """Milliseconds since the epoch as a timestamp: text of ISO 8601 where there is no such type."""

    name = "timestamp"
    inherit_cache = True


@compiles(_Timestamp, "sqlite")
def _of_sqlite(element: _Timestamp, compiler: SQLCompiler, **options: Any) -> str:
    source = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {source} / 1000.0, 'unixepoch')"


@compiles(_Timestamp, "postgresql")
def _of_postgresql(element: _Timestamp, compiler: SQLCompiler, **options: Any) -> str:
    return f"to_timestamp({compiler.process(element.clauses, **options)} / 1000.0)"


class _Probability(FunctionElement[float]):
    """Text as a number from 0 to 1; null or 0 for other text, which a document may hold."""

    name = "probability"
    type = sql.Double()
    inherit_cache = True


@compiles(_Probability, "sqlite")
def _probability_of_sqlite(element: _Probability, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} AS DOUBLE)"


@compiles(_Probability, "postgresql")
def _probability_of_postgresql(element: _Probability, compiler: SQLCompiler, **options: Any) -> str:
    text = compiler.process(element.clauses, **options)
    return (
        f"CASE WHEN {text} ~ '^[01]?([.][0-9]{{1,20}})?$' AND {text} <> '' THEN {text}::float8 END"
    )


def newest(table: sql.Table, *where: sql.ColumnElement[bool]) -> sql.ColumnElement[bool]:
    """Return the condition that a row is of the newest complete window of its metric.

    If none is complete, the newest window takes its place. ``where``: conditions on columns of
    :data:`NEWEST` that windows must meet to be considered.
    """
    start = NEWEST.c.window_start
    done = sql.func.max(sql.case((is_complete(NEWEST), start)))
    found = sql.select(*_metric_of(NEWEST), sql.func.coalesce(done, sql.func.max(start)))
    found = found.where(*where).group_by(*_metric_of(NEWEST))
    return sql.tuple_(*_metric_of(table), table.c.window_start).in_(found)


def is_complete(table: sql.FromClause) -> sql.ColumnElement[bool]:
    """Return the condition that a window is complete; null, in rows of release 0.4.0, is so."""
    return table.c.complete.is_not(sql.false())


def of_metric(table: sql.Table, metric: str) -> sql.ColumnElement[bool]:
    """Return the condition that a row is of a metric of this name, in a form that uses the key."""
    of_all = sql.select(*_metric_of(NEWEST)).where(NEWEST.c.metric == metric).distinct()
    return sql.tuple_(*_metric_of(table)).in_(of_all)


def _metric_of(table: sql.FromClause) -> list[sql.ColumnElement[Any]]:
    return [table.c[name] for name in MetricKey._fields]


def newest_windows() -> sql.Select[Any]:
    """Return the query of one row for each metric, with the starts of three windows, ms.

    ``last``: of the newest window of all reports. ``done``: of the newest complete one; null if
    none is complete. ``shown``: of the newest complete one that is not withheld, or, without one,
    of the newest that is not withheld; null if all are withheld.

    The query steps through the values of each column of the key by its index, so that no other
    windows are read.
    """
    window = WINDOWS.alias("w")
    found: sql.CTE | None = None
    for at, name in enumerate(MetricKey._fields):
        column = window.c[name]
        before = [] if found is None else [found.c[each] for each in MetricKey._fields[:at]]
        same = [window.c[each.name] == each for each in before]
        first = sql.select(sql.func.min(column)).where(*same).scalar_subquery().label(name)
        each = sql.select(*before, first).cte(f"each_{name}", recursive=True)
        same = [window.c[other] == each.c[other] for other in MetricKey._fields[:at]]
        following = sql.select(sql.func.min(column)).where(*same, column > each.c[name])
        others = (each.c[other] for other in MetricKey._fields[:at])
        step = sql.select(*others, following.scalar_subquery().label(name))
        found = each.union_all(step.where(each.c[name].is_not(None)))
        found = sql.select(found).where(found.c[name].is_not(None)).cte(f"found_{name}")
    assert found is not None, "a metric has a name"
    same = [one == other for one, other in zip(_metric_of(window), found.c, strict=True)]
    start = window.c.window_start
    last = sql.select(start).where(*same, window.c.segment == "").order_by(start.desc()).limit(1)
    done, told = last.where(is_complete(window)), last.where(window.c.withheld.is_(None))
    shown = sql.func.coalesce(
        told.where(is_complete(window)).scalar_subquery(), told.scalar_subquery()
    )
    return sql.select(
        found,
        last.scalar_subquery().label("last"),
        done.scalar_subquery().label("done"),
        shown.label("shown"),
    )


#: The windows among which a metric's newest one is looked for.
NEWEST = WINDOWS.alias("newest")

#: Columns that are null in an estimate that is known to be biased.
ENDS = ("low", "high", "standard_error")
_BIASED = sql.func.coalesce(ESTIMATES.c.method, Method.UNBIASED.value).in_(
    [each.value for each in Method if each.biased]
)
_OF_ALL = WINDOWS.c.segment == ""


def _total(column: sql.ColumnElement[Any]) -> sql.ColumnElement[int]:
    # PostgreSQL's sum is of another type.
    return sql.cast(sql.func.sum(column), sql.BigInteger)


#: By record, what views compute of a table's columns.
_COMPUTED: Mapping[type, Mapping[str, sql.ColumnElement[Any]]] = {
    Window: {"complete": is_complete(WINDOWS)},
    EstimateRecord: {
        "complete": is_complete(ESTIMATES),
        "biased": _BIASED,
        # Release 0.4.0 wrote intervals of biased estimates, too.
        **{name: sql.case((~_BIASED, ESTIMATES.c[name])) for name in ENDS},
    },
    Budget: {
        each.name: PERIODS.c[each.name] / sql.literal(_MICRO)
        for each in fields_of(Budget)
        if each.about.micro
    },
    Rejection: {"reports": _total(QUARANTINE.c.rows), "requeued": _total(QUARANTINE.c.requeued)},
    MetricRecord: {
        "windows": sql.func.count(sql.case((_OF_ALL, 1))),
        "reports": _total(sql.case((_OF_ALL, WINDOWS.c.n), else_=0)),
        "first_window": sql.func.min(WINDOWS.c.window_start),
        "newest_window": sql.func.max(WINDOWS.c.window_start),
    },
}
#: Metrics are groups of windows.
_TABLES = {**TABLES, MetricRecord: WINDOWS}


def _columns(record: type, *names: str, **texts: str) -> tuple[Column, ...]:
    """Return the columns of a record's fields, or of ``names``; ``texts`` replace meanings."""
    by_name = {each.name: each for each in fields_of(record)}
    return tuple(_column(record, by_name[name], texts.get(name)) for name in names or by_name)


def _column(record: type, field: Field, text: str | None = None, name: str = "") -> Column:
    source = _COMPUTED.get(record, {}).get(field.name)
    if source is None:
        source = _TABLES[record].c[field.stored]
    about = replace(field.about, text=text or field.about.text)
    return Column(name or field.name, field.kind, field.null, about, source=source)


def _value(name: str) -> Column:
    """Return the column ``value`` of estimates under another name."""
    (value,) = (each for each in fields_of(EstimateRecord) if each.name == "value")
    return _column(EstimateRecord, value, name=name)


_KEY = tuple(each.name for each in fields_of(OfWindow))
_ESTIMATE_COLUMNS = _columns(EstimateRecord)
_KNOWN = ESTIMATES.c.value.is_not(None)


VIEW_WINDOWS = View(
    "windows",
    "the windows that have reports; one row a window",
    table=WINDOWS,
    columns=_columns(Window),
)
VIEW_ESTIMATES = View(
    "estimates",
    "all that is estimated of all windows; one row an estimate",
    table=ESTIMATES,
    columns=_ESTIMATE_COLUMNS,
)
VIEW_LATEST = View(
    "latest_estimates",
    "estimates of the newest complete window of every metric of a plan's version; of the newest "
    "window where none is complete",
    table=ESTIMATES,
    columns=_ESTIMATE_COLUMNS,
    where=(newest(ESTIMATES),),
)
VIEW_SHARES = View(
    "shares",
    "shares of categories, surveys, ordinals and strings; without those that are withheld",
    table=ESTIMATES,
    columns=(
        *_columns(EstimateRecord, *_KEY, "kind", "item"),
        _value("share"),
        *_columns(EstimateRecord, *SHARE_COLUMNS),
    ),
    where=(ESTIMATES.c.kind.in_(("share", "group", "string", "missing", "unexplained")), _KNOWN),
)
_MEASURED = _columns(EstimateRecord, *ENDS, "unit", "method", "reports", "complete", "biased")
VIEW_MEANS = View(
    "means",
    "means of numbers, of coordinates of vectors, and of ordinals; without those that are withheld",
    table=ESTIMATES,
    columns=(*_columns(EstimateRecord, *_KEY, "item"), _value("mean"), *_MEASURED),
    where=(ESTIMATES.c.kind == "mean", _KNOWN),
)
VIEW_QUANTILES = View(
    "quantiles",
    "quantiles of numbers; without those that are withheld",
    table=ESTIMATES,
    columns=(
        *_columns(EstimateRecord, *_KEY),
        Column(
            "probability",
            "number",
            True,
            About("share of values up to the quantile; 0.5 is the median"),
            source=_Probability(ESTIMATES.c.item),
        ),
        _value("quantile"),
        *_MEASURED,
    ),
    where=(ESTIMATES.c.kind == "quantile", _KNOWN),
)
VIEW_ALARMS = View(
    "alarms",
    "windows whose reports are not those of honest devices; one row a kind of alarm",
    table=ALARMS,
    columns=_columns(Alarm),
    private=True,
)
VIEW_EXPERIMENTS = View(
    "experiments",
    "how the arms of an experiment differ: their shares of the reports, and differences from the "
    "first arm",
    table=ESTIMATES,
    columns=_columns(
        EstimateRecord,
        *(*_KEY, "kind", "item", "value", "low", "high", "p_value", "significant", "unit"),
        *("reports", "reports_by_level", "withheld", "revision", "complete", "arms"),
        low="lower end of the interval, for all looks together",
        high="upper end of it",
        p_value="p-value at all looks together: that there is no effect; of an arm_share, that "
        "arms are as even as planned",
        significant="whether the interval excludes zero; of an arm_share, whether arms are not "
        "as planned",
    ),
    where=(ESTIMATES.c.kind.in_(OF_EXPERIMENTS),),
)
VIEW_REJECTIONS = View(
    "rejections",
    "reports that were rejected, by reason",
    table=QUARANTINE,
    columns=_columns(Rejection),
    grouped=("collector", "reason"),
    private=True,
)
VIEW_BUDGETS = View(
    "budgets",
    "the audit of every budget period, over the pseudonyms that reported in it",
    table=PERIODS,
    columns=_columns(Budget),
    private=True,
)
VIEW_METRICS = View(
    "metrics",
    "the metrics that have results",
    table=WINDOWS,
    columns=_columns(MetricRecord),
    grouped=("collector", "plan", "version", "metric", "type", "mechanism"),
)

#: All views, in the order in which they are documented.
VIEWS = (
    VIEW_LATEST,
    VIEW_SHARES,
    VIEW_MEANS,
    VIEW_QUANTILES,
    VIEW_EXPERIMENTS,
    VIEW_ESTIMATES,
    VIEW_WINDOWS,
    VIEW_ALARMS,
    VIEW_METRICS,
    VIEW_REJECTIONS,
    VIEW_BUDGETS,
)


#: Rows that are computed when they are asked for.
RANGES = RowSet("ranges", "estimates of a run of windows put together", fields_of(RangeEstimate))
COMPARISONS = RowSet(
    "comparisons",
    "how much estimates of one range or segment exceed those of another",
    fields_of(RangeComparison),
)
EFFECTS = RowSet(
    "effects",
    "how arms of experiments differ from the first one over all windows",
    fields_of(ArmEffect),
)
RETENTION = RowSet(
    "retention",
    "which part of the devices that were new in a window came again, by age",
    fields_of(RetentionRate),
)


def rows_of(
    kind: RowSet, records: Iterable[RangeEstimate | RangeComparison | ArmEffect | RetentionRate]
) -> list[tuple[object, ...]]:
    """Return records as rows, times in milliseconds."""
    rows = ([getattr(record, each.name) for each in kind.columns] for record in records)
    return [
        tuple(milliseconds(each) if isinstance(each, datetime) else each for each in row)
        for row in rows
    ]
