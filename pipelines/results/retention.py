"""Retention: what part of the devices that were new in one window came again in later ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from mechanisms.estimate import Estimate
from mechanisms.estimators.ratios import retention
from pipelines.results.range_windows import MetricKey, key_of
from pipelines.results.records import EstimateRecord
from sotto.plan.compiled import CompiledMetric, CompiledPlan


@dataclass(frozen=True)
class RetentionRate:
    """The part of the devices that were new from ``since`` on that came at an age, in one window.

    ``age`` counts how often the plan's ``every`` of the measure has passed since. ``n`` are the
    reports of the later window; ``value`` and what follows are None where the new devices cannot be
    told from none. The interval of 95 % is Fieller's, and with panels covers which devices had
    their turn.
    """

    key: MetricKey
    segment: str
    since: datetime
    age: int
    n: int
    value: float | None
    standard_error: float | None
    low: float | None
    high: float | None

    def row(self) -> dict[str, object]:
        """Return the fields by name, for files."""
        names = ("collector", "plan", "version", "metric")
        named = dict(zip(names, self.key, strict=True))
        fields = {name: value for name, value in vars(self).items() if name != "key"}
        return {**named, **fields, "since": self.since.isoformat()}


def retention_of(
    plans: Iterable[CompiledPlan], rows: Sequence[EstimateRecord]
) -> Iterator[RetentionRate]:
    """Yield the retention of all metrics with ages, where a window is as long as a step of age.

    The last age is open, and so has no retention.
    """
    metrics = {
        (plan.collector, plan.plan, plan.version, metric.name): metric
        for plan in plans
        for metric in plan.measured
        if metric.measure is not None and metric.measure.kind == "age"
        if metric.measure.every == metric.window
    }
    found: dict[tuple[MetricKey, str], list[EstimateRecord]] = {}
    for row in rows:
        if row.kind == "share" and key_of(row) in metrics:
            found.setdefault((key_of(row), row.segment), []).append(row)
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
                ends = rate.interval() if known else (None, None)
                of_rate = (rate.value, rate.standard_error) if known else (None, None)
                place = key_of(then), then.segment, then.window_start
                yield RetentionRate(*place, age, now.reports, *of_rate, *ends)


def _estimate(row: EstimateRecord) -> Estimate:
    value, error = row.value, row.standard_error
    assert value is not None
    assert error is not None
    return Estimate(value, error, row.reports, tuple(row.reports_by_level))
