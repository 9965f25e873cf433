"""Several reports of one device in a window, all drawn from one permanent response.

Reports of a constant metric repeat the noise of the permanent response in every period. Estimates
take reports for independent: they stay unbiased, and their variance is too small by a factor that
is known at most. By that factor it is enlarged.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

from mechanisms.estimate import Estimate
from sotto.design.noise import noise_of
from sotto.plan.compiled import CompiledMetric, CompiledPlan


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
    """Return the part of the noise of the last rung that is sent that all reports share."""
    if metric.type not in ("category", "boolean", "survey"):
        return 1.0
    levels = metric.sent, metric.sent - 1
    if metric.spec["name"] == "hadamard":
        last_no, sent_no = (_within_block(metric.mechanism, level) for level in levels)
        return min(last_no / sent_no, 1.0)
    last, sent = (noise_of(metric.mechanism, level) for level in levels)
    if last is None or sent is None:
        return 1.0
    return min(max(last.no / sent.no, last.yes / sent.yes), 1.0)


def _within_block(mechanism: Any, level: int) -> float:
    """Return the noise of a no in the block of the true category, which shares most of it.

    That of any no, an average over blocks, shares less. A report is in that block with p + q, and
    in another one with 2 q, the smaller part of which is the permanent response's.
    """
    p, q = mechanism.exact(level)[0]
    return float((p + q) / (p - q) ** 2)


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
