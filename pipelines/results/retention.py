"""Retention: what part of the devices that were new in one window came again in later ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from operator import attrgetter

from mechanisms.estimate import Estimate
from mechanisms.estimators.ratios import retention
from pipelines.results.records import EstimateRecord, MetricKey, RetentionRate
from sotto.plan.compiled import CompiledMetric, CompiledPlan


def retention_of(
    plans: Iterable[CompiledPlan], rows: Sequence[EstimateRecord]
) -> Iterator[RetentionRate]:
    """Yield the retention of all metrics with ages, where a window is as long as a step of age.

    The last age is open, and so has no retention.
    """
    metrics = {
        MetricKey(plan.collector, plan.plan, plan.version, metric.name): metric
        for plan in plans
        for metric in plan.measured
        if metric.measure is not None and metric.measure.kind == "age"
        if metric.measure.every == metric.window
    }
    found: dict[tuple[MetricKey, str], list[EstimateRecord]] = {}
    for row in rows:
        if row.kind == "share" and row.key in metrics:
            found.setdefault((row.key, row.segment), []).append(row)
    for (key, _), of_segment in sorted(found.items()):
        yield from _of_metric(metrics[key], of_segment)


def _of_metric(metric: CompiledMetric, rows: Sequence[EstimateRecord]) -> Iterator[RetentionRate]:
    step = timedelta(milliseconds=metric.window)
    shares = {(row.window_start, row.item): row for row in rows if row.standard_error is not None}
    for then in sorted(shares.values(), key=attrgetter("window_start")):
        for age in range(1, len(metric.labels) - 1) if then.item == metric.labels[0] else ():
            now = shares.get((then.window_start + age * step, metric.labels[age]))
            if now is not None:
                rate = retention(_estimate(now), _estimate(then), metric.panel)
                known = rate.region is not None
                low, high = rate.interval() if known else (None, None)
                yield RetentionRate(
                    *then.key,
                    segment=then.segment,
                    since=then.window_start,
                    age=age,
                    value=rate.value if known else None,
                    low=low,
                    high=high,
                    standard_error=rate.standard_error if known else None,
                    reports=now.reports,
                )


def _estimate(row: EstimateRecord) -> Estimate:
    value, error = row.value, row.standard_error
    assert value is not None
    assert error is not None
    return Estimate(value, error, row.reports, tuple(row.reports_by_level))
