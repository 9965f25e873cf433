"""How the arms of an experiment differ in a window, from the published counts of each arm.

Every arm has a row ``arm_share``, its share of all arms' reports. Every arm but the first also has
a row ``difference`` for each estimate that is an average over reports: how much more it is than in
the first arm. Differences are made of the counts of the last level that is sent;
:mod:`mechanisms.experiments` says why, and what they assume.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.estimate import Estimate
from mechanisms.experiments import SAMPLE_RATIO_ERROR, Scored, difference, sample_ratio
from mechanisms.items import Item, Method
from pipelines.aggregation.breakdown import Slice, slices
from pipelines.aggregation.publication import Publication, reason
from sotto.plan.compiled import CompiledPlan

#: The probability that any of the intervals of one item, of which each arm has one, is ever wrong.
ERROR = 0.05


@dataclass(frozen=True)
class Ends:
    """An interval that is known at one confidence only, and is returned for any."""

    low: float
    high: float

    def interval(self, level: float) -> tuple[float, float]:
        return self.low, self.high


class Compared(NamedTuple):
    """A row of an arm: its slice's name, what is estimated, and why it is withheld if it is."""

    segment: str
    item: Item
    withheld: str | None = None


def compared(published: Publication, arrived: NDArray[np.int64]) -> Iterator[Compared]:
    """Yield the rows of all arms that have reports, in their order.

    ``arrived`` ``(cells, levels)`` are all reports that have come.
    """
    plan, metric = published.plan, published.metric
    first, *others = arms = arms_of(plan)
    by_level = [arrived[[*each.cells]].sum(axis=0) for each in arms]
    totals = [int(each.sum()) for each in by_level]
    p_value = sample_ratio(totals, plan.most_reports(metric))
    for arm, total, levels in zip(arms, totals, by_level, strict=True):
        if total:
            share = Estimate(total / sum(totals), math.inf, total, tuple(levels.tolist()))
            wrong = p_value < SAMPLE_RATIO_ERROR
            yield Compared(
                arm.name, Item("arm_share", "", share, p_value=p_value, significant=wrong)
            )
            if arm in others:
                yield from _differences(published, first, arm, len(others))


def _differences(
    published: Publication, first: Slice, arm: Slice, number: int
) -> Iterator[Compared]:
    metric, last = published.metric, published.metric.sent - 1
    why = _withheld(published, first) or _withheld(published, arm)
    by_level = [0] * len(metric.ladder)
    by_level[last] = sum(int(published.reports(each)[last]) for each in (first, arm))
    pairs = list(zip(_scored(published, first), _scored(published, arm), strict=True))
    if not pairs:
        why = f"{metric.mechanism.name}: {metric.mechanism.why_not_compared}"
        nothing = Estimate(math.nan, math.inf, sum(by_level), tuple(by_level))
        yield Compared(arm.name, Item("difference", "", nothing, metric.unit), why)
    for one, other in pairs:
        repeats = published.plan.most_reports(metric)
        found = difference(one, other, error=ERROR / number, repeats=repeats)
        ends = Ends(found.low, found.high)
        estimate = Estimate(found.value, math.inf, sum(by_level), tuple(by_level), region=ends)
        item = Item(
            "difference",
            one.item,
            estimate,
            one.unit,
            p_value=min(1.0, number * found.p_value),
            significant=not found.low <= 0 <= found.high,
            method=Method.ALWAYS,
            arms=tuple((each.reports, each.mean) for each in (one, other)),
        )
        yield Compared(arm.name, item, why)


def _withheld(published: Publication, arm: Slice) -> str | None:
    """Return why the last level of an arm is not published; None if it is."""
    last = published.metric.sent - 1
    if published.levels(arm)[last]:
        return None
    if short := reason(int(published.reports(arm)[last]), published.least):
        return f"{arm.name} at the last level: {short}"
    return f"{arm.name} is withheld at the last level"


def _scored(published: Publication, arm: Slice) -> list[Scored]:
    """Return the items that reports of the last level score; none if arms cannot be compared."""
    metric = published.metric
    if metric.mechanism.why_not_compared:
        return []
    last, counts = metric.sent - 1, published.table(arm)
    return [*metric.mechanism.scored(counts[last], last, metric.context(()))]


def arms_of(plan: CompiledPlan) -> list[Slice]:
    """Return the slices of the arms of a plan's experiment, without that of all other devices."""
    assert plan.experiment is not None
    # The experiment is the last attribute, and the last of its values is for all others.
    place, arms = len(plan.attributes) - 1, len(plan.experiment.arms)
    fixed = [((place, number),) for number in range(arms)]
    return [each for each in slices(plan.attributes) if each.fixed in fixed]
