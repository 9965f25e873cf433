"""Retention: what part of the devices that were new in a window came again in later ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from mechanisms.estimate import Estimate
from mechanisms.estimators.ratios import covariance_of_numbers, retention
from pipelines.results.grouping import grouped
from pipelines.results.ordinals import metrics_of
from pipelines.results.records import EstimateRecord, RetentionRate
from sotto.plan.compiled import CompiledMetric, CompiledPlan


def retention_of(
    plans: Iterable[CompiledPlan], rows: Sequence[EstimateRecord]
) -> Iterator[RetentionRate]:
    """Yield the retention of all metrics with ages, window by window."""
    metrics = metrics_of(plans)
    known = (row for row in rows if row.key in metrics)
    found = grouped(known, lambda row: (row.key, row.segment))
    for (key, segment), of_segment in sorted(found.items()):
        for age, (now,), (then,) in _cohorts(metrics[key], of_segment):
            rate = retention([estimate_of(now)], [estimate_of(then)], metrics[key].panel)
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
    metric: CompiledMetric, rows: Iterable[EstimateRecord]
) -> Iterator[tuple[int, Estimate, int]]:
    """Yield ages, the retention of all windows together, and how many of them it is made of.

    ``rows``: estimates of windows, or of segments that have no reports in common. Devices count
    that were new in one of the windows, where the one that is so much later is there as well.
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
            for row in now
            if (at := (row.window_start, row.segment)) in new
        )
        estimates = [*map(estimate_of, now)], [*map(estimate_of, then)]
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
    known = (row for row in rows if row.kind == "share" and row.standard_error is not None)
    shares = grouped(known, lambda row: (row.window_start, row.item))
    for start in sorted({start for start, _ in shares}):
        for age, label in [*enumerate(metric.labels)][1:-1]:
            now = shares.get((start + age * step, label))
            then = shares.get((start, metric.labels[0]))
            if now and then:
                yield age, now, then


def estimate_of(row: EstimateRecord, limit: int = 1) -> Estimate:
    """Return the estimate of a row, with a normal interval; NaN and infinite where none is.

    A pseudonym can have ``limit`` reports in the window, whose scores follow from what is stated.
    """
    value = math.nan if row.value is None else row.value
    error = math.inf if row.standard_error is None else row.standard_error
    found = Estimate(value, error, row.reports, row.reports_by_level, reach=row.reach)
    if row.forged_down is None or row.forged_up is None:
        return found
    one = (row.reports + 1) / limit
    return replace(found, scores=(value - one * row.forged_down, value + one * row.forged_up))


def ends_of(found: Estimate) -> tuple[float | None, float | None, float | None]:
    """Return the interval and the standard error of an estimate, if it has any."""
    if not math.isfinite(found.standard_error):
        return None, None, None
    return *found.interval(), found.standard_error
