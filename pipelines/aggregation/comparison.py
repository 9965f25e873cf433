"""How the arms of an experiment differ in a window, from its counts by cell.

Of each arm there is its share of all arms' reports (``arm_share``), and of each but the first, for
every estimate that is an average over reports, how much more it is than in the first arm
(``difference``). Differences are made of the reports of the last level that is sent;
:mod:`mechanisms.experiments` says why, and what they assume.

So who reads them knows sums of the last level's reports by arm. Whatever is computed from these and
from published slices depends, in every cell of an arm, on all reports of the last level or on all
of those below. An arm's smaller ones of both have at least the plan's minimum of reports together,
or else nothing of the arm is below the last level, or the difference is withheld.

Some devices of an arm are nearly always late. If they are fewer than the minimum, their reports
below the last level are left out of all that the window's results are made of
(:func:`late_cells`), and so nothing of them follows from anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.estimate import Estimate
from mechanisms.experiments import SAMPLE_RATIO_ERROR, Scored, difference, sample_ratio
from mechanisms.items import Item, Method
from pipelines.aggregation.breakdown import Slice, slices
from pipelines.aggregation.counts import Matrix
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: The probability that one of the intervals of an estimate, one an arm, is ever wrong.
ERROR = 0.05


@dataclass(frozen=True)
class Ends:
    """An interval of one confidence alone."""

    low: float
    high: float

    def interval(self, level: float) -> tuple[float, float]:
        return self.low, self.high


class Compared(NamedTuple):
    """A row of an arm: its slice's name, what is estimated, and why it is withheld if it is."""

    segment: str
    item: Item
    withheld: str | None = None


@dataclass(frozen=True)
class Arms:
    """The arms of a plan's experiment in one window of a metric.

    ``counts`` are ``(levels, count_length)``, of each cell that has any; ``reports``,
    ``(cells, levels)``, the reports in all cells; ``arrived`` the same with those that are left
    out; ``few`` the slices of which nothing is published; ``least`` is the plan's
    ``minimum_reports``.
    """

    plan: CompiledPlan
    metric: CompiledMetric
    counts: Mapping[int, Matrix]
    reports: NDArray[np.int64]
    arrived: NDArray[np.int64]
    few: Set[str]
    least: int

    def compared(self) -> Iterator[Compared]:
        """Yield the rows of all arms that have reports, in their order."""
        first, *others = arms = arms_of(self.plan)
        by_level = [self.arrived[[*each.cells]].sum(axis=0) for each in arms]
        totals = [int(each.sum()) for each in by_level]
        p_value = sample_ratio(totals, self.plan.most_reports(self.metric))
        for arm, total, levels in zip(arms, totals, by_level, strict=True):
            if total:
                share = Estimate(total / sum(totals), math.inf, total, tuple(levels.tolist()))
                wrong = p_value < SAMPLE_RATIO_ERROR
                item = Item("arm_share", "", share, p_value=p_value, significant=wrong)
                yield Compared(arm.name, item)
                if arm in others:
                    yield from self._differences(first, arm, len(others))

    def _differences(self, first: Slice, arm: Slice, number: int) -> Iterator[Compared]:
        metric, why = self.metric, self._few(first) or self._few(arm)
        pairs = list(zip(self._scored(first), self._scored(arm), strict=True))
        by_level = self._by_level((first, arm))
        if not pairs:
            why = f"{metric.mechanism.name}: no estimate is an average over reports"
            nothing = Estimate(math.nan, math.inf, sum(by_level), by_level)
            yield Compared(arm.name, Item("difference", "", nothing, metric.unit), why)
        for one, other in pairs:
            repeats = self.plan.most_reports(metric)
            found = difference(one, other, error=ERROR / number, repeats=repeats)
            ends = Ends(found.low, found.high)
            estimate = Estimate(found.value, math.inf, sum(by_level), by_level, region=ends)
            item = Item(
                "difference",
                one.item,
                estimate,
                one.unit,
                p_value=min(1.0, number * found.p_value),
                significant=not found.low <= 0 <= found.high,
                method=Method.ALWAYS,
            )
            yield Compared(arm.name, item, why)

    def _scored(self, arm: Slice) -> list[Scored]:
        """Return what is scored at the last level, of estimates that are right on average."""
        metric = self.metric
        matrices = [self.counts[cell] for cell in arm.cells if cell in self.counts]
        shape = (len(metric.ladder), metric.mechanism.count_length)
        counts = np.sum([np.zeros(shape, dtype=np.int64), *matrices], axis=0)
        return _scored(metric, counts)

    def _few(self, arm: Slice) -> str | None:
        """Return why the reports of an arm's last level are withheld, or None."""
        reports = self.reports[[*arm.cells]]
        last = reports[:, self.metric.sent - 1]
        lower = reports.sum(axis=1) - last
        if (number := int(last.sum())) < self.least:
            return f"{arm.name} has {number:,} of the last level, the plan asks for {self.least:,}"
        if arm.name in self.few:
            return f"{arm.name} is withheld"
        if lower.any() and int(np.minimum(last, lower).sum()) < self.least:
            return (
                f"{arm.name} has too few of other levels: their estimate could be computed from it"
            )
        return None

    def _by_level(self, arms: Sequence[Slice]) -> tuple[int, ...]:
        cells = [cell for arm in arms for cell in arm.cells]
        return tuple(last_alone(self.metric, self.reports[cells].sum(axis=0)).tolist())


def late_cells(
    plan: CompiledPlan,
    metric: CompiledMetric,
    counts: Mapping[int, Matrix],
    reports: NDArray[np.int64],
    least: int,
) -> list[int]:
    """Return the cells of arms of which too few reports are below the last level.

    They would keep differences withheld, and so are left out until their last level comes, or
    enough others are below it. That depends on the numbers of reports alone; ``reports`` are
    ``(cells, levels)``. Of arms with too few of the last level, and of metrics that are not
    compared, there are none.
    """
    if plan.experiment is None or not _scored(metric, next(iter(counts.values()))):
        return []
    found: list[int] = []
    for arm in arms_of(plan):
        of_arm = reports[[*arm.cells]].sum(axis=0)
        last = int(of_arm[metric.sent - 1])
        if last >= least > int(of_arm.sum()) - last:
            found += arm.cells
    return found


def last_alone(metric: CompiledMetric, by_level: Matrix) -> Matrix:
    """Return what is by level, ``(levels, ...)``, with zeros for all levels but the last."""
    found = np.zeros_like(by_level)
    found[metric.sent - 1] = by_level[metric.sent - 1]
    return found


def _scored(metric: CompiledMetric, counts: Matrix) -> list[Scored]:
    """Return what is scored at the last level, of estimates that are right on average."""
    last, context = metric.sent - 1, metric.context(())
    nothing = metric.mechanism.estimate(np.zeros_like(counts), context)
    unbiased = {(item.kind, item.item) for item in nothing if item.method is Method.UNBIASED}
    scored = metric.mechanism.scored(counts[last], last, context)
    return [each for each in scored if (each.kind, each.item) in unbiased]


def arms_of(plan: CompiledPlan) -> list[Slice]:
    """Return the slices of the arms of a plan's experiment, without that of all other devices."""
    assert plan.experiment is not None
    # The experiment is the last attribute, and the last of its values is for all others.
    place, arms = len(plan.attributes) - 1, len(plan.experiment.arms)
    fixed = [((place, number),) for number in range(arms)]
    return [each for each in slices(plan.attributes) if each.fixed in fixed]
