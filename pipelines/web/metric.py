"""The sections of the page of a metric that show one window's estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from mechanisms.items import OF_EXPERIMENTS
from mechanisms.planner.targets import Assumed
from pipelines.results.ordinals import steps_reached
from pipelines.results.reader import Chosen
from pipelines.results.records import EstimateRecord, Window
from pipelines.web import charts, formats
from pipelines.web.snapshot import MOST_WINDOWS
from pipelines.web.views import MetricView, ends_of, name_of, told
from sotto.design.questions import question_of_metric
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: The most estimates that a chart and a table show.
_CHARTED, _LISTED = 25, 200
#: The largest number that is drawn: scales are computed from differences and squares.
_MOST = 1e120


def said(row: EstimateRecord) -> str:
    """Return an estimate in a sentence."""
    value = f"{name_of(row)}: {formats.quantity(row.value, row.unit)}"
    if row.low is None:
        return f"{value}, {formats.BIASED}" if row.biased else value
    return f"{value}, interval of 95 % {ends_of(row)}"


def charted(row: EstimateRecord, *, told: bool = True) -> charts.Value:
    """Return an estimate as charts take it; ``told``: with a text for people."""
    low, value, high = _drawn(row.low), _drawn(row.value), _drawn(row.high)
    ends = None if low is None or high is None else (low, high)
    return (value, ends, said(row) if told else "")


def _drawn(value: float | None) -> float | None:
    """Return a number that a scale can show; None if it is absurdly large."""
    return value if value is not None and abs(value) <= _MOST else None


def window(view: MetricView) -> Mapping[str, object]:
    """Return the links of the window that is shown: neighbours, other versions, files of data."""
    at = view.windows.index(view.shown)
    before = view.windows[at - 1] if at else None
    after = view.windows[at + 1] if at + 1 < len(view.windows) else None
    versions = [
        (key.version, view.links.metric(key))
        for key in view.snapshot.newest
        if key != view.key and (key[:2], key.metric) == (view.key[:2], view.key.metric)
    ]
    return {
        "before": before and view.address(before),
        "after": after and view.address(after),
        "chooses": view.address() is not None,
        "versions": versions,
        "data": [
            (name, address)
            for form, name in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
            if (address := view.links.data(view.shown, form)) is not None
        ],
    }


def alarms(view: MetricView) -> Mapping[str, object] | None:
    """Return the alarms of the window: honest devices do not send such reports."""
    found = view.snapshot.alarms.get((view.key, view.shown.window_start))
    return {"alarms": found} if found else None


def shares(view: MetricView) -> Mapping[str, object] | None:
    """Return shares of values and means of coordinates, as a chart and a table."""
    # If reports tell a value from all others, its unbiased share (``group``) is shown instead.
    told = {row.item for row in view.of_kind("group")}
    rows = [row for row in view.of_kind("share") if row.item not in told]
    rows += view.of_kind("group", "conversion")
    means = [] if rows else view.of_kind("mean")
    known = [row for row in rows or means if row.value is not None]
    if not known or len(means) == 1:
        return None
    unit = "share" if rows else known[0].unit or ""
    label = "share of reports" if rows else unit or "value"
    if view.shown.type in ("category", "top_item"):
        known.sort(key=lambda row: -(row.value or 0))
    first = known[:_CHARTED]
    title = f"{view.title} {formats.day(view.shown.window_start)}"
    # A funnel's chart shows the share that reached each step.
    drawn = steps_reached(view.rows, view.metric) or first
    return {
        "chart": _chart(title, drawn, unit, label),
        "shown": len(first),
        "rows": known[:_LISTED],
        "total": len(known),
    }


def _chart(
    title: str, rows: Sequence[EstimateRecord], unit: str, label: str, floor: float | None = None
) -> charts.Chart:
    values = [charted(row) for row in rows]
    return charts.intervals(title, list(map(name_of, rows)), values, unit, label, floor=floor)


def retention(view: MetricView) -> Mapping[str, object] | None:
    """Return what part of the devices that were new in earlier windows came again in this one."""
    metric, now = view.metric, view.shown
    if metric is None or metric.measure is None or metric.measure.kind != "age":
        return None
    length = now.window_end - now.window_start
    since = now.window_start - len(metric.labels) * length
    read = Chosen(**view.key._asdict(), segment="", kind="share", since=since, until=now.window_end)
    rates = [
        rate
        # Reversed, so that the newest devices, those of the least age, come first.
        for rate in reversed(view.snapshot.reader.retention(read))
        if rate.since + rate.age * length == now.window_start
    ]
    if all(rate.value is None for rate in rates):
        return None
    names = [f"new from {formats.day(rate.since)}" for rate in rates]
    values = [
        told(name, (rate.value, rate.low, rate.high), "share")
        for name, rate in zip(names, rates, strict=True)
    ]
    title = f"Devices that came again {formats.day(now.window_start)}"
    return {
        "chart": charts.intervals(title, names, values, "share", "share that came again"),
        "rates": rates,
    }


def distribution(view: MetricView) -> Mapping[str, object] | None:
    """Return the distribution of a number, its quantiles, its mean and its bits."""
    cumulative = view.of_kind("cdf")
    if not all(formats.is_number(row.item) for row in cumulative):
        # A bin such as "2 to 4" has no place on an axis; without it the curve would mislead.
        cumulative = []
    points = {float(row.item): row for row in cumulative if _drawn(row.value) is not None}
    quantiles = [row for row in view.of_kind("quantile") if row.value is not None]
    bits = [row for row in view.of_kind("bit") if row.value is not None]
    if not points and not quantiles and not bits:
        return None
    return {"chart": _curve(view, points) if points else None, "quantiles": quantiles, "bits": bits}


def _curve(view: MetricView, points: Mapping[float, EstimateRecord]) -> charts.Chart:
    units = {row.unit for row in view.of_kind("mean", "quantile") if row.unit not in (None, "rank")}
    ordered = dict(sorted(points.items()))
    ends = [ends for row in ordered.values() if (ends := charted(row)[1]) is not None]
    return charts.distribution(
        f"Distribution of {view.key.metric} {formats.day(view.shown.window_start)}",
        list(ordered),
        [row.value or 0.0 for row in ordered.values()],
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
    title = f"Strings found in {view.key.metric} {formats.day(view.shown.window_start)}"
    return {
        "chart": _chart(title, first, "share", "share of reports", floor) if first else None,
        "shown": len(first),
        "found": found[:_LISTED],
        "others": [row for row in rows if not row.significant][:_LISTED],
        "number_found": len(found),
        "candidates": len(rows),
        "floor": floor,
        "confounded": any(row.confounded_with for row in found),
        "unexplained": next(iter(view.of_kind("unexplained")), None),
        "false_names": next((row.value for row in view.of_kind("false_names")), None),
    }


class Segment(NamedTuple):
    """The estimates of one segment, or of all reports together."""

    window: Window
    rows: list[EstimateRecord | None]

    @property
    def name(self) -> str:
        return self.window.segment or "all reports"


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
    # An estimate may be of fewer reports than its segment, such as one coordinate of a vector.
    names = sorted(by_segment.keys() & windows, key=lambda name: (name.count(","), name))
    found = [Segment(windows[of], [by_segment[of].get(key) for key in wanted]) for of in names]
    return {
        "segments": found,
        "names": [name_of(row) for row in view.headlines],
        "chart": _by_segment(found, view.headlines[0]) if view.headlines else None,
    }


def _by_segment(segments: Sequence[Segment], of: EstimateRecord) -> charts.Chart:
    shown = [
        (each, row)
        for each in segments[:_CHARTED]
        if (row := each.rows[0]) is not None and row.value is not None
    ]
    return charts.intervals(
        f"{name_of(of)} by segment",
        [each.name for each, _ in shown],
        [(*charted(row)[:2], f"{each.name}: {said(row)}") for each, row in shown],
        of.unit or "",
        "share of the segment's reports" if of.unit == "share" else of.unit or "value",
    )


def sharpening(view: MetricView) -> Mapping[str, object] | None:
    """Return how many reports a window has by level, and which errors each level would give."""
    counts = view.shown.reports_by_level
    if len(counts) < 2:
        return None
    predicted = _predicted(view.plan, view.metric, view.shown.reports, _share(view.headlines))
    errors = () if predicted is None else predicted.errors
    colours = charts.level_names(len(counts))
    alike = [each for each in view.windows if len(each.reports_by_level) == len(counts)]
    shown = alike[-MOST_WINDOWS:]
    return {
        "chart": None
        if len(shown) < 2
        else charts.levels(
            f"Reports of {view.key.metric} by level, window by window",
            [each.window_start for each in shown],
            [each.reports_by_level for each in shown],
            "window from",
        ),
        "levels": list(zip_longest(counts, colours, errors[: len(counts)])),
        "predicted": predicted,
        "headline": view.headlines[0] if view.headlines else None,
    }


def _share(headlines: Sequence[EstimateRecord]) -> float | None:
    """Return the first headline's share, cut to [0, 1] and rounded; None if it is no share."""
    first = next(iter(headlines), None)
    if first is None or first.kind != "share" or first.value is None:
        return None
    return round(min(max(first.value, 0.0), 1.0), 3)


class Predicted(NamedTuple):
    """Predicted standard errors by level, what they are errors of, and the data assumed."""

    errors: tuple[float, ...]
    what: str
    data: str
    unit: str


@lru_cache(maxsize=512)
def _predicted(
    of: CompiledPlan | None, metric: CompiledMetric | None, reports: int, share: float | None
) -> Predicted | None:
    """Return the standard errors of so many reports, of a share if it is given.

    None if they cannot be predicted.
    """
    if of is None or metric is None or reports < 1:
        return None
    question = question_of_metric(of, metric, Assumed(share=share))
    try:
        precisions = [question.precision(level) for level in range(question.sent)]
    except ParameterError:
        # Errors of strings depend on the candidates; those of some mechanisms are not known.
        return None
    errors = tuple(each.standard_error(reports) for each in precisions)
    unit = "share" if metric.range is None and not question.unit else question.unit
    return Predicted(errors, precisions[0].what, precisions[0].data, unit)
