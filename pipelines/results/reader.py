"""A read-only reader of results: what pages, alerts, exports and the HTTP interface are made of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import sqlalchemy as sql

from mechanisms.items import OF_EXPERIMENTS
from pipelines.results.database import DAMAGED, ReadOnlyDatabase, ResultsError, UnknownNameError
from pipelines.results.experiments import effects_of
from pipelines.results.fields import CONVERTED, milliseconds, moment
from pipelines.results.range_tables import RangeTables
from pipelines.results.range_windows import WindowRange, runs_of
from pipelines.results.ranges import RangePart, compared, parts_of
from pipelines.results.records import (
    Alarm,
    ArmEffect,
    Budget,
    EstimateRecord,
    Health,
    MetricKey,
    MetricRecord,
    RangeComparison,
    RangeEstimate,
    Rejection,
    RetentionRate,
    Window,
)
from pipelines.results.retention import retention_of
from pipelines.results.tables import ESTIMATES, HEALTH, META, OFFSETS, WINDOWS
from pipelines.results.views import (
    NEWEST,
    VIEW_ALARMS,
    VIEW_BUDGETS,
    VIEW_ESTIMATES,
    VIEW_METRICS,
    VIEW_REJECTIONS,
    VIEW_WINDOWS,
    View,
    newest,
    newest_windows,
    of_metric,
)
from pipelines.sinks.sql import of_state
from pipelines.storage.directory import StateDirectory
from sotto.errors import ParameterError, did_you_mean
from sotto.plan.compiled import CompiledPlan

#: Connections to a PostgreSQL server that are kept.
_KEPT = 4
#: Keys of windows or figures that one query looks up.
_ASKED = 500
_ORDER = (*MetricKey._fields, "window_start")
_START = [sql.column(name, WINDOWS.c[name].type) for name in _ORDER]
#: The columns that name a figure; then also the times, ms, between which its windows are read.
_FIGURE = (*MetricKey._fields, "kind", "item")
_COURSE = [
    *(sql.column(name, ESTIMATES.c[name].type) for name in _FIGURE),
    *(sql.column(name, sql.BigInteger) for name in ("earliest", "since", "until")),
]
#: The types of values by the kind of their column, and those of other kinds.
_TYPES = {"text": {str, type(None)}}
_TYPES |= {kind: {list, type(None)} for kind in ("integers", "texts", "pairs")}
_NUMBERS = {int, float, bool, type(None)}
#: Rows in memory at a time when all rows of a view are read.
_BATCH = 10_000

#: A row as the tables have it: times in ms since the epoch.
Row: TypeAlias = Sequence[Any]
T = TypeVar("T")
_Record = TypeVar("_Record", Window, EstimateRecord, MetricRecord, Alarm, Budget, Rejection)


@dataclass(frozen=True)
class Chosen:
    """Which rows are read.

    A field that is None leaves rows as they are, and so does a field of which a view has no column.

    Parameters
    ----------
    collector, plan, metric, segment, kind : str, optional
        Only rows of this one; segment ``""`` is all reports together.
    items : sequence of str, optional
        Only estimates of these items.
    version : int, optional
    since, until : datetime, optional
        Aware. Only windows that end after ``since`` and begin before ``until``.
    starts : sequence of datetime, optional
        Aware. Only windows that begin then.
    newest : bool
        Of each metric of a plan's version, only the newest of these windows.
    brief : bool
        Whether columns that hold lists are not read, and are None: reading them takes longer than
        all others.
    """

    collector: str | None = None
    plan: str | None = None
    version: int | None = None
    metric: str | None = None
    segment: str | None = None
    kind: str | None = None
    items: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    starts: Sequence[datetime] | None = None
    newest: bool = False
    brief: bool = False


class Page(NamedTuple):
    """Some rows of a view, in order, and the key after which there are more; None for the end."""

    rows: Sequence[Row]
    next: tuple[str | int, ...] | None


class ResultsReader:
    """Reads a database of results; every method uses one read-only transaction.

    It may be used by several threads. Methods raise
    :class:`pipelines.results.database.ResultsError` if the database is missing, damaged, written by
    another version of Sotto, or cannot be read now.

    Parameters
    ----------
    url : str or sqlalchemy.URL
        Of SQLite (a file) or PostgreSQL.
    state : path, optional
        The state directory of aggregation runs, which has their plans and health.
    plans : sequence of CompiledPlan
        The plans, where no state directory has them.
    kept : int
        Connections to a PostgreSQL server that are kept open between reads.
    """

    def __init__(
        self,
        url: str | sql.URL,
        state: str | os.PathLike[str] | None = None,
        plans: Sequence[CompiledPlan] = (),
        kept: int = _KEPT,
    ) -> None:
        self._database = ReadOnlyDatabase(url, kept=kept)
        #: A transaction that several methods share.
        self._shared: sql.Connection | None = None
        #: The database's file, of SQLite.
        self.file = self._database.file
        self._state = None if state is None else Path(state)
        self._plans = tuple(plans)

    @classmethod
    def of_state(cls, state: str | os.PathLike[str]) -> Self:
        """Return a reader of the database in a state directory."""
        return cls(of_state(state), state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to a server that are kept; the next read opens one again."""
        self._database.close()

    def at_once(self, use: Callable[[Self], T]) -> T:
        """Call ``use`` with a reader whose methods share one transaction, and return its result.

        It is called again if the database has changed meanwhile.
        """

        def read(connection: sql.Connection) -> T:
            reader = copy(self)
            reader._shared = connection
            return use(reader)

        return self._read(read)

    def _read(self, query: Callable[[sql.Connection], T]) -> T:
        return self._database.read(query) if self._shared is None else query(self._shared)

    @property
    def size(self) -> int | None:
        """Bytes of a SQLite database and its journal; None of a server's."""
        return self._database.size

    def revision(self) -> str:
        """Return a short text that changes whenever the results do; it costs one small query."""
        query = sql.select(META).order_by(*META.primary_key)
        rows = self._read(lambda connection: connection.execute(query).all())
        return hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()[:16]

    def metrics(self, chosen: Chosen = Chosen()) -> list[MetricRecord]:
        """Return the metrics that have results."""
        return self._records(MetricRecord, VIEW_METRICS, chosen)

    def windows(self, chosen: Chosen = Chosen()) -> list[Window]:
        """Return windows in order of metric, time and segment."""
        return self._records(Window, VIEW_WINDOWS, chosen)

    def estimates(self, chosen: Chosen = Chosen()) -> list[EstimateRecord]:
        """Return estimates in order of metric, window, segment and position."""
        return self._records(EstimateRecord, VIEW_ESTIMATES, chosen)

    def range_estimates(self, wanted: WindowRange) -> list[RangeEstimate]:
        """Return estimates of a run of windows put together, by segment if that is asked for.

        Shares, means and retention are pooled from published estimates. Quantiles, distributions
        and strings come from the state directory, and are missing without one.

        Raises ParameterError if the range has no estimates, or its plan is not known.
        """
        found = self.at_once(lambda reader: reader._parts(wanted))
        return [record for part in found for record in part.records(wanted.under)]

    def retention(self, chosen: Chosen = Chosen()) -> list[RetentionRate]:
        """Return what part of the devices that were new in a window came again, by age.

        Rows are of all chosen metrics with the measure ``age``, in order of metric, segment, window
        in which the devices were new, and age.
        """
        read = self.at_once(
            lambda reader: (reader.plans(), reader.estimates(chosen), reader.windows(chosen))
        )
        return list(retention_of(*read))

    def compared(self, one: WindowRange, other: WindowRange) -> list[RangeComparison]:
        """Return how much estimates of one range or segment exceed those of the other.

        Both are of the same windows, or have none in common. Raises ParameterError as
        :meth:`range_estimates` does, and if reports would be on both sides.
        """
        both = self.at_once(lambda reader: (reader._parts(one), reader._parts(other)))
        return compared(*both, one.under)

    def _parts(self, wanted: WindowRange) -> list[RangePart]:
        chosen = Chosen(wanted.collector, wanted.plan, wanted.version, wanted.metric)
        if not (windows := self.windows(chosen)):
            self.check_known(VIEW_WINDOWS, chosen)
        runs = runs_of(wanted, windows, self.plans())
        every = None if wanted.segment or wanted.by else ""
        rows = replace(chosen, since=wanted.since, until=wanted.until, segment=every)
        tables = None if self._state is None else RangeTables(StateDirectory(self._state))
        return parts_of(runs, self.estimates(rows), tables)

    def effects(self, chosen: Chosen = Chosen()) -> list[ArmEffect]:
        """Return how the arms of experiments differ over all windows, by plan.

        Only collector, plan, version and metric of ``chosen`` are used. The metric that decides
        comes first. Only experiments of known plans (:meth:`plans`) are found.

        Raises UnknownNameError if there are experiments, but none with that metric.
        """
        return self.at_once(lambda reader: reader._effects(chosen))

    def _effects(self, chosen: Chosen) -> list[ArmEffect]:
        found: list[ArmEffect] = []
        for plan in self.plans():
            name = (plan.collector, plan.plan, plan.version)
            asked = (chosen.collector, chosen.plan, chosen.version)
            if any(one not in (None, other) for one, other in zip(asked, name, strict=True)):
                continue
            kinds = (Chosen(*name, kind=kind) for kind in OF_EXPERIMENTS)
            rows = [] if plan.experiment is None else map(self.estimates, kinds)
            found += effects_of(plan, [row for each in rows for row in each])
        _check_known("experiments' metric", chosen.metric, {each.metric for each in found})
        return [each for each in found if chosen.metric in (None, each.metric)]

    def check_known(self, view: View, chosen: Chosen) -> None:
        """Raise UnknownNameError if nothing has a name of ``chosen``, and there are others.

        Collector, plan, version and metric are those of results and plans; a segment, kind or item
        has rows of the view's table, or the plan lists the item.
        """
        keys = [each.key for each in self.metrics()]
        for plan in self.plans():
            named = plan.collector, plan.plan, plan.version
            keys += [MetricKey(*named, each.name) for each in plan.metrics]
        for at, name in enumerate(MetricKey._fields):
            given = getattr(chosen, name)
            _check_known(name, given, {key[at] for key in keys})
            keys = [key for key in keys if given in (None, key[at])]
        given = {"segment": [chosen.segment], "kind": [chosen.kind], "item": chosen.items or ()}
        where = [*_same(view.table, chosen, *MetricKey._fields)]
        for name, asked in given.items():
            if any(asked) and name in view.table.c:
                query = sql.select(view.table.c[name]).where(*where).distinct()
                there = self._distinct(query)
                for each in asked:
                    if name != "item" or not self._may_come(each, chosen.metric):
                        _check_known(name, each, there)

    def _distinct(self, query: sql.Select[Any]) -> set[Any]:
        return self._read(lambda connection: set(connection.scalars(query)))

    def _may_come(self, item: str, metric: str | None) -> bool:
        """Return whether a window may have an item: a plan lists it, or the metric has strings.

        The item of a group of values names its ends, such as ``1 to 4``.
        """
        return any(
            each.type == "string" or item in each.labels or {*item.split(" to ")} <= {*each.labels}
            for plan in self.plans()
            for each in plan.metrics
            if metric in (None, each.name)
        )

    def newest_windows(self) -> list[Window]:
        """Return of each metric the newest window, the newest complete one, and the one to show.

        The one to show is the newest complete window that is not withheld; without one, the newest
        that is not withheld. A window that is two of these comes once.

        Windows are of all reports, in the order of :meth:`windows`. The cost does not grow with the
        number of windows: only those that are returned are read, and withheld ones between them.
        """

        def query(starts: sql.CTE) -> sql.Select[Any]:
            columns = WINDOWS.c
            return _of_windows(VIEW_WINDOWS, starts).order_by(*(columns[name] for name in _ORDER))

        rows = self._of_newest(lambda row: sorted({row.last, row.done, row.shown} - {None}), query)
        return list(_records(Window, VIEW_WINDOWS, rows))

    def newest_estimates(
        self, kinds: Sequence[str], most: int, *, so_far: bool = False
    ) -> list[EstimateRecord]:
        """Return estimates of these kinds, of all reports, in each metric's newest window.

        The window is the newest complete one that is not withheld; without one, the newest that is
        not withheld. ``so_far``: of the newest window instead, and nothing of a metric whose newest
        window is complete or the one to show. The first ``most`` of each kind are returned: means
        by position, others by value, the largest first; of candidate strings only those that are
        certainly there. Rows are in order of metric and position.
        """
        columns = ESTIMATES.c
        size = sql.case((columns.kind == "mean", 0.0), else_=-columns.value)
        place = sql.func.row_number().over(
            partition_by=[*(columns[name] for name in MetricKey._fields), columns.kind],
            order_by=[size, columns.position, columns.item],
        )

        def query(starts: sql.CTE) -> sql.Select[Any]:
            ranked = _of_windows(VIEW_ESTIMATES, starts).where(
                columns.kind.in_(kinds),
                columns.value.is_not(None),
                sql.or_(columns.kind != "string", columns.significant),
            )
            found = ranked.add_columns(place.label("place")).subquery().c
            return (
                sql.select(*(found[column.name] for column in VIEW_ESTIMATES.columns))
                .where(found.place <= most)
                .order_by(*(found[name] for name in VIEW_ESTIMATES.order))
            )

        def starts(row: sql.Row[Any]) -> list[int]:
            return sorted({row.last} - {row.done, row.shown} if so_far else {row.shown} - {None})

        return list(_records(EstimateRecord, VIEW_ESTIMATES, self._of_newest(starts, query)))

    def _of_newest(
        self,
        starts: Callable[[sql.Row[Any]], Sequence[int]],
        query: Callable[[sql.CTE], sql.Select[Any]],
    ) -> list[Row]:
        """Return what a query finds of the windows that ``starts`` names of each metric."""

        def read(connection: sql.Connection) -> list[Row]:
            found = connection.execute(newest_windows().order_by(*MetricKey._fields)).all()
            wanted = [
                (*row[: len(MetricKey._fields)], start) for row in found for start in starts(row)
            ]
            return _asked(connection, _START, wanted, query)

        return self._read(read)

    def courses(self, of: Sequence[EstimateRecord], lengths: int) -> list[EstimateRecord]:
        """Return each figure's estimates in its own window and those before, of all reports.

        The windows before end less than ``lengths`` times the length of the figure's own window
        before the end of that one. Rows are in order of metric and time; one query reads up to 500
        figures.
        """
        columns = ESTIMATES.c
        wanted = []
        for row in of:
            end = milliseconds(row.window_end)
            length = end - milliseconds(row.window_start)
            since = end - lengths * length
            name = [getattr(row, each) for each in _FIGURE]
            # The index has starts of windows, not ends. No window of a metric is as long as two
            # others, so one that ends after ``since`` begins less than two lengths before it.
            wanted.append((*name, since - 2 * length, since, end))

        def query(given: sql.CTE) -> sql.Select[Any]:
            same = [columns[name] == given.c[name] for name in _FIGURE]
            begins = columns.window_start > given.c.earliest, columns.window_start < given.c.until
            found = VIEW_ESTIMATES.stored.where(columns.segment == "", *same, *begins)
            order = (columns[name] for name in VIEW_ESTIMATES.order)
            return found.where(columns.window_end > given.c.since).order_by(*order)

        rows = self._read(lambda connection: _asked(connection, _COURSE, wanted, query))
        return list(_records(EstimateRecord, VIEW_ESTIMATES, rows))

    def latest(self, collector: str, most: int) -> tuple[list[EstimateRecord], int]:
        """Return estimates of all reports in the newest complete windows of a collector's metrics.

        These are the first ``most`` by position, without those that are withheld, and how many
        more there are.
        """
        columns = ESTIMATES.c
        ours = newest(ESTIMATES, NEWEST.c.collector == collector)
        found = VIEW_ESTIMATES.stored.where(columns.value.is_not(None), columns.segment == "", ours)
        order = ("position", *MetricKey._fields, "kind", "item")
        chosen = found.order_by(*(columns[name] for name in order)).limit(most)
        counted = sql.select(sql.func.count()).select_from(found.subquery())

        def read(connection: sql.Connection) -> tuple[list[EstimateRecord], int]:
            rows = [tuple(row) for row in connection.execute(chosen)]
            number = int(connection.execute(counted).scalar_one())
            return list(_records(EstimateRecord, VIEW_ESTIMATES, rows)), number - len(rows)

        return self._read(read)

    def offsets(self) -> dict[tuple[str, int], int]:
        """Return the offset that a sink reads next, by topic and partition."""

        def read(connection: sql.Connection) -> dict[tuple[str, int], int]:
            rows = connection.execute(sql.select(OFFSETS))
            return {(row.topic, row.partition): row.next for row in rows}

        return self._read(read)

    def reports(self) -> int:
        """Return how many reports count, over all windows."""
        total = sql.func.coalesce(sql.func.sum(WINDOWS.c.n), 0)
        query = sql.select(total).where(WINDOWS.c.segment == "")
        return int(self._read(lambda connection: connection.execute(query).scalar_one()))

    def alarms(self, chosen: Chosen = Chosen()) -> list[Alarm]:
        """Return windows whose reports are not those of honest devices, by metric and time."""
        return self._records(Alarm, VIEW_ALARMS, chosen)

    def budgets(self, chosen: Chosen = Chosen()) -> list[Budget]:
        """Return the audit of every budget period, oldest first."""
        return self._records(Budget, VIEW_BUDGETS, chosen)

    def rejections(self, chosen: Chosen = Chosen()) -> list[Rejection]:
        """Return the rejected reports by reason."""
        return self._records(Rejection, VIEW_REJECTIONS, chosen)

    def plans(self) -> list[CompiledPlan]:
        """Return the plans of the state directory, or those that were given; newest version last.

        Raises AggregationError if a file of the state directory is damaged.
        """
        stored = StateDirectory(self._state).plans.load_all() if self._state else self._plans
        return sorted(stored, key=lambda plan: (plan.collector, plan.plan, plan.version))

    def health(self) -> list[Health]:
        """Return the state of the results and of their job, one record for each collector."""
        return self._read(self._health)

    def page(
        self,
        view: View,
        chosen: Chosen = Chosen(),
        *,
        after: Sequence[str | int] | None = None,
        limit: int | None = None,
    ) -> Page:
        """Return rows of a view, in order.

        ``after``: the ``next`` of the page before. ``limit``: the most rows to return.

        Raises ParameterError if ``after`` is not of this view.
        """
        order = [view.table.c[name] for name in view.order]
        query = view.stored.where(*_where(view, chosen))
        if chosen.brief:
            columns = query.selected_columns
            read = [sql.null() if isinstance(each.type, sql.JSON) else each for each in columns]
            query = query.with_only_columns(*read)
        query = query.add_columns(*([] if limit is None else order)).order_by(*order)
        if after is not None:
            if not _fits(order, after):
                raise ParameterError("cursor: it does not follow a page of this view")
            query = query.where(sql.tuple_(*order) > sql.tuple_(*map(sql.literal, after)))
        if limit is not None:
            query = query.limit(limit + 1)
        found = self._read(lambda connection: connection.execute(query).all())
        width = len(view.columns)
        more = limit is not None and len(found) > limit
        rows = [tuple(row)[:width] for row in found[:limit]]
        return Page(rows, tuple(found[len(rows) - 1])[width:] if more else None)

    def read_all(
        self, views: Sequence[View], use: Callable[[View, Iterator[Sequence[Row]]], T]
    ) -> list[T]:
        """Call ``use`` with each view and all its rows, in one transaction; return its results.

        Rows are in order and come in batches. ``use`` is called again if the database has changed
        meanwhile.
        """

        def read(connection: sql.Connection) -> list[T]:
            return [
                use(view, connection.execute(query).partitions(_BATCH))
                for view, query in zip(views, queries, strict=True)
            ]

        queries = [
            view.stored.order_by(*(view.table.c[name] for name in view.order)).execution_options(
                yield_per=_BATCH
            )
            for view in views
        ]
        return self._read(read)

    def _records(self, kind: type[_Record], view: View, chosen: Chosen) -> list[_Record]:
        return list(_records(kind, view, self.page(view, chosen).rows))

    def _health(self, connection: sql.Connection) -> list[Health]:
        documents: dict[str, Mapping[str, Any]] = {}
        if sql.inspect(connection).has_table(HEALTH.name):
            for row in connection.execute(sql.select(HEALTH)):
                documents[row.collector] = row.document
        if self._state is not None and (plans := self.plans()):
            manifest = StateDirectory(self._state).manifest()
            documents[plans[0].collector] = manifest.health()
        query = sql.select(META).order_by(META.c.collector)
        return [
            _health_of(row, documents.get(row.collector, {})) for row in connection.execute(query)
        ]


def _check_known(what: str, given: object, there: Set[object]) -> None:
    """Refuse a name that nothing has where there are others; None and all reports are none."""
    if given and there and given not in there:
        others = sorted(map(str, there - {""}))
        listed = f"; there are {', '.join(others[:10]) or 'none'}{', ...' * (len(others) > 10)}"
        near = did_you_mean(given, others) or listed
        raise UnknownNameError(f"there are no results of the {what} {given!r}{near}")


def _asked(
    connection: sql.Connection,
    columns: Sequence[sql.ColumnClause[Any]],
    wanted: Sequence[tuple[Any, ...]],
    query: Callable[[sql.CTE], sql.Select[Any]],
) -> list[Row]:
    """Return what a query finds for the keys in ``wanted``, which it is given in parts."""
    rows: list[Row] = []
    for at in range(0, len(wanted), _ASKED):
        # The server knows how many rows a VALUES list has, and so looks each key up in the index.
        values = sql.values(*columns, name="wanted").data(wanted[at : at + _ASKED])
        rows += connection.execute(query(values.cte()))
    return rows


def _records(kind: type[_Record], view: View, rows: Sequence[Row]) -> Iterator[_Record]:
    names = [column.name for column in view.columns]
    convert = [(column.name, to) for column in view.columns if (to := CONVERTED.get(column.kind))]
    for at, column in enumerate(view.columns):
        if not {type(row[at]) for row in rows} <= _TYPES.get(column.kind, _NUMBERS):
            raise ResultsError(DAMAGED.format(f"{view.name} has a {column.name} of another type"))
    for row in rows:
        values = dict(zip(names, row, strict=True))
        for name, to in convert:
            if (value := values[name]) is not None:
                values[name] = to(value)
        yield kind(**values)


def _of_windows(view: View, starts: sql.CTE) -> sql.Select[Any]:
    """Return the rows of a view of all reports in windows that are named by metric and start."""
    same = [view.table.c[column.name] == column for column in starts.c]
    return view.stored.join(starts, sql.and_(*same)).where(view.table.c.segment == "")


def _where(view: View, chosen: Chosen) -> list[sql.ColumnElement[bool]]:
    columns = view.table.c
    names = ("collector", "plan", "version", "metric")
    where = [*_same(view.table, chosen, *names, "segment", "kind")]
    if chosen.items is not None and "item" in columns:
        where.append(columns.item.in_(chosen.items))
    if "window_start" not in columns:
        return where
    if chosen.starts is not None:
        where.append(columns.window_start.in_(map(milliseconds, chosen.starts)))
    if chosen.since is not None:
        where.append(columns.window_end > milliseconds(chosen.since))
    among = [*_same(NEWEST, chosen, *names)]
    if chosen.until is not None:
        where.append(columns.window_start < milliseconds(chosen.until))
        among.append(NEWEST.c.window_start < milliseconds(chosen.until))
    if chosen.newest:
        where.append(newest(view.table, *among))
    elif chosen.metric is not None and None in (chosen.collector, chosen.plan, chosen.version):
        where.append(of_metric(view.table, chosen.metric))
    return where


def _same(table: sql.FromClause, chosen: Chosen, *names: str) -> Iterator[sql.ColumnElement[bool]]:
    for name in names:
        if name in table.c and (value := getattr(chosen, name)) is not None:
            yield table.c[name] == value


def _fits(order: Sequence[sql.Column[Any]], after: Sequence[object]) -> bool:
    """Return whether values are of the types of columns."""
    return len(order) == len(after) and all(
        type(value) is column.type.python_type for column, value in zip(order, after, strict=True)
    )


def _health_of(meta: sql.Row[Any], document: Mapping[str, Any]) -> Health:
    return Health(
        collector=meta.collector,
        job=meta.state,
        generation=meta.projected_generation,
        clock=moment(meta.clock) if isinstance(meta.clock, int) else None,
        lineage=meta.lineage,
        source=meta.source,
        numbers={
            name: value if type(value) is int else None
            for name, value in document.items()
            if name not in ("clock", "offsets")
        },
        offsets=dict(document.get("offsets") or {}),
    )
