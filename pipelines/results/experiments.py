"""The result of an experiment over all its windows, from the published rows of each window.

The reports of all complete windows are added, and the arms are compared once. A device that reports
in several windows is in the same arm in each, so that the chance of its assignment comes back.
Windows are therefore not independent, and their martingales are never multiplied; the interval for
all looks takes ``repeats``, the most reports that one device can have among those that are added.
The metric that decides, if the plan declares one, is also compared with boundaries at the planned
looks (:mod:`mechanisms.looks`).

A window's row has the number of reports and the average of each arm, and no counts; averages are
rounded to a small part of their errors. So the intervals for all looks are wider than counts would
give if reports have more than two scores (:func:`mechanisms.experiments.at_ends`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from statistics import NormalDist
from typing import Any

import numpy as np

from mechanisms.experiments import Difference, Scored, Scores, at_ends, difference, sample_ratio
from mechanisms.looks import arm_variance, boundaries, drift_of
from pipelines.aggregation.comparison import ERROR
from pipelines.aggregation.result_rows import shared_part
from pipelines.aggregation.rounding import without_float_error
from pipelines.results.fields import grouped, milliseconds, moment
from pipelines.results.records import ArmEffect, EstimateRecord, MetricKey
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.segments import PlannedDecision

#: The probability with which a true difference as large as ``smallest_found`` is found.
POWER = 0.8
#: Pairs of items of which the first is the complement of the second, and says nothing new.
_CONTRARY = {("false", "true"), ("no", "yes")}


def effects_of(plan: CompiledPlan, rows: Sequence[EstimateRecord]) -> Iterator[ArmEffect]:
    """Yield how arms of a plan's experiment differ, the metric that decides first.

    ``rows``: the ``arm_share`` and ``difference`` of all windows of the plan's version, in order.
    """
    if plan.experiment is None:
        return
    by_metric = grouped(rows, lambda row: row.metric)
    planned = plan.decision
    for metric in sorted(plan.metrics, key=lambda each: not planned or each.name != planned.metric):
        yield from _of_metric(plan, metric, by_metric.get(metric.name, ()))


def _of_metric(
    plan: CompiledPlan, metric: CompiledMetric, rows: Sequence[EstimateRecord]
) -> Iterator[ArmEffect]:
    assert plan.experiment is not None
    first, *others = plan.experiment.arms
    complete = [row for row in rows if row.complete]
    inside = [row for row in complete if _counts(plan.decision, row)]
    shares = _by_arm(row for row in inside if row.kind == "arm_share")
    totals = [sum(row.reports for row in shares.get(arm, ())) for arm in (first, *others)]
    repeats = _repeats(plan, metric, shares.get(first, ()))[1]
    even = sample_ratio(totals, max(repeats, 1)) if any(totals) else None
    differences = _by_arm(row for row in inside if row.kind == "difference")
    planned = plan.decision
    decides = planned if planned is not None and planned.metric == metric.name else None
    newest = max((milliseconds(row.window_start) for row in complete), default=-1)
    for arm in others:
        of_arm = differences.get(arm, ())
        said: dict[str, Any] = {
            **MetricKey(plan.collector, plan.plan, plan.version, metric.name)._asdict(),
            "experiment": plan.experiment.name,
            "arm": arm,
            "arms_p_value": even,
            "looks": decides and decides.looks,
        }
        items, every = _items(of_arm), {row.window_start for row in of_arm}
        if metric.mechanism.why_not_compared or not items:
            why = metric.mechanism.why_not_compared or _why_nothing(of_arm)
            yield ArmEffect(**said, left_out=len(every), withheld=why)
            continue
        error = ERROR / len(others) / (len(items) if decides and len(items) > 2 else 1)
        for item, known in items.items():
            pooled = _PooledArms.of(plan, metric, item, known)
            said["left_out"] = len(every) - len(known)
            at_looks = {} if decides is None else _looked(pooled, decides, error, newest)
            yield _effect(pooled, error, decides, {**said, **at_looks})


def _counts(planned: PlannedDecision | None, row: EstimateRecord) -> bool:
    """Return whether a window lies in the planned time of an experiment, if that is planned."""
    start, end = milliseconds(row.window_start), milliseconds(row.window_end)
    return planned is None or planned.start <= start < end <= planned.end


def _by_arm(rows: Iterator[EstimateRecord]) -> dict[str, list[EstimateRecord]]:
    return grouped(rows, lambda row: row.segment.partition("=")[2])


def _items(rows: Sequence[EstimateRecord]) -> dict[str, list[EstimateRecord]]:
    """Return the windows of each item that have figures, without items that repeat another."""
    known = (row for row in rows if row.arms and row.value is not None)
    found = grouped(known, lambda row: row.item)
    for contrary, item in _CONTRARY:
        if set(found) == {contrary, item}:
            del found[contrary]
    return found


def _why_nothing(rows: Sequence[EstimateRecord]) -> str:
    if not rows:
        return "no window is complete yet: look again after one and its grace are over"
    return rows[-1].withheld or "its windows were published by an earlier release"


def _repeats(
    plan: CompiledPlan, metric: CompiledMetric, rows: Sequence[EstimateRecord]
) -> tuple[list[tuple[list[EstimateRecord], int]], int]:
    """Return groups of windows, each with the most reports of one device, and the most in all.

    A device reports at most ``metric.limit`` times in each cycle of panels; without panels a cycle
    is one budget period. A group has the windows that begin in the same cycle.
    """

    def cycles(row: EstimateRecord) -> range:
        ends = milliseconds(row.window_start), milliseconds(row.window_end) - 1
        low, high = (plan.period_of(end) // metric.panel for end in ends)
        return range(low, high + 1)

    def most(those: Sequence[EstimateRecord]) -> int:
        return metric.limit * len({cycle for row in those for cycle in cycles(row)})

    ordered = sorted(rows, key=lambda row: row.window_start)
    groups = [list(those) for _, those in groupby(ordered, lambda row: cycles(row)[0])]
    return [(those, most(those)) for those in groups], most(ordered)


@dataclass(frozen=True)
class _PooledArms:
    """All windows of one item put together, for one arm and the first arm."""

    plan: CompiledPlan
    metric: CompiledMetric
    scored: Scored  #: what a report can score, without counts
    law: Scores
    rows: Sequence[EstimateRecord]

    @classmethod
    def of(
        cls, plan: CompiledPlan, metric: CompiledMetric, item: str, rows: Sequence[EstimateRecord]
    ) -> _PooledArms:
        mechanism, last = metric.mechanism, metric.sent - 1
        nothing = np.zeros(mechanism.count_length, dtype=np.int64)
        every = mechanism.scored(nothing, last, metric.context(()))
        scored = next(each for each in every if each.item == item)
        law = mechanism.scores(last)
        assert law is not None, "what is compared has scores"
        return cls(plan, metric, scored, law, rows)

    @property
    def repeats(self) -> int:
        return _repeats(self.plan, self.metric, self.rows)[1]

    def until(self, time: int) -> _PooledArms:
        """Return only the windows that end by a time, ms."""
        rows = [row for row in self.rows if milliseconds(row.window_end) <= time]
        return replace(self, rows=rows)

    def average(self, rows: Sequence[EstimateRecord], *arms: int) -> tuple[float, float]:
        """Return reports and average of ``arms``: 0 is the first arm, 1 the one beside it."""
        pairs = [row.arms[arm] for row in rows if row.arms for arm in arms]
        reports = sum(n for n, _ in pairs)
        return reports, sum(n * mean for n, mean in pairs) / reports

    @property
    def means(self) -> tuple[float, float]:
        """The averages of both arms, in the unit."""
        return self.average(self.rows, 0)[1], self.average(self.rows, 1)[1]

    def difference(self, error: float) -> Difference:
        """Return the comparison that holds at all looks together."""
        values, low = self.scored.values, self.scored.low
        both = []
        for which in (0, 1):
            reports, mean = self.average(self.rows, which)
            scaled = (mean - low) / (self.scored.high - low)
            both.append(replace(self.scored, counts=at_ends(values, reports, scaled)))
        return difference(both[0], both[1], error=error, repeats=self.repeats)

    def variances(self) -> tuple[float, float]:
        """Return two parts of the difference's variance: what devices keep, and what is drawn anew.

        Devices keep their values and permanent noise from one window to the next.

        Two variances are computed, and the larger is returned. The first takes both arms to vary as
        their common average says, which is so if they do not differ. The second takes each arm to
        vary as its own average says. The first is the larger if both arms have about as many
        reports, as they have when devices are spread evenly; it is too small for a small arm beside
        a large one that varies less. The second is too small if few reports differ by chance: it
        would find that two arms of 20 devices differ in 7 % of experiments without a difference,
        not in 5 % (J. L. Fleiss, B. Levin, M. C. Paik, "Statistical Methods for Rates and
        Proportions", Wiley 2003, section 3.1).
        """
        common = self.average(self.rows, 0, 1)[1]
        return max(self._variances(common, common), self._variances(*self.means), key=sum)

    def _variances(self, *means: float) -> tuple[float, float]:
        """Return both parts of the variance if arms vary as these averages say, the first first."""
        groups, _ = _repeats(self.plan, self.metric, self.rows)
        times = [most for _, most in groups]
        scale, kept, anew = self.scored.high - self.scored.low, 0.0, 0.0
        part = shared_part(self.metric)
        # The mean is that of all windows: the spread is a concave function of the mean, so spreads
        # at the noisy means of single windows would be too small on average.
        for which, average in enumerate(means):
            mean = min(max((average - self.scored.low) / scale, 0.0), 1.0)
            spreads = np.full(len(groups), mean * (1 - mean))
            noises = np.maximum(self.law.variance(mean) - spreads, 0)
            reports = [self.average(rows, which)[0] for rows, _ in groups]
            kept += arm_variance(reports, spreads + part * noises, 0 * noises, times)
            anew += arm_variance(reports, 0 * spreads, (1 - part) * noises)
        return scale**2 * kept, scale**2 * anew


def _looked(
    pooled: _PooledArms, planned: PlannedDecision, error: float, newest: int
) -> dict[str, Any]:
    """Return what planned looks found; one is taken once all windows that end by it are complete.

    ``newest``: when the newest complete window begins (ms).
    """
    window, taken = pooled.metric.window, dict[int, _PooledArms]()
    last = 0
    for number, time in enumerate(planned.times, 1):
        if newest < time // window * window - window:
            break
        last, until = number, pooled.until(time)
        if len(until.rows) > max((len(each.rows) for each in taken.values()), default=0):
            taken[number] = until
    following = None if last == planned.looks else moment(planned.times[last])
    found: dict[str, Any] = {"look": last, "next_look": following}
    if not taken:
        return found
    deviations = [math.sqrt(sum(each.variances())) for each in taken.values()]
    values = [arm - first for first, arm in (each.means for each in taken.values())]
    shares = [number / planned.looks for number in taken]
    bounds = boundaries(shares, [deviation**-2 for deviation in deviations], error)
    crossed = [
        number
        for number, value, deviation, bound in zip(taken, values, deviations, bounds, strict=True)
        if abs(value) >= bound * deviation
    ]
    reach = bounds[-1] * deviations[-1]
    return {
        **found,
        "boundary": bounds[-1],
        "errors": abs(values[-1]) / deviations[-1],
        "look_value": without_float_error(values[-1], deviations[-1]),
        "look_low": values[-1] - reach,
        "look_high": values[-1] + reach,
        "decided_at": next(iter(crossed), None),
    }


def _effect(
    pooled: _PooledArms, error: float, planned: PlannedDecision | None, said: Mapping[str, Any]
) -> ArmEffect:
    found = pooled.difference(error)
    kept, anew = pooled.variances()
    starts = [row.window_start for row in pooled.rows]
    if planned is None:
        chance = NormalDist().inv_cdf(POWER)
        smallest = (found.high - found.low) / 2 + chance * math.sqrt(kept + anew)
    else:
        # It is assumed that reports go on coming until the planned end, from the same devices if
        # these can report again. None come after it, so windows left out by then stay missing.
        length = planned.end - planned.start if said["next_look"] else 0
        part = min(len(starts) * pooled.metric.window / max(length, 1), 1.0)
        again = pooled.plan.period_of(planned.end - 1) // pooled.metric.panel
        again -= pooled.plan.period_of(planned.start) // pooled.metric.panel
        same = pooled.metric.limit > 1 or again > 0
        variance = kept * (1 if same else part) + anew * part
        smallest = _drift(planned.looks, error) * math.sqrt(variance)
    comparisons = round(ERROR / error)
    return ArmEffect(
        **said,
        item=pooled.scored.item,
        unit=pooled.scored.unit,
        start=min(starts),
        end=max(row.window_end for row in pooled.rows),
        windows=len(starts),
        reports=sum(row.reports for row in pooled.rows),
        repeats=pooled.repeats,
        first=pooled.means[0],
        value=without_float_error(found.value, math.sqrt(kept + anew)),
        low=found.low,
        high=found.high,
        p_value=min(1.0, comparisons * found.p_value),
        significant=not found.low <= 0 <= found.high,
        smallest_found=smallest,
    )


@lru_cache(maxsize=64)
def _drift(looks: int, error: float) -> float:
    return drift_of(POWER, looks, error)
