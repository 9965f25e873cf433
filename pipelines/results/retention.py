"""Retention: what part of the devices that were new in a window came again in later ones.

It is the share of reports of an age in one window, over the share of new devices (age 0) in the
window so much earlier; only metrics with the measure ``age`` have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from mechanisms.estimate import Estimate, half_step
from mechanisms.estimators.ratios import covariance_of_numbers, retention
from pipelines.aggregation.comparison import Ends
from pipelines.results.fields import grouped
from pipelines.results.ordinals import metrics_of
from pipelines.results.records import EstimateRecord, MetricKey, RetentionRate, Window
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: How many reports windows and their segments have, by metric, start and segment. An estimate of
#: which a level is withheld is made of fewer.
Arrived: TypeAlias = Mapping[tuple[MetricKey, datetime, str], int]


def retention_of(
    plans: Iterable[CompiledPlan], rows: Sequence[EstimateRecord], windows: Iterable[Window]
) -> Iterator[RetentionRate]:
    """Yield the retention of all metrics with ages, window by window.

    ``windows``: those of the rows. If a level is withheld, the reports that are seen are taken to
    be drawn from all at random; the interval covers that.
    """
    metrics, arrived = metrics_of(plans), arrived_of(windows)
    found = grouped((row for row in rows if row.key in metrics), lambda row: (row.key, row.segment))
    for (key, segment), of_segment in sorted(found.items()):
        for age, (now,), (then,) in _cohorts(metrics[key], of_segment):
            both = _of_arrived(now, arrived), _of_arrived(then, arrived)
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
    """Yield each age with the retention of all windows together and the number of these windows.

    ``rows``: estimates of windows, or of segments that have no reports in common. A device counts
    if it was new in a window and the rows have the window that is so much later, too. Withheld
    levels are treated as by :func:`retention_of`.
    """
    pairs = metric.mechanism.pairs()
    sides: dict[int, tuple[list[EstimateRecord], list[EstimateRecord]]] = {}
    for age, came, were_new in _cohorts(metric, rows):
        now, then = sides.setdefault(age, ([], []))
        now += came
        then += were_new
    for age, (now, then) in sides.items():
        # A window can be on both sides, some of its devices new and others back: then both sides
        # share its reports.
        new = {(row.window_start, row.segment): estimate_of(row).value for row in then}
        shared = 0.0
        for row in now:
            if (at := (row.window_start, row.segment)) in new:
                share, more = estimate_of(row).value, _of_arrived(row, arrived).n / row.reports
                noise = covariance_of_numbers(share + new[at], row.reports_by_level, pairs)
                chance = max(share * new[at], 0.0) * row.reports * max(more - 1, 0.0)
                shared += noise * more**2 - chance * more
        estimates = [[_of_arrived(row, arrived) for row in side] for side in (now, then)]
        windows = len({row.window_start for row in (*now, *then)})
        yield age, retention(estimates[0], estimates[1], metric.panel, shared), windows


def _cohorts(
    metric: CompiledMetric, rows: Iterable[EstimateRecord]
) -> Iterator[tuple[int, list[EstimateRecord], list[EstimateRecord]]]:
    """Yield an age, the rows with its share, and those with the share that was new so long before.

    They are in order of the windows in which devices were new; only windows as long as a step of
    the age have them. The last age has no upper end, and so no retention.
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


def arrived_of(windows: Iterable[Window]) -> Arrived:
    """Return the numbers of reports of windows and segments."""
    return {(each.key, each.window_start, each.segment): each.reports for each in windows}


def _of_arrived(row: EstimateRecord, arrived: Arrived) -> Estimate:
    """Return the estimate of a row as that of all reports that have arrived.

    Which reports are missing from the row is taken to be chance, which the error then covers.
    """
    found = estimate_of(row)
    n = arrived.get((row.key, row.window_start, row.segment), row.reports)
    share = min(max(found.value, 0.0), 1.0)
    left_out = share * (1 - share) * max(1 / row.reports - 1 / max(n, 1), 0.0)
    return replace(found, n=n, standard_error=math.hypot(found.standard_error, left_out**0.5))


def estimate_of(row: EstimateRecord, limit: int = 1) -> Estimate:
    """Return the estimate of a row with its interval of 95 %; NaN ± infinity if the row has none.

    ``limit``: the most reports that a pseudonym has in the window. The least and the largest score
    of a report are computed from it and from ``forged_down`` and ``forged_up``.
    """
    value = math.nan if row.value is None else row.value
    error = math.inf if row.standard_error is None else row.standard_error
    region = None if row.low is None or row.high is None else Ends(row.low, row.high)
    made = Estimate(value, error, row.reports, row.reports_by_level, region=region, reach=row.reach)
    if row.forged_down is None or row.forged_up is None:
        return made
    one = (row.reports + 1) / limit
    made = replace(made, scores=(value - one * row.forged_down, value + one * row.forged_up))
    return replace(made, half=half_step([made], (row.reports * error) ** 2))


def ends_of(found: Estimate) -> tuple[float | None, float | None, float | None]:
    """Return the interval and the standard error of an estimate, if it has any."""
    if not math.isfinite(found.standard_error):
        return None, None, None
    return *found.interval(), found.standard_error
