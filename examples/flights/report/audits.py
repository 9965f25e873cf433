"""The report's figures of checks: error by rung, coverage, scores, ledgers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..findings import Coverage, LedgerPeriod, MetricErrors
from .figures import DAY, date, padded
from .svg import Chart, percent, plain


def rung_errors(errors: MetricErrors, width: float = 340) -> str:
    """Error of one metric at each rung: dots are observed, strokes predicted."""
    top = max(max(rung.high, rung.predicted) for rung in errors.rungs)
    reach = (-0.5, len(errors.rungs) - 0.5)
    chart = Chart(reach, (0, top * 1.08), width=width, height=250, left=52, bottom=28)
    unit = " points" if errors.unit == "" else f" {errors.unit}"
    scale = 100 if errors.unit == "" else 1
    chart.axis_y(lambda value: plain(value * scale), f"error{',' + unit}", about=4)
    for place, rung in enumerate(errors.rungs):
        title = (
            f"epsilon {rung.epsilon:g}: observed {plain(rung.observed * scale)}{unit}, "
            f"predicted {plain(rung.predicted * scale)}{unit}"
        )
        chart.interval(place, rung.low, rung.high, f"interval rung-line{place}", title)
        chart.dot(place, rung.observed, f"rung{place}", 5, title)
        chart.dash_mark(place, rung.predicted, "truth", 14, title)
    epsilons = [rung.epsilon for rung in errors.rungs]
    chart.axis_x(
        lambda place: f"ε {epsilons[int(place)]:g}", "", ticks=list(range(len(errors.rungs)))
    )
    return chart.svg(f"Error of {errors.label} at each rung beside the predicted error")


def coverage(checks: Sequence[Coverage], width: float = 520) -> str:
    """Share of intervals that hold the truth, beside what chance allows."""
    rates = [edge / check.total for check in checks for edge in (check.least, check.hits)]
    pitch = 30.0
    chart = Chart(
        (max(0.0, min(*rates, 0.9) - 0.02), 1.0),
        (len(checks) - 0.5, -0.5),
        width=width,
        height=pitch * len(checks) + 58,
        left=190,
        right=30,
        bottom=42,
        top=10,
    )
    chart.axis_x(percent, "intervals that hold the truth", grid=True, about=5)
    chart.rule_x(0.95, "floor")
    for line, check in enumerate(checks):
        title = (
            f"{check.label}: {check.hits:,} of {check.total:,}; by chance {check.least:,} "
            f"to {check.most:,}"
        )
        chart.label(182, chart.y(line) + 4, f"{check.label} ({check.total:,})", "name", "end")
        chart.span(line, check.least / check.total, check.most / check.total, "allowed", title)
        style = "estimate" if check.inside else "estimate out"
        chart.dot(check.hits / check.total, line, style, 4.5, title)
    return chart.svg("Interval coverage of each kind of estimate beside 95 percent")


def scores(values: Sequence[float], width: float = 520) -> str:
    """Errors in units of their standard error, beside the normal curve."""
    edge, step = 4.0, 0.25
    cells = int(2 * edge / step)
    counts = [0] * cells
    for value in values:
        counts[min(cells - 1, max(0, int((value + edge) / step)))] += 1
    total = max(1, len(values)) * step
    peak = max(max(counts) / total, 0.4)
    chart = Chart((-edge, edge), (0, peak * 1.06), width=width, height=300, top=16)
    for cell, count in enumerate(counts):
        left = -edge + cell * step
        title = f"{left:g} to {left + step:g} standard errors: {count:,} estimates"
        chart.bar(left, left + step, count / total, "bar", title)
    grid = [-edge + i * 0.05 for i in range(int(2 * edge / 0.05) + 1)]
    chart.line([(z, math.exp(-z * z / 2) / math.sqrt(2 * math.pi)) for z in grid], "truth-curve")
    chart.axis_x(plain, "error, in standard errors", about=8)
    return chart.svg("Histogram of standardized errors with the standard normal curve")


def relaxed_over_fresh(errors: Sequence[MetricErrors], width: float = 340) -> str:
    """Squared error of the last rung over that of fresh answers, one line a metric."""
    edges = [edge for one in errors for edge in (one.low, one.high, one.ratio)]
    edges += [0.7, 1.3]
    chart = Chart(
        padded(edges), (len(errors) - 0.4, -0.6), width=width, height=250, left=84, right=52, top=16
    )
    chart.axis_x(plain, "squared error, relaxed / fresh", grid=True, about=3)
    chart.rule_x(1.0, "floor")
    for line, one in enumerate(errors):
        title = f"{one.label}: {one.ratio:.3f}; one fresh set gives {one.low:.3f} to {one.high:.3f}"
        chart.label(76, chart.y(line) + 4, one.label, "name", "end")
        chart.span(line, one.low, one.high, "allowed", title)
        inside = one.low <= one.ratio <= one.high
        chart.dot(one.ratio, line, "estimate" if inside else "estimate out", 4.5, title)
        chart.label(width - 46, chart.y(line) + 4, f"{one.ratio:.2f}", "name")
    return chart.svg("Squared error of the last rung over that of fresh answers")


def ledger(periods: Sequence[LedgerPeriod], width: float = 1080) -> str:
    """What the aggregator counted each week, over what devices spent beyond that."""
    days = [period.start / DAY for period in periods]
    most = max(period.spent for period in periods) / 1e6
    reach = (days[0] - 2, days[-1] + 9)
    chart = Chart(reach, (0, most * 1.08), width=width, height=400, left=60, bottom=196)
    chart.axis_y(plain, "counted by the aggregator: epsilon a week, summed over the aircraft", 4)
    gaps = [(period.spent - period.counted) / 1e6 for period in periods]
    below = Chart(
        reach, (0, max(*gaps, 1.0) * 1.15), width=width, height=400, left=60, top=268, bottom=44
    )
    below.axis_y(plain, "spent by aircraft, minus counted", 3)
    for day, period, gap in zip(days, periods, gaps, strict=True):
        title = (
            f"week of {date(period.start)}: {period.pseudonyms:,} pseudonyms spent "
            f"{period.spent / 1e6:,.3f}, counted {period.counted / 1e6:,.3f}, withheld from "
            f"revoked ones {period.withheld / 1e6:,.3f}"
        )
        chart.bar(day, day + 7, period.counted / 1e6, "bar", title)
        if gap:
            below.bar(day, day + 7, gap, "bar out", title)
            below.label(below.x(day + 3.5), below.y(gap) - 4, plain(gap), "note", "middle")
        else:
            below.dot(day + 3.5, 0.0, "estimate", 3, title)
    below.axis_x(
        lambda day: date(int(day) * DAY), "week from", ticks=days[:: max(1, len(days) // 10)]
    )
    for mark in below.marks:
        chart.add(mark)
    return chart.svg("Budget counted by the aggregator, and what devices spent beyond it")


def lifetimes(values: Sequence[float], ceiling: float, width: float = 520) -> str:
    """How much each aircraft spent in the year, beside the lifetime ceiling."""
    step, cells = 40.0, math.ceil(ceiling / 40)
    counts = [0] * cells
    for value in values:
        counts[min(cells - 1, int(value / step))] += 1
    chart = Chart((0, ceiling * 1.04), (0, padded(counts)[1]), width=width, height=260)
    chart.axis_y(plain, "aircraft")
    for cell, count in enumerate(counts):
        title = f"{cell * step:g} to {(cell + 1) * step:g}: {count:,} aircraft"
        chart.bar(cell * step, (cell + 1) * step, count, "bar", title)
    chart.rule_x(ceiling, "floor")
    chart.label(chart.x(ceiling) - 6, chart.top + 10, "lifetime ceiling", "note", "end")
    chart.axis_x(plain, "epsilon spent in the year")
    return chart.svg("Histogram of the budget that each aircraft spent in the year")
