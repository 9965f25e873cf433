"""A read-only reader of results: what pages, alerts, exports and the HTTP interface are made of."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sql

from pipelines.results.database import ReadOnlyDatabase
from pipelines.results.records import Budget, Estimate, Health, Metric, Rejection, Window
from pipelines.sinks.committed import health_of
from pipelines.sinks.sql import of_state
from pipelines.sinks.tables import ESTIMATES, HEALTH, META, PERIODS, QUARANTINE, WINDOWS
from pipelines.sinks.views import (
    NEWEST,
    VIEW_BUDGETS,
    VIEW_ESTIMATES,
    VIEW_REJECTIONS,
    VIEW_WINDOWS,
    Kind,
    View,
    newest,
)
from pipelines.storage.directory import StateDirectory
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan

#: Connections to a PostgreSQL server that are kept.
_KEPT = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The order of windows and, with the last three, of estimates.
_ORDER = ("collector", "plan", "version", "metric", "window_start", "segment")
_WITHIN = ("position", "kind", "item")

_Record = TypeVar("_Record", Window, Estimate, Budget, Rejection)


@dataclass(frozen=True)
class Chosen:
    """Which windows and estimates are read; what is None chooses nothing.

    Parameters
    ----------
    collector, plan, metric, segment, kind : str, optional
        Only of this one; segment ``""`` is all reports together.
    items : sequence of str, optional
        Only estimates of these.
    version : int, optional
    since, until : datetime, optional
        Aware. Only windows that end after ``since`` and begin before ``until``.
    newest : bool
        Of each metric of a plan's version, only the newest of these windows.
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
    newest: bool = False


class ResultsReader:
    """Reads a database of results; every method in one read-only transaction.

    It may be used by several threads. Methods raise :class:`ResultsError` if the database is
    missing, damaged, written by another version of Sotto, or cannot be read now.

    Parameters
    ----------
    url : str or sqlalchemy.URL
        Of SQLite (a file) or PostgreSQL.
    state : path, optional
        The state directory of aggregation runs, which has their plans and health.
    plans : sequence of CompiledPlan
        The plans, where no state directory has them.
    """

    def __init__(
        self,
        url: str | sql.URL,
        state: str | os.PathLike[str] | None = None,
        plans: Sequence[CompiledPlan] = (),
    ) -> None:
        self._database = ReadOnlyDatabase(url, kept=_KEPT)
        self._state = None if state is None else Path(state)
        self._plans = tuple(plans)

    @classmethod
    def of_state(cls, state: str | os.PathLike[str]) -> Self:
        """Return a reader of the database in a state directory."""
        return cls(of_state(state), state)

    def revision(self) -> str:
        """Return a short text that changes whenever the results do; it costs one small query."""
        rows = self._rows(sql.select(META).order_by(*META.primary_key))
        return hashlib.sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()[:16]

    def metrics(self) -> list[Metric]:
        """Return the metrics that have results."""
        found: dict[tuple[object, ...], list[Window]] = {}
        for window in self.windows():
            key = (window.collector, window.plan, window.version, window.metric)
            found.setdefault(key, []).append(window)
        return [_metric(windows) for windows in found.values()]

    def windows(
        self,
        chosen: Chosen = Chosen(),
        *,
        after: Sequence[object] | None = None,
        limit: int | None = None,
    ) -> list[Window]:
        """Return windows in order of metric and time.

        ``after``: only those after the one of this :func:`key_of`. ``limit``: so many at most.
        """
        query = VIEW_WINDOWS.stored.where(*_where(WINDOWS, chosen))
        query = _page(query, _named(WINDOWS, _ORDER), after, limit)
        return self._records(Window, VIEW_WINDOWS, query)

    def estimates(
        self,
        chosen: Chosen = Chosen(),
        *,
        after: Sequence[object] | None = None,
        limit: int | None = None,
    ) -> list[Estimate]:
        """Return estimates in order of metric, window, segment and position.

        ``after``: only those after the one of this :func:`key_of`. ``limit``: so many at most.
        """
        query = VIEW_ESTIMATES.stored.where(*_where(ESTIMATES, chosen))
        query = _page(query, _named(ESTIMATES, (*_ORDER, *_WITHIN)), after, limit)
        return self._records(Estimate, VIEW_ESTIMATES, query)

    def budgets(self) -> list[Budget]:
        """Return the audit of every budget period, oldest first."""
        query = VIEW_BUDGETS.stored.order_by(PERIODS.c.collector, PERIODS.c.period_start)
        return self._records(Budget, VIEW_BUDGETS, query)

    def rejections(self) -> list[Rejection]:
        """Return the rejected reports by reason."""
        query = VIEW_REJECTIONS.stored.order_by(QUARANTINE.c.collector, QUARANTINE.c.reason)
        return self._records(Rejection, VIEW_REJECTIONS, query)

    def plans(self) -> list[CompiledPlan]:
        """Return the plans of the state directory, or those that were given; newest version last.

        Raises AggregationError if a file of the state directory is damaged.
        """
        stored = StateDirectory(self._state).plans.load_all() if self._state else self._plans
        return sorted(stored, key=lambda plan: (plan.collector, plan.plan, plan.version))

    def health(self) -> list[Health]:
        """Return how the results and their job are: one record a collector."""
        return self._database.read(self._health)

    def _health(self, connection: sql.Connection) -> list[Health]:
        documents: dict[str | None, Mapping[str, Any]] = {}
        if sql.inspect(connection).has_table(HEALTH.name):
            for row in connection.execute(sql.select(HEALTH)):
                documents[row.collector] = row.document
        elif self._state is not None and (plans := self.plans()):
            manifest = StateDirectory(self._state).manifest()
            value = json.loads(health_of(manifest, plans[0].collector)[1])
            documents[value["collector"]] = value["health"]
        found = []
        for meta in connection.execute(sql.select(META)).mappings():
            own = meta.get("collector")
            of_job = {own: documents.get(own, {})} if own else documents or {None: {}}
            found += [_health(meta, collector, each) for collector, each in of_job.items()]
        return found

    def _records(self, kind: type[_Record], view: View, query: sql.Select[Any]) -> list[_Record]:
        names = [column.name for column in view.columns]
        convert = [_CONVERTED.get(column.kind) for column in view.columns]
        return [
            kind(
                **{
                    name: value if to is None or value is None else to(value)
                    for name, to, value in zip(names, convert, row, strict=True)
                }
            )
            for row in self._rows(query)
        ]

    def _rows(self, query: sql.Select[Any]) -> Sequence[sql.Row[Any]]:
        return self._database.read(lambda connection: connection.execute(query).all())


def key_of(row: Window | Estimate) -> tuple[object, ...]:
    """Return the place of a record in its order, for ``after``; JSON has all of it."""
    names = (*_ORDER, *_WITHIN) if isinstance(row, Estimate) else _ORDER
    key = {name: getattr(row, name) for name in names}
    return tuple({**key, "window_start": _milliseconds(row.window_start)}.values())


def _named(table: sql.Table, names: Iterable[str]) -> list[sql.ColumnElement[Any]]:
    return [table.c[name] if name in table.c else sql.literal("").label(name) for name in names]


def _where(table: sql.Table, chosen: Chosen) -> list[sql.ColumnElement[bool]]:
    names = ["collector", "plan", "version", "metric", *(["kind"] if "kind" in table.c else [])]
    where = [
        table.c[name] == value for name in names if (value := getattr(chosen, name)) is not None
    ]
    if chosen.segment is not None and "segment" in table.c:
        where.append(table.c.segment == chosen.segment)
    if chosen.items is not None and "item" in table.c:
        where.append(table.c.item.in_(chosen.items))
    if chosen.since is not None:
        where.append(table.c.window_end > _milliseconds(chosen.since))
    if chosen.until is not None:
        where.append(table.c.window_start < _milliseconds(chosen.until))
    if chosen.newest:
        before = (
            () if chosen.until is None else (NEWEST.c.window_start < _milliseconds(chosen.until),)
        )
        where.append(newest(table, *before))
    return where


def _page(
    query: sql.Select[Any],
    columns: Sequence[sql.ColumnElement[Any]],
    after: Sequence[object] | None,
    limit: int | None,
) -> sql.Select[Any]:
    if after is not None:
        if len(after) != len(columns):
            raise ParameterError("after must be the key of a row of the same kind")
        query = query.where(sql.tuple_(*columns) > sql.tuple_(*map(sql.literal, after)))
    return query.order_by(*columns).limit(limit)


def _milliseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise ParameterError("a time must have a time zone, such as 2013-06-01T00:00Z")
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _time(milliseconds: int) -> datetime:
    """Return a time; the first or the last that there is for what lies beyond."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        limit = datetime.max if milliseconds > 0 else datetime.min
        return limit.replace(tzinfo=UTC)


#: How what a column holds becomes a part of a record.
_CONVERTED: Mapping[Kind, Callable[[Any], object]] = {"time": _time, "list": tuple}


def _metric(windows: Sequence[Window]) -> Metric:
    last = windows[-1]
    whole = [window for window in windows if not window.segment]
    return Metric(
        collector=last.collector,
        plan=last.plan,
        version=last.version,
        metric=last.metric,
        type=last.type,
        mechanism=last.mechanism,
        segments=tuple(sorted({window.segment for window in windows})),
        windows=len(whole),
        reports=sum(window.reports for window in whole),
        first_window=min(window.window_start for window in windows),
        newest_window=max(window.window_start for window in windows),
    )


def _health(meta: Mapping[str, Any], collector: str | None, document: Mapping[str, Any]) -> Health:
    numbers = {
        name: value if type(value) is int else None
        for name, value in document.items()
        if name not in ("clock", "offsets")
    }
    return Health(
        collector=collector,
        job=meta["state"],
        generation=meta["projected_generation"],
        clock=None if meta["clock"] is None else _time(meta["clock"]),
        numbers=numbers,
        offsets=dict(document.get("offsets") or {}),
    )
