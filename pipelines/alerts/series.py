"""Reads the watched figures from the results: series of one value for each window."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np

from mechanisms.arrays import Bools, Floats
from mechanisms.estimators.seasons import without_season
from pipelines.alerts.configuration import Configuration, Holiday, MetricWatched
from pipelines.alerts.kept import Figure
from pipelines.results.fields import grouped
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.records import EstimateRecord
from pipelines.results.views import VIEW_ESTIMATES
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.durations import duration_text

#: How many of the newest windows of a figure are looked at.
MOST_WINDOWS = 400
#: The answers that are not watched, each to the other one of the two, which says the same.
_RESTS = {"false": "true", "no": "yes"}
#: The beginning of the first cycle of every season.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Series:
    """A figure's windows, in order and without gaps.

    ``values``, ``errors``: shape (t,); NaN if a window is missing or withheld. ``revisions``: the
    revision of each window, 0 for none. ``holidays``: shape (t,); whether a window has days of a
    holiday. ``season``: how many windows a pattern has that repeats, 1 for none.
    """

    figure: Figure
    unit: str | None
    drift: float | None  #: as configured
    first: datetime  #: start of the first window
    values: Floats
    errors: Floats
    revisions: tuple[int, ...]
    holidays: Bools
    season: int

    @property
    def known(self) -> int:
        """The number of windows that have a value."""
        return int(np.isfinite(self.values).sum())

    def start(self, window: int) -> datetime:
        """Return when a window begins."""
        return self.first + window * self.figure.length

    @cached_property
    def judged(self) -> tuple[Floats, Floats]:
        """The values that are judged and learned from, and their errors; NaN on holidays."""
        values = np.where(self.holidays, math.nan, self.values)
        if self.season == 1:
            return values, self.errors
        phase = (self.first - _EPOCH) // self.figure.length % self.season
        return without_season(values, self.errors, self.season, phase)


def read_series(reader: ResultsReader, configuration: Configuration) -> list[Series]:
    """Return the figures of a configuration, with the windows that are ripe.

    A window is ripe once its last level is due, or ``settle`` after its end, by the clock of the
    results. After that only late reports change it, so that it is judged once.

    Raises ParameterError if a metric or kind is named that has no results, though others have some,
    or if the plan is not known that says when the last level is due.
    """
    clocks = {each.collector: each.clock for each in reader.health() if each.clock is not None}
    settled = _Settling(reader.plans(), configuration.settle)
    found: list[Series] = []
    for wanted in configuration.metrics or _all(reader):
        read = _rows(reader, wanted, bool(configuration.metrics))
        due = (row for row in read if row.complete and row.collector in clocks)
        over = (row for row in due if row.window_end + settled.after(row) <= clocks[row.collector])
        rows = grouped(over, _figure)
        for figure, of in rows.items():
            if wanted.items is not None or not _is_rest(figure, rows):
                found.append(_series(figure, of, wanted, configuration.holidays))
    unique = {each.figure: each for each in reversed(found)}
    return [unique[figure] for figure in sorted(unique)]


def _all(reader: ResultsReader) -> list[MetricWatched]:
    names = {(metric.plan, metric.metric) for metric in reader.metrics()}
    return [MetricWatched(plan=plan, metric=metric) for plan, metric in sorted(names)]


def _rows(reader: ResultsReader, wanted: MetricWatched, named: bool) -> Iterator[EstimateRecord]:
    segment = None if wanted.segments else ""
    found = False
    for kind in wanted.kinds:
        chosen = Chosen(plan=wanted.plan, metric=wanted.metric, segment=segment, kind=kind)
        for row in reader.estimates(chosen):
            found = True
            # If segments are watched, the total is not: it is their sum.
            told = (bool(row.segment) or not wanted.segments) and row.method in (None, "unbiased")
            if told and (wanted.items is None or row.item in wanted.items):
                yield row
    if wanted.items or (named and not found):
        lost = None if found else wanted.kinds[0]
        asked = Chosen(plan=wanted.plan, metric=wanted.metric, kind=lost, items=wanted.items)
        reader.check_known(VIEW_ESTIMATES, asked)


def _figure(row: EstimateRecord) -> Figure:
    length = row.window_end - row.window_start
    return Figure(row.collector, row.plan, row.metric, row.segment, row.kind, row.item, length)


def _is_rest(figure: Figure, figures: Collection[Figure]) -> bool:
    """Return whether a figure is the share of no or false, the rest of that of yes or true."""
    other = _RESTS.get(figure.item) if figure.kind == "share" else None
    alike = {each.item for each in figures if each._replace(item=figure.item) == figure}
    return other is not None and alike == {figure.item, other}


class _Settling:
    """The times after which windows are ripe."""

    def __init__(self, plans: Sequence[CompiledPlan], settle: int | None) -> None:
        self._settle = settle
        self._due = {
            (plan.collector, plan.plan, plan.version, metric.name): metric.delays[-1]
            + plan.resolution
            for plan in plans
            for metric in plan.metrics
        }

    def after(self, row: EstimateRecord) -> timedelta:
        """Return how long after its end the window of a row is ripe."""
        due = self._settle
        if due is None:
            due = self._due.get(row.key)
        if due is None:
            raise ParameterError(
                f"it is not known when the reports of {row.metric} are due: give the plan "
                f"{row.plan} version {row.version} with --plan, or write settle: 7d, say, in the "
                "configuration"
            )
        return timedelta(milliseconds=due)


def _series(
    figure: Figure,
    rows: Iterable[EstimateRecord],
    wanted: MetricWatched,
    holidays: Sequence[Holiday],
) -> Series:
    by_start = grouped(rows, lambda row: row.window_start)
    last = max(by_start)
    first = max(min(by_start), last - (MOST_WINDOWS - 1) * figure.length)
    windows = (last - first) // figure.length + 1
    values, errors = np.full(windows, math.nan), np.full(windows, math.nan)
    revisions = [0] * windows
    unit = None
    for start, of in by_start.items():
        if start < first:
            continue
        at = (start - first) // figure.length
        values[at], errors[at] = _together(of)
        revisions[at] = max(row.revision for row in of)
        unit = of[-1].unit
    starts = [first + at * figure.length for at in range(windows)]
    skipped = [any(day.touches(at, at + figure.length) for day in holidays) for at in starts]
    skips = np.array(skipped, dtype=bool)
    return Series(
        figure,
        unit,
        wanted.drift,
        first,
        values,
        errors,
        tuple(revisions),
        skips,
        _season(figure, wanted.season),
    )


def _season(figure: Figure, length: int | None) -> int:
    """Return how many windows of a figure its season has; 1 for none."""
    if length is None:
        return 1
    windows, rest = divmod(timedelta(milliseconds=length), figure.length)
    if rest or not 2 <= windows <= MOST_WINDOWS // 2:
        own = duration_text(figure.length // timedelta(milliseconds=1))
        raise ParameterError(
            f"the season of {figure.metric} must have 2 to {MOST_WINDOWS // 2} of its windows, "
            f"each {own} long; got {duration_text(length)}"
        )
    return windows


def _together(rows: Sequence[EstimateRecord]) -> tuple[float, float]:
    """Return the estimate over the reports of all versions, and its standard error."""
    told = [
        (row.reports, row.value, row.standard_error)
        for row in rows
        if row.value is not None and row.standard_error
    ]
    reports = sum(each for each, _, _ in told)
    if not reports:
        return math.nan, math.nan
    value = sum(n * value for n, value, _ in told) / reports
    return value, math.hypot(*(n * error for n, _, error in told)) / reports
