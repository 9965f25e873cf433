"""Retention: what part of the devices that were new in a window came again in later ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from mechanisms.estimate import Estimate
from mechanisms.estimators.ratios import covariance_of_numbers, retention
from pipelines.results.fields import grouped
from pipelines.results.ordinals import metrics_of
from pipelines.results.records import EstimateRecord, MetricKey, RetentionRate, Window
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: Reports of a window or of a segment of it, by its start and the segment; estimates of which a
#: level is withheld are made of fewer.
Arrived: TypeAlias = Mapping[tuple[datetime, str], int]


def retention_of(
    plans: Iterable[CompiledPlan], rows: Sequence[EstimateRecord], windows: Iterable[Window]
) -> Iterator[RetentionRate]:
    """Yield the retention of all metrics with ages, window by window.

    ``windows``: those of the rows. Reports of a level that is withheld are taken to be like others.
    """
    metrics = metrics_of(plans)
    arrived: dict[MetricKey, dict[tuple[datetime, str], int]] = defaultdict(dict)
    for each in windows:
        arrived[each.key][each.window_start, each.segment] = each.reports
    found = grouped((row for row in rows if row.key in metrics), lambda row: (row.key, row.segment))
    for (key, segment), of_segment in sorted(found.items()):
        for age, (now,), (then,) in _cohorts(metrics[key], of_segment):
            both = _of_arrived([now, then], arrived[key])
            rate = retention(both[:1], both[1:], metrics[key].panel)
            low, high, error = ends_of(rate)
            yield RetentionRate(
                *key,
                segment=segment,
                since=then.window_start,
                age=age,
                value=None if error is None else rate.value,
                low=low,
                high=high,
                standard_error=error,
                reports=now.reports,
            )


def pooled_retention(
    metric: CompiledMetric, rows: Iterable[EstimateRecord], arrived: Arrived
) -> Iterator[tuple[int, Estimate, int]]:
    """Yield ages, the retention of all windows together, and how many of them it is made of.

    ``rows``: estimates of windows, or of segments that have no reports in common. Devices count
    that were new in one of the windows, where the one that is so much later is there as well.
    Reports of a level that is withheld are taken to be like others.
    """
    pairs = metric.mechanism.pairs()
    sides: dict[int, tuple[list[EstimateRecord], list[EstimateRecord]]] = {}
    for age, came, were_new in _cohorts(metric, rows):
        now, then = sides.setdefault(age, ([], []))
        now += came
        then += were_new
    for age, (now, then) in sides.items():
        # A window can be on both sides, and then its reports are.
        new = {(row.window_start, row.segment): estimate_of(row).value for row in then}
        shared = sum(
            covariance_of_numbers(estimate_of(row).value + new[at], row.reports_by_level, pairs)
            * (arrived.get(at, row.reports) / row.reports) ** 2
            for row in now
            if (at := (row.window_start, row.segment)) in new
        )
        estimates = _of_arrived(now, arrived), _of_arrived(then, arrived)
        windows = len({row.window_start for row in (*now, *then)})
        yield age, retention(*estimates, metric.panel, shared), windows


def _cohorts(
    metric: CompiledMetric, rows: Iterable[EstimateRecord]
) -> Iterator[tuple[int, list[EstimateRecord], list[EstimateRecord]]]:
    """Yield ages, the shares of those who came at it, and of those who were new so long before.

    In order of the windows in which they were new; only of windows as long as a step of age. The
    last age is open, and so has no retention.
    """
    measure, step = metric.measure, timedelta(milliseconds=metric.window)
    if measure is None or (measure.kind, measure.every) != ("age", metric.window):
        return
    shares: dict[tuple[datetime, str], list[EstimateRecord]] = defaultdict(list)
    for row in rows:
        if row.kind == "share" and row.standard_error is not None:
            shares[row.window_start, row.item].append(row)
    for start in sorted({start for start, _ in shares}):
        for age, label in [*enumerate(metric.labels)][1:-1]:
            now = shares.get((start + age * step, label))
            then = shares.get((start, metric.labels[0]))
            if now and then:
                yield age, now, then


def _of_arrived(rows: Iterable[EstimateRecord], arrived: Arrived) -> list[Estimate]:
    """Return the estimates of rows as those of all reports that have arrived."""
    return [
        replace(estimate_of(row), n=arrived.get((row.window_start, row.segment), row.reports))
        for row in rows
    ]


def estimate_of(row: EstimateRecord) -> Estimate:
    """Return the estimate of a row, with a normal interval; NaN and infinite where none is."""
    value = math.nan if row.value is None else row.value
    error = math.inf if row.standard_error is None else row.standard_error
    return Estimate(value, error, row.reports, row.reports_by_level)


def ends_of(found: Estimate) -> tuple[float | None, float | None, float | None]:
    """Return the interval and the standard error of an estimate, if it has any."""
    if not math.isfinite(found.standard_error):
        return None, None, None
    return *found.interval(), found.standard_error
