"""The sections of the page about alerts: figures that moved, and those that are watched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from mechanisms.estimators.shifts import LEARNED
from pipelines.alerts.evaluation import Judgement, smoothed
from pipelines.alerts.kept import Alert
from pipelines.alerts.watch import AlertWatch
from pipelines.web import charts, formats
from pipelines.web.views import PageView

#: Alerts that are listed, and how many of them with a chart; figures that are listed.
_LISTED, _CHARTED, _WATCHED = 100, 6, 300
#: Windows that a chart shows, the newest ones.
_WINDOWS = 60


def moved(view: PageView) -> Mapping[str, object]:
    """Return the alerts, newest first."""
    watch = view.snapshot.watch
    last = None if watch is None else watch.last
    if last is None:
        return {"watch": watch, "rows": [], "total": 0, "judged": False, "learned": LEARNED}
    figures = {each.series.figure: each for each in last.judgements}
    alerts = last.kept[::-1][:_LISTED]
    drawn = {alert.id: figures.get(alert.figure) for alert in alerts[:_CHARTED]}
    rows = [
        (alert, None if (judgement := drawn.get(alert.id)) is None else _chart(judgement))
        for alert in alerts
    ]
    return {
        "watch": watch,
        "rows": rows,
        "total": len(last.kept),
        "judged": any(each.found.judged for each in last.judgements),
        "learned": LEARNED,
    }


def standing(watch: AlertWatch | None) -> list[Alert]:
    """Return the alerts that were sent and that the results still show, newest first."""
    if watch is None or watch.last is None:
        return []
    return [each for each in watch.last.kept[::-1] if each.news and each.standing]


def watched(view: PageView) -> Mapping[str, object] | None:
    """Return what is watched, and what is expected of the next window."""
    watch = view.snapshot.watch
    if watch is None or watch.last is None or not watch.last.judgements:
        return None
    judgements = watch.last.judgements
    return {
        "rows": judgements[:_WATCHED],
        "total": len(judgements),
        "rate": watch.configuration.false_alarms_per_year,
        "years": min(each.years for each in judgements),
    }


@lru_cache(maxsize=64)
def _chart(judgement: Judgement) -> charts.Chart | None:
    """Return a figure's windows, raw and smoothed; kept by identity."""
    series, line = judgement.series, smoothed(judgement)
    if line is None:
        return None
    first = max(0, len(series.values) - _WINDOWS)
    starts = [series.start(at) for at in range(first, len(series.values))]
    reaches = 1.96 * series.errors[first:]
    points = zip(starts, series.values[first:].tolist(), reaches, strict=True)
    values = [_in_window(*point, series.unit) for point in points]
    shown = replace(line, values=line.values[first:], errors=line.errors[first:])
    name, unit = series.figure.name, series.unit or ""
    windows = charts.Line(name, starts, values, [False] * len(starts), shown)
    moved = [shift for shift in judgement.found.shifts if shift.onset >= first]
    marks = [
        charts.Mark(series.start(each.onset), number, "moved")
        for number, each in enumerate(moved, 1)
    ]
    title = f"{name}, window by window, raw and smoothed"
    panel = charts.SeriesPanel(name, unit, [windows])
    return charts.series(title, [panel], "window from", marks)


def _in_window(start: datetime, value: float, reach: float, unit: str | None) -> charts.Value:
    if math.isnan(value):
        return (None, None, "")
    ends = (value - reach, value + reach)
    told = f"{formats.quantity(value, unit)}, 95 % {formats.interval(*ends, unit)}"
    return (value, ends, f"from {formats.day(start)}: {told}")
