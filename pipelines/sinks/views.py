"""Views of the results for people: times as timestamps, privacy in epsilon, shares by name.

The columns are a contract; ``docs/tables.md`` is made of what is said of them here, and so are the
comments in PostgreSQL, the description of the HTTP interface and the records of
:mod:`pipelines.results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import sqlalchemy as sql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from mechanisms.items import OF_EXPERIMENTS, Method
from pipelines.sinks.tables import ALARMS, ESTIMATES, PERIODS, QUARANTINE, WINDOWS

#: What a column holds: a time is in UTC, the last two are lists of JSON.
Kind: TypeAlias = Literal["text", "integer", "number", "boolean", "time", "integers", "texts"]

#: From the year 1 to 9999, ms: what a document of a topic says may lie beyond, and then is no time.
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
_MICRO = 1e6
#: What a metric of a plan's version is known by.
METRIC = ("collector", "plan", "version", "metric")
#: The order of windows and of estimates.
_ORDER = (
    *(*METRIC, "window_start", "segment"),
    *("position", "kind", "item"),
)


@dataclass(frozen=True)
class Column:
    """A column of a view."""

    name: str
    kind: Kind
    source: sql.ColumnElement[Any]  #: of a table; a time is still milliseconds
    comment: str

    @property
    def shown(self) -> sql.Label[Any]:
        """The column as the view has it."""
        source = self.source
        if self.kind == "time":
            known = source.between(sql.literal(_FIRST), sql.literal(_LAST))
            source = sql.case((known, _Timestamp(source)))
        return source.label(self.name)


@dataclass(frozen=True)
class View:
    """A view: its name, what a row is, its columns, and which rows of its table it has."""

    name: str
    comment: str
    table: sql.Table
    columns: tuple[Column, ...]
    where: tuple[sql.ColumnElement[bool], ...] = ()
    #: The columns of the table that a row is one of; a row of the table where there are none.
    grouped: tuple[str, ...] = ()
    #: Whether it is for those who operate the collection, and not for everybody.
    private: bool = False

    @property
    def shown(self) -> sql.Select[Any]:
        """The view's query."""
        return self._select(column.shown for column in self.columns)

    @cached_property
    def stored(self) -> sql.Select[Any]:
        """The same with times in milliseconds, as the tables have them."""
        return self._select(column.source.label(column.name) for column in self.columns)

    def _select(self, columns: Iterable[sql.Label[Any]]) -> sql.Select[Any]:
        found = sql.select(*columns).where(*self.where)
        return found.group_by(*(self.table.c[name] for name in self.grouped))

    @property
    def order(self) -> tuple[str, ...]:
        """The columns of the table by which rows are ordered, no two of them the same in all."""
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
    """Return whether a row is of the newest complete window of its metric.

    It is the newest window where none is complete. ``where`` says of ``NEWEST`` which windows are
    looked at.
    """
    start = NEWEST.c.window_start
    done = sql.func.max(sql.case((is_complete(NEWEST), start)))
    found = sql.select(*_metric_of(NEWEST), sql.func.coalesce(done, sql.func.max(start)))
    found = found.where(*where).group_by(*_metric_of(NEWEST))
    return sql.tuple_(*_metric_of(table), table.c.window_start).in_(found)


def is_complete(table: sql.FromClause) -> sql.ColumnElement[bool]:
    """Return whether a row is of a complete window, as all rows of release 0.4.0 are taken."""
    return table.c.complete.is_not(sql.false())


def of_metric(table: sql.Table, metric: str) -> sql.ColumnElement[bool]:
    """Return whether a row is of a metric of this name, by the front of the table's key."""
    of_all = sql.select(*_metric_of(NEWEST)).where(NEWEST.c.metric == metric).distinct()
    return sql.tuple_(*_metric_of(table)).in_(of_all)


def _metric_of(table: sql.FromClause) -> list[sql.ColumnElement[Any]]:
    return [table.c[name] for name in METRIC]


def newest_windows() -> sql.Select[Any]:
    """Return a row a metric, with ``last``: where its newest window of all reports begins.

    ``done``: where the newest complete one begins; null if none is. ``shown``: where the newest
    complete one begins that is not withheld, or without one any; null if all are. Of each column of
    the key one value after another is looked up in the key's index, so that no other windows are
    read.
    """
    window = WINDOWS.alias("w")
    found: sql.CTE | None = None
    for at, name in enumerate(METRIC):
        column = window.c[name]
        before = [] if found is None else [found.c[each] for each in METRIC[:at]]
        same = [window.c[each.name] == each for each in before]
        first = sql.select(sql.func.min(column)).where(*same).scalar_subquery().label(name)
        each = sql.select(*before, first).cte(f"each_{name}", recursive=True)
        same = [window.c[other] == each.c[other] for other in METRIC[:at]]
        following = sql.select(sql.func.min(column)).where(*same, column > each.c[name])
        step = sql.select(
            *(each.c[other] for other in METRIC[:at]), following.scalar_subquery().label(name)
        )
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

_SAID = {
    "collector": "who collects",
    "plan": "name of the plan",
    "version": "version of the plan",
    "metric": "name of the metric",
    "window_start": "when the window begins",
    "window_end": "when the window ends; the end is not part of it",
    "segment": "which reports: empty for all, else such as os=linux,app_version=2",
    "type": "type of the metric, such as category or number",
    "mechanism": "by which values were randomized",
    "reports": "reports that it is made of",
    "reports_by_level": "of these, by level, the first one first",
    "minimum_reports": "number of reports below which the plan has estimates withheld",
    "withheld": "why there is no estimate, such as too few reports; null where there is one",
    "revision": "grows whenever the window changes",
    "complete": "whether all reports of the window were due and their grace over; until then its "
    "figures are so far",
    "position": "order within the window",
    "kind": "what is estimated: share, group, mean, missing, quantile, cdf, bit, string, "
    "unexplained, arm_share, difference",
    "item": "of which symbol, coordinate, probability or point, by kind",
    "value": "the estimate; unbiased where method says nothing else, so it may lie outside of "
    "what is possible",
    "low": "lower end of the interval of 95 %",
    "high": "upper end of the interval of 95 %",
    "standard_error": "standard error of the estimate, from the randomization alone",
    "shown": "for charts: the closest value that is possible; the interval does not belong to it",
    "detection_floor": "smallest true share that is reliably distinguished from zero",
    "unit": "share, rank, or the unit of the metric",
    "method": "how far the estimate can be relied on: unbiased, monotone, smoothed, em, biased "
    "or always",
    "significant": "of a candidate string: whether it is certainly there; of a difference: whether "
    "the interval excludes zero",
    "p_value": "of a candidate string: p-value after the correction for many candidates; of a "
    "difference: p-value at all looks together",
    "confounded_with": "of a candidate string: others that the reports do not distinguish from it",
}
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("version", "reports", "minimum_reports", "revision", "position"), "integer"),
    **dict.fromkeys(("pseudonyms", "chains", "over_budget", "equivocation"), "integer"),
    **dict.fromkeys(("window_start", "window_end", "period_start", "period_end"), "time"),
    **dict.fromkeys(("value", "low", "high", "standard_error", "shown"), "number"),
    **dict.fromkeys(("detection_floor", "p_value"), "number"),
    **dict.fromkeys(("statistic", "expected", "threshold"), "number"),
    "reports_by_level": "integers",
    "confounded_with": "texts",
    **dict.fromkeys(("significant", "closed", "complete"), "boolean"),
}
#: What an estimate that is known to be biased does not have.
ENDS = ("low", "high", "standard_error")
_BIASED = Column(
    "biased",
    "boolean",
    sql.func.coalesce(ESTIMATES.c.method, Method.UNBIASED.value).in_(
        [each.value for each in Method if each.biased]
    ),
    "whether the estimate is known to be off by more than noise: it then has no interval",
)
_RENAMED_COLUMNS = {"reports": "n", "shown": "display"}


def _of(table: sql.Table, *names: str, **comments: str) -> Iterator[Column]:
    """Yield columns that several views have, and some of these with a comment of their own."""
    for name in (*names, *comments):
        source: sql.ColumnElement[Any] = table.c[_RENAMED_COLUMNS.get(name, name)]
        if table is ESTIMATES and name in ENDS:
            # Release 0.4.0 wrote intervals of biased estimates, too.
            source = sql.case((~_BIASED.source, source))
        if name == "complete":
            source = is_complete(table)
        yield Column(name, _KINDS.get(name, "text"), source, comments.get(name) or _SAID[name])


_KEY = ("collector", "plan", "version", "metric", "window_start", "window_end", "segment")
_ESTIMATE_COLUMNS = (
    *_of(
        ESTIMATES,
        *(*_KEY, "position", "kind", "item", "value", *ENDS, "shown", "detection_floor"),
        *("unit", "method", "significant", "p_value", "confounded_with"),
        *("reports", "reports_by_level", "withheld", "revision", "complete"),
    ),
    _BIASED,
)
_KNOWN = ESTIMATES.c.value.is_not(None)


def _epsilon(name: str, comment: str) -> Column:
    return Column(name, "number", PERIODS.c[name] / sql.literal(_MICRO), comment)


def _total(column: sql.ColumnElement[Any]) -> sql.ColumnElement[int]:
    # PostgreSQL's sum is of another type.
    return sql.cast(sql.func.sum(column), sql.BigInteger)


VIEW_WINDOWS = View(
    "windows",
    "the windows that have reports; one row a window",
    WINDOWS,
    tuple(
        _of(
            WINDOWS,
            *(*_KEY, "type", "mechanism", "reports", "reports_by_level"),
            *("minimum_reports", "withheld", "revision", "complete"),
        )
    ),
)
VIEW_ESTIMATES = View(
    "estimates",
    "all that is estimated of all windows; one row an estimate",
    ESTIMATES,
    _ESTIMATE_COLUMNS,
)
VIEW_LATEST = View(
    "latest_estimates",
    "estimates of the newest complete window of every metric of a plan's version; of the newest "
    "window where none is complete",
    ESTIMATES,
    _ESTIMATE_COLUMNS,
    (newest(ESTIMATES),),
)
VIEW_SHARES = View(
    "shares",
    "shares of categories, surveys, ordinals and strings; without those that are withheld",
    ESTIMATES,
    (
        *_of(ESTIMATES, *_KEY, "kind", "item"),
        Column("share", "number", ESTIMATES.c.value, _SAID["value"]),
        *_of(
            ESTIMATES,
            *ENDS,
            "shown",
            "detection_floor",
            "significant",
            "method",
            "reports",
            "complete",
        ),
        _BIASED,
    ),
    (ESTIMATES.c.kind.in_(("share", "group", "string", "missing", "unexplained")), _KNOWN),
)
VIEW_MEANS = View(
    "means",
    "means of numbers, of coordinates of vectors, and of ordinals; without those that are withheld",
    ESTIMATES,
    (
        *_of(ESTIMATES, *_KEY, "item"),
        Column("mean", "number", ESTIMATES.c.value, _SAID["value"]),
        *_of(ESTIMATES, *ENDS, "unit", "method", "reports", "complete"),
        _BIASED,
    ),
    (ESTIMATES.c.kind == "mean", _KNOWN),
)
VIEW_QUANTILES = View(
    "quantiles",
    "quantiles of numbers; without those that are withheld",
    ESTIMATES,
    (
        *_of(ESTIMATES, *_KEY),
        Column(
            "probability",
            "number",
            _Probability(ESTIMATES.c.item),
            "share of values up to the quantile; 0.5 is the median",
        ),
        Column("quantile", "number", ESTIMATES.c.value, _SAID["value"]),
        *_of(ESTIMATES, *ENDS, "unit", "method", "reports", "complete"),
        _BIASED,
    ),
    (ESTIMATES.c.kind == "quantile", _KNOWN),
)
VIEW_ALARMS = View(
    "alarms",
    "windows whose reports are not those of honest devices; one row a kind of alarm",
    ALARMS,
    (
        *_of(ALARMS, *_KEY),
        *_of(
            ALARMS,
            kind="coins, levels, bits or cells",
            statistic="what was seen",
            expected="what honest devices have on average",
            threshold="from where on it is an alarm",
            p_value="bound of the probability that honest devices show as much, by chance",
            reports="reports, or pairs of levels, it is seen in",
            message="the same in words",
        ),
        *_of(ALARMS, "revision"),
    ),
    private=True,
)
VIEW_EXPERIMENTS = View(
    "experiments",
    "how the arms of an experiment differ: their shares of the reports, and differences from the "
    "first arm",
    ESTIMATES,
    (
        *_of(
            ESTIMATES,
            *(*_KEY, "kind", "item", "value"),
            low="lower end of the interval, for all looks together",
            high="upper end of it",
            p_value="p-value at all looks together: that there is no effect; of an arm_share, that "
            "arms are as even as planned",
            significant="whether the interval excludes zero; of an arm_share, whether arms are not "
            "as planned",
        ),
        *_of(ESTIMATES, "unit", "reports", "reports_by_level", "withheld", "revision", "complete"),
    ),
    (ESTIMATES.c.kind.in_(OF_EXPERIMENTS),),
)
VIEW_REJECTIONS = View(
    "rejections",
    "reports that were rejected, by reason",
    QUARANTINE,
    (
        *_of(QUARANTINE, "collector", reason="why they were rejected"),
        Column("reports", "integer", _total(QUARANTINE.c.rows), "reports rejected for this reason"),
        Column(
            "requeued",
            "integer",
            _total(QUARANTINE.c.requeued),
            "of these, taken again since; null if that is not known",
        ),
    ),
    grouped=("collector", "reason"),
    private=True,
)
VIEW_BUDGETS = View(
    "budgets",
    "the audit of every budget period, over the pseudonyms that reported in it",
    PERIODS,
    (
        *_of(
            PERIODS,
            "collector",
            period_start="when the budget period begins",
            period_end="when it ends; the end is not part of it",
            closed="whether nothing more is accepted for it",
            pseudonyms="pseudonyms that reported",
            chains="recorded values that reports are about",
        ),
        _epsilon("accepted", "epsilon of all reports that count, summed over pseudonyms"),
        _epsilon("observed", "epsilon of all reports that arrived, summed over pseudonyms"),
        _epsilon("most_accepted", "largest accepted epsilon of a single pseudonym"),
        _epsilon("most_observed", "largest observed epsilon of a single pseudonym"),
        *_of(
            PERIODS,
            over_budget="pseudonyms revoked for sending more than their budget",
            equivocation="pseudonyms revoked for contradicting themselves",
        ),
    ),
    private=True,
)
_OF_ALL = WINDOWS.c.segment == ""
VIEW_METRICS = View(
    "metrics",
    "the metrics that have results",
    WINDOWS,
    (
        *_of(WINDOWS, "collector", "plan", "version", "metric", "type", "mechanism"),
        Column(
            "windows", "integer", sql.func.count(sql.case((_OF_ALL, 1))), "windows with reports"
        ),
        Column(
            "reports",
            "integer",
            _total(sql.case((_OF_ALL, WINDOWS.c.n), else_=0)),
            "reports of all of them",
        ),
        Column(
            "first_window",
            "time",
            sql.func.min(WINDOWS.c.window_start),
            "when the first window begins",
        ),
        Column(
            "newest_window",
            "time",
            sql.func.max(WINDOWS.c.window_start),
            "when the newest window begins",
        ),
    ),
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
