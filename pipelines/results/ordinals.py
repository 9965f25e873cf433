"""Figures of ordered values as people read them, computed from those that are published.

A mean of ranks says little about bins, steps or ages. Pages show instead which share did something
at least once, came to the last step, or how old devices are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from pipelines.results.records import EstimateRecord, MetricKey, RangeComparison, RangeEstimate
from sotto.disclosure import facts
from sotto.plan.compiled import CompiledMetric, CompiledPlan

_Row = TypeVar("_Row", bound=EstimateRecord | RangeEstimate | RangeComparison)
#: Returns a metric, if its plan is known.
_MetricOf: TypeAlias = Callable[[MetricKey], CompiledMetric | None]
#: Items of the two estimates between which a mean lies where reports do not tell values apart.
BOUNDS = ("at least", "at most")
#: Kinds of figures that are computed here, each with the published kind that it is made from.
ASKED = {"beyond": "cdf", "reached": "share"}


def asked_of(metric: CompiledMetric | None) -> tuple[str, str] | None:
    """Return kind and item of the share that people ask for first; None if there is none.

    It is the share that reached the last step, or of numbers beyond the first bin. A metric whose
    values can be missing has none: those are in no bin, so the share beyond one would count them.
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


def metrics_of(plans: Iterable[CompiledPlan]) -> dict[MetricKey, CompiledMetric]:
    """Return the metrics of plans by their names in results."""
    return {
        MetricKey(plan.collector, plan.plan, plan.version, metric.name): metric
        for plan in plans
        for metric in plan.metrics
    }


def readable(rows: Iterable[_Row], metric_of: _MetricOf) -> list[_Row]:
    """Return estimates as people read them: two bounds of a mean are one figure (:func:`one_mean`).

    The share of :func:`asked_of` is added after the figure that it is computed from. A mean age is
    in steps of the age, not in ranks.
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
    """Return the share that reached each step of a funnel but the first; none of other metrics.

    It is 1 less the share that came no further than the step before, whose interval it mirrors.
    """
    kind, _ = asked_of(metric) or ("", "")
    following = dict(pairwise(metric.labels)) if metric and kind == "reached" else {}
    return [
        replace(_moved(row, 1.0, -1), kind="reached", item=following[row.item])
        for row in rows
        if row.kind == "cdf" and row.item in following
    ]


def of_range(rows: Iterable[_Row], metric_of: _MetricOf) -> list[_Row]:
    """Return :func:`readable` figures of a range, or of a comparison, without superfluous ones.

    A mean rank is left out beside the share of :func:`asked_of`, and the most likely share of a
    value (kind ``share``) beside its unbiased one (``group``).
    """
    found = readable(rows, metric_of)
    asked = {(row.key, row.segment) for row in found if row.kind in ASKED}
    left = [row for row in found if row.unit != "rank" or (row.key, row.segment) not in asked]
    own = {("share", row.key, row.segment, row.item) for row in left if row.kind == "group"}
    return [row for row in left if (row.kind, row.key, row.segment, row.item) not in own]


def _moved(row: _Row, offset: float, sign: int = 1) -> _Row:
    """Return the estimate of a number that exceeds this one, or its negative, by ``offset``."""
    ends = "low", "high", "under_low", "under_high"
    moved = dict.fromkeys(("value", "shown", "against", *ends), offset)
    if isinstance(row, RangeComparison):
        moved |= dict.fromkeys(("difference", *ends), 0.0)
    found: dict[str, Any] = {
        name: None if (each := getattr(row, name)) is None else by + sign * each
        for name, by in moved.items()
        if hasattr(row, name)
    }
    if sign < 0:
        found["low"], found["high"] = found["high"], found["low"]
        found["forged_down"], found["forged_up"] = row.forged_up, row.forged_down
    if sign < 0 and isinstance(row, EstimateRecord):
        found["reach"] = row.reach and tuple((down, up) for up, down in row.reach)
    elif sign < 0:
        found["under_low"], found["under_high"] = found["under_high"], found["under_low"]
    return replace(row, **found)


def one_mean(rows: Iterable[_Row]) -> list[_Row]:
    """Return estimates in which two bounds of a mean are one figure, as people read it.

    Reports that do not tell some values apart leave a mean between two bounds. The figure is the
    middle of the two; its interval begins at the lower end of the first bound's and ends at the
    upper end of the second's. Rows of a comparison stay two, since differences of bounds are no
    bounds of a difference.
    """
    found: list[_Row] = []
    for row in rows:
        is_bound = (row.kind, row.item) == ("mean", BOUNDS[1])
        if is_bound and found and not isinstance(row, RangeComparison):
            row = _middle(found.pop(), row)
        found.append(row)
    return found


def _middle(least: _Row, most: _Row) -> _Row:
    changed: dict[str, Any] = {"item": "", "low": least.low}
    for name in ("value", "shown", "forged_down", "forged_up"):
        if hasattr(most, name):
            low, high = getattr(least, name), getattr(most, name)
            changed[name] = None if None in (low, high) else (low + high) / 2
    if isinstance(least, EstimateRecord) and isinstance(most, EstimateRecord):
        # A forged report that raised the lower bound widens the interval downwards; one that
        # lowered the upper bound widens it upwards.
        known = zip(least.reach or (), most.reach or (), strict=False)
        changed["reach"] = tuple((up, down) for (up, _), (_, down) in known) or None
    elif isinstance(least, RangeEstimate):
        changed["under_low"] = least.under_low
    return replace(most, **changed)
