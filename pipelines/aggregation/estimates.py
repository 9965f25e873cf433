"""All that the counts of a window tell about a metric, by its type; the formulas are elsewhere.

Kinds of estimate: ``share`` of a category, point, answer or item; ``mean``, ``missing``,
``quantile``, ``cdf`` and ``bit`` of a number; ``group``, ``mean`` and ``cdf`` of an ordinal metric;
``mean`` of each coordinate of a vector; ``string``, ``missing`` and ``unexplained`` of a string
metric. ``display`` is the Norm-Sub value of what sums to one: it stands beside the estimate, and
the interval does not belong to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from typing import Any

import numpy as np

from mechanisms.base import SymbolLadder
from mechanisms.estimate import Estimate
from mechanisms.estimators.frequency import PureProtocol, frequencies, norm_sub
from mechanisms.number.numeric import NumericEstimates, numeric
from mechanisms.number.strata import EXPECTED_REPORTS
from mechanisms.ordinal.estimates import OrdinalEstimates, ordinal
from mechanisms.string.decoding import decode
from mechanisms.string.rappor import RapporLadder
from mechanisms.survey.estimates import survey_share
from mechanisms.survey.ladders import SurveyLadder
from mechanisms.vector.coordinates import CoordinatesLadder
from mechanisms.vector.means import vector_means
from mechanisms.vector.sampled_hybrid import SampledHybridLadder
from mechanisms.vector.sampled_vector import SampledVectorLadder
from pipelines.aggregation.counts import Matrix
from sotto.design.noise import noise_of
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.metric import MISSING_STRING


class Method(StrEnum):
    """How far an estimate can be relied on.

    ``unbiased``: right on average (a ratio, to order 1/n), and its interval covers what it says.
    ``monotone``: isotonic regression, biased where it evens out; its interval covers at least what
    it says: of a ``cdf`` its average over the stratum of thresholds around the point, and not the
    share at the point, which may lie anywhere between its neighbours. ``smoothed``: biased toward
    a smooth law, without an interval. ``em``: the most likely shares; biased near zero, and the
    interval, from the curvature of the likelihood, holds only for many reports and away from zero
    and one. ``biased``: of what was reported, and not of what was true.
    """

    UNBIASED = "unbiased"
    MONOTONE = "monotone"
    SMOOTHED = "smoothed"
    EM = "em"
    BIASED = "biased"


@dataclass(frozen=True)
class Item:
    """One estimate of a window, with what it is of.

    Parameters
    ----------
    kind, item : str
        Together unique in a window.
    estimate : Estimate
    unit : str or None
        ``share``, or the metric's own.
    display : float or None
        Norm-Sub value.
    p_value, significant : float, bool or None
        Of a candidate string.
    confounded_with : tuple of str
        The candidates between which reports cannot tell; nothing is determined of them.
    method : Method
        How far value and interval can be relied on.
    """

    kind: str
    item: str
    estimate: Estimate
    unit: str | None = "share"
    display: float | None = None
    p_value: float | None = None
    significant: bool | None = None
    confounded_with: tuple[str, ...] = ()
    method: Method = Method.UNBIASED


def estimate(
    metric: CompiledMetric, counts: Matrix, candidates: Sequence[str], least: int = 1
) -> Iterator[Item]:
    """Yield all that the counts of a window tell about a metric; at least one item.

    Parameters
    ----------
    metric : CompiledMetric
    counts : (rungs, length) int64
    candidates : sequence of str
        For a string metric.
    least : int
        The plan's ``minimum_reports``: no stratum of a number's reports is expected to have fewer.
    """
    if metric.type == "string":
        return _strings(metric, counts, candidates)
    stratum = max(EXPECTED_REPORTS, least)
    if metric.type == "number":
        return _number(metric, counts, stratum)
    if metric.type == "vector":
        return _vector(metric, counts, stratum)
    return _BY_TYPE[metric.type](metric, counts)


def reports_by_level(metric: CompiledMetric, counts: Matrix, items: Sequence[Item]) -> list[int]:
    """Return how many reports of each rung the counts of a window are of."""
    if isinstance(metric.mechanism, CoordinatesLadder):
        answers: list[int] = (counts.sum(axis=1) // metric.mechanism.sampled).tolist()
        return answers
    return list(items[0].estimate.reports_by_level)


def _shares(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    estimates = frequencies(metric.mechanism, counts)
    values = np.array([each.value for each in estimates])
    shown = norm_sub(values).tolist() if np.isfinite(values).all() else [None] * len(values)
    for label, each, display in zip(metric.labels, estimates, shown, strict=True):
        yield Item("share", label, each, display=display)


def _ordinals(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    """Shares, those of values that reports do not tell apart together, the mean and the CDF.

    Shares are unbiased where all values are told apart, and the most likely ones where not.
    """
    assert isinstance(metric.mechanism, SymbolLadder)
    points = metric.labels[: len(metric.labels) - metric.missing]
    numbers = metric.points if metric.range is not None else range(1, len(points) + 1)
    found = ordinal(metric.mechanism, counts, numbers)
    by_level = found.group_shares[0].reports_by_level
    if isinstance(metric.mechanism, PureProtocol):
        yield from _shares(metric, counts)
    else:
        errors = found.shares.standard_errors.tolist()
        for label, value, error in zip(metric.labels, found.shares.values, errors, strict=True):
            likely = Estimate(float(value), error, sum(by_level), by_level)
            yield Item("share", label, likely, method=Method.EM)
        for group, each in zip(found.groups, found.group_shares, strict=True):
            yield Item("group", " to ".join(_ends([metric.labels[x] for x in group])), each)
    yield from _ordinal_mean(metric, found)
    for label, each in zip(points, found.cumulative, strict=False):
        if math.isfinite(each.standard_error):
            yield Item("cdf", label, each)


def _ordinal_mean(metric: CompiledMetric, found: OrdinalEstimates) -> Iterator[Item]:
    """Yield the mean, or what it lies between where some values are not told apart."""
    unit = metric.unit if metric.range is not None else "rank"
    least, most = found.mean_bounds
    if len(found.groups) == len(metric.labels):
        yield Item("mean", "", least, unit)
    else:
        yield Item("mean", "at least", least, unit)
        yield Item("mean", "at most", most, unit)


def _ends(labels: Sequence[str]) -> Sequence[str]:
    return labels if len(labels) < 2 else (labels[0], labels[-1])


def _top_items(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    """Of permute-and-flip the share of devices that name an item, their most frequent or not."""
    if metric.mechanism.name != "permute_and_flip":
        yield from _shares(metric, counts)
        return
    for item in _shares(metric, counts):
        # How many devices must have an item for it to be noticed depends on their other items.
        named = replace(item.estimate, detection_floor=None)
        yield replace(item, estimate=named, method=Method.BIASED)


def _survey(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    assert isinstance(metric.mechanism, SurveyLadder)
    yield Item("share", "yes", survey_share(metric.mechanism, counts))


def _strings(metric: CompiledMetric, counts: Matrix, candidates: Sequence[str]) -> Iterator[Item]:
    strings = list(dict.fromkeys([*candidates, *([MISSING_STRING] if metric.missing else [])]))
    if not strings:
        assert isinstance(metric.mechanism, RapporLadder)
        cohorts = counts.reshape(len(counts), metric.mechanism.cohorts, -1)
        reports = tuple(cohorts[:, :, -1].sum(axis=1).tolist())
        yield Item("unexplained", "", Estimate(1.0, 0.0, sum(reports), reports))
        return
    # A pseudonym has at most so many reports in a window, all in one cohort.
    found = decode(metric.mechanism, counts, strings, design_effect=metric.limit)
    yield Item("unexplained", "", found.unexplained)
    for each, display in zip(found.items, found.display, strict=True):
        missing = each.candidate == MISSING_STRING
        yield Item(
            "missing" if missing else "string",
            "" if missing else each.candidate,
            each.estimate,
            display=display,
            p_value=each.p_value,
            significant=each.significant,
            confounded_with=each.confounded_with,
        )


def _number(metric: CompiledMetric, counts: Matrix, stratum: int) -> Iterator[Item]:
    assert metric.range is not None
    found = numeric(metric.mechanism, counts, *metric.range, stratum=stratum)
    yield Item("mean", "", found.mean, metric.unit)
    if found.missing is not None:
        yield Item("missing", "", found.missing)
    method = Method.SMOOTHED if found.smoothed else Method.MONOTONE
    for probability, each in (found.quantiles or {}).items():
        yield Item("quantile", repr(probability), each, metric.unit, method=method)
    for number, each in enumerate(found.bit_means or (), start=1):
        yield Item("bit", str(number), each)
    yield from _distribution(found, method)


def _distribution(found: NumericEstimates, method: Method) -> Iterator[Item]:
    if found.cdf is None:
        return
    columns = (found.cdf.grid, found.cdf.values, found.cdf.standard_errors)
    for at, value, error in zip(*(column.tolist() for column in columns), strict=True):
        point = Estimate(value, error, found.mean.n, found.mean.reports_by_level)
        yield Item("cdf", repr(at), point, method=method)


def _vector(metric: CompiledMetric, counts: Matrix, stratum: int) -> Iterator[Item]:
    assert isinstance(metric.mechanism, SampledVectorLadder | SampledHybridLadder)
    assert metric.range is not None
    # An answer is about one coordinate: its n is that of the answers about it.
    found = vector_means(metric.mechanism, counts, *metric.range, stratum=stratum)
    for number, each in enumerate(found, start=1):
        yield Item("mean", str(number), each, metric.unit)


_BY_TYPE: Mapping[str, Callable[[CompiledMetric, Matrix], Iterator[Item]]] = {
    "category": _shares,
    "boolean": _shares,
    "ordinal": _ordinals,
    "survey": _survey,
    "top_item": _top_items,
}


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
    p, q = mechanism.rungs(level)[0]
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
