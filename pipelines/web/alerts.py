"""The sections of the page about alerts: figures that moved, and those that are watched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest

from mechanisms.estimators.shifts import LEARNED
from pipelines.alerts.evaluation import Judgement, smoothed
from pipelines.alerts.kept import Alert
from pipelines.alerts.watch import AlertWatch
from pipelines.web import charts, formats
from pipelines.web.views import PageView, told

#: How many alerts are listed, how many of these with a chart, and how many watched figures.
_LISTED, _CHARTED, _WATCHED = 100, 6, 300
#: How many of the newest windows a chart shows.
_WINDOWS = 60


def moved(view: PageView) -> Mapping[str, object]:
    """Return the alerts, newest first."""
    watch = view.snapshot.watch
    last = watch and watch.last
    judgements, kept = (last.judgements, last.kept) if last else ((), ())
    figures = {each.series.figure: each for each in judgements}
    alerts = kept[::-1][:_LISTED]
    drawn = [figures.get(alert.figure) for alert in alerts[:_CHARTED]]
    shown = [None if judgement is None else _chart(judgement) for judgement in drawn]
    return {
        "watch": watch,
        "rows": list(zip_longest(alerts, shown)),
        "total": len(kept),
        "judged": any(each.found.judged for each in judgements),
        "learned": LEARNED,
    }


def standing(watch: AlertWatch | None) -> list[Alert]:
    """Return the alerts that were sent and that the results still show, newest first."""
    kept = watch.last.kept if watch and watch.last else ()
    return [each for each in kept[::-1] if each.news and each.standing]


def watched(view: PageView) -> Mapping[str, object] | None:
    """Return the figures that are watched, with what is expected of their next windows."""
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
    """Return a chart of a figure's windows, raw and smoothed."""
    series, line = judgement.series, smoothed(judgement)
    if line is None:
        return None
    first = max(0, len(series.values) - _WINDOWS)
    starts = [series.start(at) for at in range(first, len(series.values))]
    seen, reaches = series.values[first:], 1.96 * series.errors[first:]
    points = zip(
        starts, *(each.tolist() for each in (seen, seen - reaches, seen + reaches)), strict=True
    )
    values = [
        (None, None, "")
        if math.isnan(figures[0])
        else told(f"from {formats.day(at)}", figures, series.unit, "95 %")
        for at, *figures in points
    ]
    shown = replace(line, values=line.values[first:], errors=line.errors[first:])
    name, unit = series.figure.name, series.unit or ""
    windows = charts.Line(name, starts, values, [False] * len(starts), shown)
    moved = (each.onset for each in judgement.found.shifts if each.onset >= first)
    marks = [charts.Mark(series.start(at), number, "moved") for number, at in enumerate(moved, 1)]
    title = f"{name}, window by window, raw and smoothed"
    panel = charts.SeriesPanel(name, unit, [windows])
    return charts.series(title, [panel], "window from", marks)
