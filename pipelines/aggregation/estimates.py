"""All that the counts of a window tell about a metric, by its type; the formulas are elsewhere.

Kinds of estimate: ``share`` of a category, point, answer or item; ``mean``, ``missing``,
``quantile``, ``cdf`` and ``bit`` of a number; ``group``, ``mean`` and ``cdf`` of an ordinal metric;
``mean`` of each coordinate of a vector; ``string``, ``missing`` and ``unexplained`` of a string
metric. ``display`` is the Norm-Sub value of what sums to one: it stands beside the estimate, and
the interval does not belong to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt

from mechanisms.estimate import Estimate
from mechanisms.items import Item
from pipelines.aggregation.counts import Matrix
from sotto.plan.compiled import CompiledMetric, CompiledPlan


def estimate(
    metric: CompiledMetric, counts: Matrix, candidates: Sequence[str], least: int = 1
) -> Iterator[Item]:
    """Yield all that the counts of a window tell about a metric; at least one item.

    ``candidates``: for a string metric. ``least``: the plan's ``minimum_reports``: no stratum of a
    number's reports is expected to have fewer.
    """
    return metric.mechanism.estimate(counts, metric.context(candidates, least))


def reports_by_level(metric: CompiledMetric, counts: Matrix, items: Sequence[Item]) -> list[int]:
    """Return how many reports of each level the counts of a window are of."""
    return metric.mechanism.reports_by_level(counts, items)


def design_effect(plan: CompiledPlan, metric: CompiledMetric) -> float:
    """Return by what factor the variance of an estimate of a metric is larger, at most.

    Returns float: ``1 + (k - 1) r`` for a constant metric, k being the most periods that a window
    has a part of, and r the part of a report's noise that is the permanent response's; 1 for
    others.

    Notes
    -----
    A report's contribution has, given the permanent response, that one's contribution as its
    mean. So r is the ratio of their variances, and 1 where that is not known.

    References
    ----------
    L. Kish, "Survey Sampling", Wiley 1965, section 5.4 (clusters of equal size).
    """
    if metric.kind != "constant" or (periods := plan.periods_in(metric)) == 1:
        return 1.0
    return 1 + (periods - 1) * _shared(metric)


def _shared(metric: CompiledMetric) -> float:
    """Return the part of the noise of the last level that is sent that all reports share."""
    if metric.type not in ("category", "boolean", "survey"):
        return 1.0
    return metric.mechanism.shared_noise(metric.sent)


def widened(estimate: Estimate, effect: float) -> Estimate:
    """Return an estimate whose variance is so many times larger, with a normal interval."""
    if effect == 1:
        return estimate
    floor = estimate.detection_floor
    return replace(
        estimate,
        standard_error=estimate.standard_error * sqrt(effect),
        detection_floor=None if floor is None else floor * sqrt(effect),
        region=None,
    )
