"""The section "Over time" of a metric's page and of boards: figures over windows, by segment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from mechanisms.estimators.local_level import Smoothed, smooth
from pipelines.results.fields import milliseconds
from pipelines.results.printed import under_of
from pipelines.results.range_windows import names_of
from pipelines.results.records import EstimateRecord, Window
from pipelines.web import charts, formats
from pipelines.web.boards import BoardChart
from pipelines.web.metric import charted
from pipelines.web.snapshot import HEADLINE_KINDS, MOST_DRAWN, MOST_WINDOWS
from pipelines.web.views import BoardView, MetricView, RangeQuery, figure_of, name_of, newest
from sotto.columns import time_text
from sotto.errors import ParameterError

#: The fewest windows that are smoothed.
_SMOOTHED = 8
#: The most figures to choose from, figures that are drawn, and panels of a chart.
_CHOICES, _FIGURES, _PANELS = 60, 8, 24
#: Kinds of figures that can be drawn.
_KINDS = (*HEADLINE_KINDS, "quantile", "bit")


@dataclass(frozen=True)
class _Drawn:
    """A figure of one segment, its rows by start of the window, and the line of all reports."""

    name: str
    of: EstimateRecord
    segment: str
    rows: Mapping[datetime, EstimateRecord]
    beside: charts.Line | None


def course(view: MetricView) -> Mapping[str, object] | None:
    """Return the chosen figures over the chosen windows, and what else can be chosen."""
    if len(view.windows) < 2 or not view.headlines:
        return None
    known = [row for row in view.rows if row.kind in _KINDS and row.value is not None]
    named = [row for row in known if figure_of(row) in view.query.items] or view.headlines
    windows = _windows(view) or view.windows[-MOST_DRAWN:]
    # A browser fetches a chart of many windows by its address; the page then reads only the windows
    # that its table shows.
    later = not view.draws and len(windows) > charts.DOTS
    read = windows[-MOST_WINDOWS:] if later else windows
    drawn = _read(view, named[:_FIGURES], read)[:_PANELS]
    marks = _marks(view, windows)
    panels = [_panel(each, read, view.query.forged) for each in drawn]
    segments = [name for name in view.snapshot.segments(view.shown) if name]
    experiment = view.plan.experiment if view.plan else None
    # Arms are left out here, since the page of experiments compares them.
    apart = [name for name in segments if not experiment or experiment.name not in names_of(name)]
    columns = 3 if len(panels) > _FIGURES // 2 and drawn[0].segment else 1
    # Readers compare segments by eye, and so need one scale.
    figures = {figure_of(each.of) for each in drawn}
    compared = len(figures) == 1 and all(each.segment for each in drawn)
    one_scale = compared or columns > 1
    chart = charts.series(
        f"{view.title} Over {len(windows)} windows",
        panels,
        "window from",
        marks,
        columns=columns,
        one_scale=one_scale,
    )
    chart.many = later
    return {
        "chart": chart,
        "marks": marks,
        "around": {mark: _around(view, mark, apart) for mark in marks},
        "drawn": drawn,
        "past": windows[: -MOST_WINDOWS - 1 : -1],
        "left_out": max(len(windows) - MOST_WINDOWS, 0),
        "choices": known[:_CHOICES],
        "named": named,
        "segments": [*dict.fromkeys(",".join(names_of(name)) for name in segments), *segments],
        "others": ["previous", *(["all"] if segments else []), *apart],
        "chooses": view.address() is not None,
        "one_scale": one_scale,
        "beside": any(each.beside is not None for each in drawn),
    }


def board(view: BoardView) -> Mapping[str, object]:
    """Return the charts of a board, and the names of what it asks for and does not exist."""
    shown, missing = [], []
    for each in view.board.charts:
        view_of = _of_chart(view, each)
        found = None if view_of is None else course(view_of)
        if found is None or view_of is None or not _is_asked(view_of, found):
            asked = each.metric, each.segment, *each.items, each.since, each.until
            missing.append(" ".join(filter(None, asked)))
            continue
        shown.append((view_of, found))
        figures = _figures(found)
        missing += [f"{each.metric} {item}" for item in each.items if item not in figures]
    return {"shown": shown, "missing": missing}


def _figures(found: Mapping[str, Any]) -> set[str]:
    return {figure_of(row) for row in found["named"]}


def _is_asked(view: MetricView, found: Mapping[str, Any]) -> bool:
    """Return whether the chart shows what is asked for, not all reports or headlines instead."""
    query = view.query
    items = not query.items or not _figures(found).isdisjoint(query.items)
    segment = not query.segment or any(each.segment for each in found["drawn"])
    return items and segment and bool(_windows(view))


def _of_chart(view: BoardView, chart: BoardChart) -> MetricView | None:
    """Return the view of a chart's metric in the newest version of its plan; None without one."""
    query = RangeQuery(chart.since, chart.until, chart.segment, items=chart.items)
    for key, windows in view.snapshot.newest.items():
        if key.metric == chart.metric and chart.plan in (None, key.plan):
            of, shown = (view.snapshot, view.links, view.public), newest(windows)
            return MetricView(*of, key=key, shown=shown, query=query)
    return None


def _windows(view: MetricView) -> list[Window]:
    """Return the newest windows from the first of the ranges asked for to the last."""
    query = view.query
    try:
        wanted = query.wanted(view.key)
        ranges = [wanted, *([wanted.against(query.against)] if query.against else [])]
    except ParameterError:
        # The section of ranges shows this error.
        ranges = []
    begins = [each.since for each in ranges if each.since is not None]
    ends = [each.until for each in ranges if each.until is not None]
    # A range without an end goes on as far as there are windows.
    first = min(begins) if len(begins) == len(ranges) > 0 else None
    last = max(ends) if len(ends) == len(ranges) > 0 else None
    return [
        each
        for each in view.windows
        if (first is None or each.window_start >= first)
        and (last is None or each.window_end <= last)
    ][-MOST_DRAWN:]


def _read(
    view: MetricView, named: Sequence[EstimateRecord], windows: Sequence[Window]
) -> list[_Drawn]:
    """Return the figures of all reports, or of the segments that are asked for."""
    segment = view.query.segment
    by_attribute = segment != "" and "=" not in segment
    if by_attribute and not view.query.items:
        named = named[:1]
    figures = [(row.kind, row.item) for row in named]
    # Lists are read only for the band of forged reports.
    read = partial(view.snapshot.history, view.key, figures, windows, brief=not view.query.forged)
    whole = read(None if by_attribute else "")
    alone = [
        _Drawn(_named(row), row, "", whole.get((row.kind, row.item, ""), {}), None) for row in named
    ]
    if not segment:
        return alone
    found = whole if by_attribute else read(segment)
    names = dict.fromkeys(name for _, _, name in found)
    wanted = [each for each in names if segment in (each, ",".join(names_of(each)))]
    return [
        _Drawn(f"{name}: {each.name}", of, name, found.get((of.kind, of.item, name), {}), beside)
        for each in alone
        for of, beside in [(each.of, _line("", each.rows, windows, beside=True))]
        for name in wanted
    ] or alone


def _named(row: EstimateRecord) -> str:
    return name_of(row) + ("" if row.unit in (None, "share", "rank") else f" ({row.unit})")


def _panel(drawn: _Drawn, windows: Sequence[Window], forged: float) -> charts.SeriesPanel:
    if drawn.beside is None:
        lines = [_line("", drawn.rows, windows, _smoothed(drawn, windows))]
    else:
        lines = [drawn.beside, _line(drawn.segment, drawn.rows, windows)]
    if forged:
        under = [
            under_of(row.low, row.high, row.reach, row.reports_by_level, forged) if row else None
            for row in (drawn.rows.get(each.window_start) for each in windows)
        ]
        lines[-1] = lines[-1]._replace(under=under)
    return charts.SeriesPanel(drawn.name, drawn.of.unit or "", lines)


def _line(
    segment: str,
    rows: Mapping[datetime, EstimateRecord],
    windows: Sequence[Window],
    smoothed: Smoothed | None = None,
    *,
    beside: bool = False,
) -> charts.Line:
    name, told = segment or "all reports", len(windows) <= charts.DOTS
    starts, ends = [each.window_start for each in windows], [each.window_end for each in windows]
    values = [_in_window(each, rows.get(each.window_start), told=told) for each in windows]
    is_open = [not each.complete for each in windows]
    return charts.Line(name, starts, values, is_open, smoothed, beside, ends=ends)


def _in_window(window: Window, row: EstimateRecord | None, *, told: bool) -> charts.Value:
    """Return the value that a chart shows for a window; with a text if the chart has dots."""
    if row is None:
        return (None, None, "")
    value, ends, text = charted(row, told=told)
    so_far = "" if window.complete else " so far"
    return (value, ends, text and f"from {formats.day(window.window_start)}{so_far}, {text}")


def _smoothed(drawn: _Drawn, windows: Sequence[Window]) -> Smoothed | None:
    """Return the smoothed series of a figure; None if there is too little to smooth.

    A window without an estimate is left out, as if no time passed in it.
    """
    rows = [drawn.rows.get(each.window_start) for each in windows]
    values, errors = np.full(len(rows), math.nan), np.full(len(rows), math.nan)
    for at, row in enumerate(rows):
        told = row is not None and row.complete and row.method in (None, "unbiased")
        if row is not None and row.value is not None and told:
            values[at], errors[at] = row.value, row.standard_error or math.nan
    values[np.isnan(errors)] = math.nan
    return None if np.isfinite(values).sum() < _SMOOTHED else smooth(values, errors)


def _around(
    view: MetricView, mark: charts.Mark, segments: Sequence[str]
) -> list[tuple[str, str | None]]:
    """Return links that compare all windows since a note with as long a time before it.

    Each is a text and an address: one for the present choice, and one by each attribute.
    """
    since, until = (
        time_text(milliseconds(each)) for each in (mark.at, view.windows[-1].window_end)
    )
    query = replace(view.query, since=since, until=until, against="previous")
    names = dict.fromkeys(",".join(names_of(each)) for each in segments)
    by_names = {f"by {each}": replace(query, segment=each) for each in names}
    queries = {"before and after": query, **by_names}.items()
    return [(text, view.links.metric(view.key, view.shown, each)) for text, each in queries]


def _marks(view: MetricView, windows: Sequence[Window]) -> list[charts.Mark]:
    """Return the notes that lie in the time of the chart, numbered from 1."""
    begin, end = windows[0].window_start, windows[-1].window_end
    notes = [each for each in view.snapshot.notes if begin <= each.at <= end]
    return [charts.Mark(each.at, number, each.text) for number, each in enumerate(notes, 1)]
