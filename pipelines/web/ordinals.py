"""Figures of ordered values as people read them, made of those that are published.

A mean of ranks says little about bins, steps or ages. Pages show instead which share did something
at least once, came to the last step, or how old devices are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

from pipelines.results.records import EstimateRecord, MetricKey
from sotto.disclosure import facts
from sotto.plan.compiled import CompiledMetric

#: Items of the two estimates between which a mean lies where reports do not tell values apart.
BOUNDS = ("at least", "at most")
#: Kinds of figures that are made of published ones, and the kinds of these.
ASKED = {"beyond": "cdf", "reached": "share"}


def asked_of(metric: CompiledMetric | None) -> tuple[str, str] | None:
    """Return kind and item of the share that people ask for first; None where there is none.

    That is the share of the last step, or of numbers beyond the first bin. Missing values are in
    no bin, so that the latter would count them.
    """
    if metric is None or metric.type != "ordinal" or metric.missing:
        return None
    kind = metric.measure and metric.measure.kind
    if kind == "furthest":
        return "reached", metric.labels[-1]
    bins = metric.edges is not None and kind != "age"
    if metric.range is not None:
        bins = kind in ("count", "days") and metric.points[0] == 0 < metric.points[1] <= 1
    return ("beyond", metric.labels[0]) if bins else None


def beyond(item: str) -> str:
    """Return the name of the share of numbers beyond a bin.

    >>> beyond("0"), beyond("0 to 4")
    ('at least one', 'at least 5')
    """
    least = int(item.split()[-1]) + 1
    return "at least one" if least == 1 else f"at least {least}"


def readable(
    rows: Iterable[EstimateRecord], metric_of: Callable[[MetricKey], CompiledMetric | None]
) -> list[EstimateRecord]:
    """Return estimates with two bounds of a mean as one figure, and with the shares asked for.

    Ages are in steps of the age, not in ranks.
    """
    found = []
    for row in one_mean(rows):
        metric = metric_of(row.key)
        measure = metric and metric.measure
        if metric and measure and (measure.kind, row.kind) == ("age", "mean"):
            unit = f"× {facts.span(measure.every)}, counted to {len(metric.labels) - 1}"
            row = replace(_moved(row, -1.0), unit=unit)
        found.append(row)
        kind, item = asked_of(metric) or ("", "")
        if (row.kind, row.item) == (ASKED.get(kind), item):
            found.append(replace(row if kind == "reached" else _moved(row, 1.0, -1), kind=kind))
    return found


def steps_reached(
    rows: Iterable[EstimateRecord], metric: CompiledMetric | None
) -> list[EstimateRecord]:
    """Return which share came to each step of a funnel but the first, or further; else none.

    That is what the share up to the step before leaves, with the same interval.
    """
    kind, _ = asked_of(metric) or ("", "")
    following = dict(pairwise(metric.labels)) if metric and kind == "reached" else {}
    return [
        replace(_moved(row, 1.0, -1), kind="reached", item=following[row.item])
        for row in rows
        if row.kind == "cdf" and row.item in following
    ]


def _moved(row: EstimateRecord, offset: float, sign: int = 1) -> EstimateRecord:
    """Return the estimate of a number that exceeds this one, or its negative, by ``offset``."""
    value, shown, low, high = (
        None if each is None else offset + sign * each
        for each in (row.value, row.shown, row.low, row.high)
    )
    if sign < 0:
        low, high = high, low
        reach = row.reach and tuple((down, up) for up, down in row.reach)
        row = replace(row, forged_down=row.forged_up, forged_up=row.forged_down, reach=reach)
    return replace(row, value=value, shown=shown, low=low, high=high)


def one_mean(rows: Iterable[EstimateRecord]) -> list[EstimateRecord]:
    """Return estimates in which two bounds of a mean are one figure, as pages show it.

    Reports that do not tell some values apart leave a mean between two bounds. The figure is their
    middle; its interval begins at the lower end of one and ends at the upper end of the other.
    """
    found: list[EstimateRecord] = []
    for row in rows:
        if (row.kind, row.item) == ("mean", BOUNDS[1]) and found[-1:]:
            least = found.pop()
            row = replace(
                row,
                item="",
                value=_middle(least.value, row.value),
                shown=_middle(least.shown, row.shown),
                low=least.low,
            )
        found.append(row)
    return found


def _middle(least: float | None, most: float | None) -> float | None:
    return None if least is None or most is None else (least + most) / 2
