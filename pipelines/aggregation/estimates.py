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

from mechanisms.category.oracle import share_items
from mechanisms.estimate import Estimate
from mechanisms.items import Item, Method
from mechanisms.ladders import Ladder
from mechanisms.top_item.top_item import TopItemLadder
from pipelines.aggregation.counts import Matrix
from sotto.design.noise import noise_of
from sotto.plan.compiled import CompiledMetric, CompiledPlan


def estimate(
    metric: CompiledMetric, counts: Matrix, candidates: Sequence[str], least: int = 1
) -> Iterator[Item]:
    """Yield all that the counts of a window tell about a metric; at least one item.

    Parameters
    ----------
    metric : CompiledMetric
    counts : (levels, length) int64
    candidates : sequence of str
        For a string metric.
    least : int
        The plan's ``minimum_reports``: no stratum of a number's reports is expected to have fewer.
    """
    if not isinstance(metric.mechanism, Ladder):
        return metric.mechanism.estimate(counts, metric.context(candidates, least))
    return _top_items(metric, counts)


def reports_by_level(metric: CompiledMetric, counts: Matrix, items: Sequence[Item]) -> list[int]:
    """Return how many reports of each level the counts of a window are of."""
    if not isinstance(metric.mechanism, Ladder):
        return metric.mechanism.reports_by_level(counts, items)
    return list(items[0].estimate.reports_by_level)


def _top_items(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    """Of permute-and-flip the share of devices that name an item, their most frequent or not."""
    assert isinstance(metric.mechanism, TopItemLadder)
    found = share_items(metric.mechanism.frequencies(counts), metric.context())
    if metric.mechanism.name != "permute_and_flip":
        yield from found
        return
    for item in found:
        # How many devices must have an item for it to be noticed depends on their other items.
        named = replace(item.estimate, detection_floor=None)
        yield replace(item, estimate=named, method=Method.BIASED)


def design_effect(plan: CompiledPlan, metric: CompiledMetric) -> float:
    """Return by what factor the variance of an estimate of a metric is larger, at most.

    Returns
    -------
    float
        ``1 + (k - 1) r`` for a constant metric, k being the most periods that a window has a part
        of, and r the part of a report's noise that is the permanent response's; 1 for others.

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
    if not isinstance(metric.mechanism, Ladder):
        return metric.mechanism.shared_noise(metric.sent)
    levels = metric.sent, metric.sent - 1
    last, sent = (noise_of(metric.mechanism, level) for level in levels)
    if last is None or sent is None:
        return 1.0
    return min(max(last.no / sent.no, last.yes / sent.yes), 1.0)


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
