"""The sections of the page of a metric: one window's estimates, and what became of all windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from mechanisms.estimators.local_level import Smoothed, smooth
from mechanisms.items import OF_EXPERIMENTS
from mechanisms.planner.targets import Assumed
from pipelines.results.records import EstimateRecord, Window
from pipelines.web import charts, formats, overview, plan, words
from pipelines.web.snapshot import MOST_WINDOWS
from pipelines.web.views import MetricView, ends_of, name_of
from sotto.design.questions import question_of_metric
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: Windows that a smoothed series has at least.
_SMOOTHED = 8
#: Estimates that a chart and a table show at most.
_CHARTED, _LISTED = 25, 200
#: The largest number that is drawn: scales are computed from differences and squares.
_MOST = 1e120

Value = tuple[float | None, tuple[float, float] | None, str]


def said(row: EstimateRecord) -> str:
    """Return an estimate in a sentence."""
    value = f"{name_of(row)}: {formats.quantity(row.value, row.unit)}"
    if row.low is None:
        return f"{value}, {words.BIASED}" if row.biased else value
    return f"{value}, interval of 95 % {ends_of(row)}"


def charted(row: EstimateRecord) -> Value:
    """Return an estimate as charts take it."""
    low, value, high = (_drawn(each) for each in (row.low, row.value, row.high))
    ends = None if low is None or high is None else (low, high)
    return (value, ends, said(row))


def _drawn(value: float | None) -> float | None:
    """Return a number that a scale can have; None for one that is far from all that is measured."""
    return value if value is not None and abs(value) <= _MOST else None


def window(view: MetricView) -> Mapping[str, object]:
    """Return the window that is shown, its neighbours, and the figures that stand for it."""
    at = view.windows.index(view.shown)
    before = view.windows[at - 1] if at else None
    after = view.windows[at + 1] if at + 1 < len(view.windows) else None
    versions = [
        (key.version, view.links.metric(key))
        for key in view.snapshot.newest
        if key != view.key and (key[:2], key.metric) == (view.key[:2], view.key.metric)
    ]
    return {
        "figures": overview.figures(view.headlines),
        "before": before and view.links.metric(view.key, before),
        "after": after and view.links.metric(view.key, after),
        "chooses": view.links.metric(view.key, view.shown) is not None,
        "versions": versions,
        "data": [
            (name, address)
            for form, name in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
            if (address := view.links.data(view.shown, form)) is not None
        ],
        "means": words.of_kinds(row.kind for row in view.headlines),
    }


def alarms(view: MetricView) -> Mapping[str, object] | None:
    """Return what checks found in the window's reports that honest devices do not send."""
    found = view.snapshot.alarms.get((view.key, view.shown.window_start))
    return {"alarms": found, "means": [words.POISONED]} if found else None


def shares(view: MetricView) -> Mapping[str, object] | None:
    """Return shares of values and means of coordinates, as a chart and a table."""
    rows = view.of_kind("share", "group", "conversion")
    label, unit = "share of reports", "share"
    if not rows:
        rows = view.of_kind("mean")
        if len(rows) < 2:
            return None
        unit = rows[0].unit or ""
        label = unit or "value"
    known = [row for row in rows if row.value is not None]
    if not known:
        return None
    if view.shown.type in ("category", "top_item"):
        known.sort(key=lambda row: -(row.value or 0))
    first = known[:_CHARTED]
    return {
        "chart": charts.intervals(
            f"{view.title} {formats.day(view.shown.window_start)}",
            [name_of(row) for row in first],
            [charted(row) for row in first],
            unit,
            label,
        ),
        "shown": len(first),
        "rows": known[:_LISTED],
        "total": len(known),
        "means": [*words.of_kinds(row.kind for row in rows), *_of_shown(rows)],
    }


def _of_shown(rows: Sequence[EstimateRecord]) -> list[str]:
    return [words.SHOWN] if any(row.shown is not None for row in rows) else []


class Point(NamedTuple):
    """A point of a distribution."""

    at: float
    row: EstimateRecord


def distribution(view: MetricView) -> Mapping[str, object] | None:
    """Return the distribution of a number, its quantiles, its mean and its bits."""
    points = sorted(
        Point(float(row.item), row)
        for row in view.of_kind("cdf")
        if _drawn(row.value) is not None and formats.is_number(row.item)
    )
    quantiles = [row for row in view.of_kind("quantile") if row.value is not None]
    bits = [row for row in view.of_kind("bit") if row.value is not None]
    if not points and not quantiles and not bits:
        return None
    return {
        "chart": _curve(view, points) if points else None,
        "quantiles": quantiles,
        "bits": bits,
        "means": words.of_kinds(row.kind for row in (*view.of_kind("cdf")[:1], *quantiles, *bits)),
    }


def _curve(view: MetricView, points: Sequence[Point]) -> Markup:
    units = {row.unit for row in view.of_kind("mean", "quantile") if row.unit}
    ends = [ends for _, row in points if (ends := charted(row)[1]) is not None]
    return charts.distribution(
        f"Distribution of {view.key.metric} {formats.day(view.shown.window_start)}",
        [point.at for point in points],
        [point.row.value or 0.0 for point in points],
        ends if len(ends) == len(points) else [],
        next(iter(sorted(units)), ""),
    )


def strings(view: MetricView) -> Mapping[str, object] | None:
    """Return the candidate strings that were found, with the detection floor."""
    rows = [row for row in view.of_kind("string") if row.value is not None]
    if not rows:
        return None
    rows.sort(key=lambda row: -(row.value or 0))
    found = [row for row in rows if row.significant]
    floors = [row.detection_floor for row in rows if row.detection_floor is not None]
    floor = max(floors, default=None)
    first = found[:_CHARTED]
    chart = None
    if first:
        chart = charts.intervals(
            f"Strings found in {view.key.metric} {formats.day(view.shown.window_start)}",
            [row.item for row in first],
            [charted(row) for row in first],
            "share",
            "share of reports",
            floor=floor,
        )
    return {
        "chart": chart,
        "shown": len(first),
        "found": found[:_LISTED],
        "others": [row for row in rows if not row.significant][:_LISTED],
        "number_found": len(found),
        "candidates": len(rows),
        "floor": floor,
        "confounded": any(row.confounded_with for row in found),
        "unexplained": next(iter(view.of_kind("unexplained")), None),
        "false_names": next((row.value for row in view.of_kind("false_names")), None),
        "means": [
            *words.of_kinds(["string", *(row.kind for row in view.of_kind("false_names"))]),
            *_of_shown(found),
        ],
    }


class Segment(NamedTuple):
    """The estimates of one segment, or of all reports together."""

    name: str
    reports: int
    withheld: str | None
    rows: list[EstimateRecord | None]


def segments(view: MetricView) -> Mapping[str, object] | None:
    """Return the figures that stand for the metric in each segment."""
    by_segment: dict[str, dict[tuple[str, str], EstimateRecord]] = {}
    for row in view.all_rows:
        if row.kind not in OF_EXPERIMENTS:
            by_segment.setdefault(row.segment, {})[row.kind, row.item] = row
    if set(by_segment) <= {""}:
        return None
    wanted = [(row.kind, row.item) for row in view.headlines]
    windows = view.snapshot.segments(view.shown)
    found = []
    for name in sorted(by_segment, key=lambda name: (name.count(","), name)):
        rows = by_segment[name]
        # An estimate may be of fewer reports than its segment, such as one coordinate of a vector.
        if (segment := windows.get(name)) is None:
            continue
        found.append(
            Segment(
                name or "all reports",
                segment.reports,
                segment.withheld,
                [rows.get(key) for key in wanted],
            )
        )
    return {
        "segments": found,
        "names": [name_of(row) for row in view.headlines],
        "charts": [
            (name_of(row), _by_segment(found, at, row)) for at, row in enumerate(view.headlines)
        ],
    }


def _by_segment(segments: Sequence[Segment], at: int, of: EstimateRecord) -> Markup:
    shown = [
        (each, row)
        for each in segments[:_CHARTED]
        if (row := each.rows[at]) is not None and row.value is not None
    ]
    return charts.intervals(
        f"{name_of(of)} by segment",
        [each.name for each, _ in shown],
        [(*charted(row)[:2], f"{each.name}: {said(row)}") for each, row in shown],
        of.unit or "",
        "share of the segment's reports" if of.unit == "share" else of.unit or "value",
    )


class Past(NamedTuple):
    """A window, its address, and the figures that stand for the metric in it."""

    window: Window
    link: str | None
    rows: list[EstimateRecord | None]


def history(view: MetricView) -> Mapping[str, object] | None:
    """Return the figures that stand for the metric over its windows."""
    if len(view.windows) < 2 or not view.headlines:
        return None
    shown = view.windows[-MOST_WINDOWS:]
    items: dict[str, list[str]] = {}
    for row in view.headlines:
        items.setdefault(row.kind, []).append(row.item)
    found = {
        (kind, item): rows
        for kind, names in items.items()
        for item, rows in view.snapshot.history(view.key, kind, names).items()
    }
    series = [(row, found[row.kind, row.item]) for row in view.headlines]
    past = [
        Past(
            each,
            view.links.metric(view.key, each),
            [rows.get(each.window_start) for _, rows in series],
        )
        for each in shown
    ]
    drawn = [each for each in past if any(row and row.value is not None for row in each.rows)]
    lines = [
        (
            name_of(row) + ("" if row.unit in (None, "share") else f", {row.unit}"),
            [_in_window(each, at) for each in drawn],
            row.unit or "",
        )
        for at, (row, _) in enumerate(series)
    ]
    smoothed = [_smoothed([each.rows[at] for each in drawn]) for at in range(len(series))]
    return {
        "chart": charts.series(
            f"{view.title} Over {len(drawn)} windows",
            [each.window.window_start for each in drawn],
            lines,
            "window from",
            [[] if line is None else line.values.tolist() for line in smoothed],
            [not each.window.complete for each in drawn],
        ),
        "models": [
            f"{name}: {line.model}"
            for (name, _, _), line in zip(lines, smoothed, strict=True)
            if line is not None
        ],
        "names": [name for name, _, _ in lines],
        "past": past[::-1],
        "left_out": len(view.windows) - len(shown),
    }


def _smoothed(rows: Sequence[EstimateRecord | None]) -> Smoothed | None:
    """Return the smoothed series of an estimate; None if there is too little to smooth.

    Windows that are left out of the chart count as none: the level does not drift in them.
    """
    values, errors = np.full(len(rows), math.nan), np.full(len(rows), math.nan)
    for at, row in enumerate(rows):
        told = row is not None and row.complete and row.method in (None, "unbiased")
        if row is not None and row.value is not None and told:
            values[at], errors[at] = row.value, row.standard_error or math.nan
    values[np.isnan(errors)] = math.nan
    if np.isfinite(values).sum() < _SMOOTHED:
        return None
    return smooth(values, errors)


def _in_window(past: Past, at: int) -> Value:
    row = past.rows[at]
    if row is None:
        return (None, None, "")
    value, ends, text = charted(row)
    so_far = "" if past.window.complete else " so far"
    return (value, ends, f"from {formats.day(past.window.window_start)}{so_far}, {text}")


class Sharpened(NamedTuple):
    """A level: its reports in the window, and what they would be worth."""

    level: plan.LadderLevel | None
    number: int
    reports: int
    colour: str
    #: Predicted standard error if all reports were at this level; None where it is not predicted.
    predicted: float | None


def sharpening(view: MetricView) -> Mapping[str, object] | None:
    """Return how reports at ever stronger levels make windows sharper."""
    counts = view.shown.reports_by_level
    if len(counts) < 2:
        return None
    known = list(plan.levels_of(view.metric)) if view.metric else []
    predicted = _predicted(view.plan, view.metric, view.shown.reports, _share(view.headlines))
    colours = charts.level_names(len(counts))
    shown = [each for each in view.windows if len(each.reports_by_level) == len(counts)]
    shown = shown[-MOST_WINDOWS:]
    return {
        "chart": None
        if len(shown) < 2
        else charts.levels(
            f"Reports of {view.key.metric} by level, window by window",
            [each.window_start for each in shown],
            [each.reports_by_level for each in shown],
            "window from",
            [not each.complete for each in shown],
        ),
        "levels": [
            Sharpened(
                known[at] if at < len(known) else None,
                at + 1,
                count,
                colours[at],
                predicted.errors[at] if predicted and at < len(predicted.errors) else None,
            )
            for at, count in enumerate(counts)
        ],
        "predicted": predicted,
        "headline": view.headlines[0] if view.headlines else None,
    }


def _share(headlines: Sequence[EstimateRecord]) -> float | None:
    """Return the first headline's share, rounded, as one that can be."""
    first = next(iter(headlines), None)
    if first is None or first.kind != "share" or first.value is None:
        return None
    return round(min(max(first.value, 0.0), 1.0), 3)


class Predicted(NamedTuple):
    """Standard errors by level, in a unit; of what they are, and which data is assumed."""

    errors: tuple[float, ...]
    what: str
    data: str
    unit: str


@lru_cache(maxsize=512)
def _predicted(
    of: CompiledPlan | None, metric: CompiledMetric | None, reports: int, share: float | None
) -> Predicted | None:
    """Return the standard errors of so many reports, of a share if it is given.

    None where they cannot be predicted.
    """
    if of is None or metric is None or reports < 1:
        return None
    question = question_of_metric(of, metric, Assumed(share=share))
    try:
        precisions = [question.precision(level) for level in range(question.sent)]
    except ParameterError:
        # The errors of strings depend on the candidates, those of some mechanisms are not known.
        return None
    errors = tuple(each.standard_error(reports) for each in precisions)
    of_shares = metric.range is None and metric.type != "ordinal"
    unit = "share" if of_shares else question.unit
    return Predicted(errors, precisions[0].what, precisions[0].data, unit)
