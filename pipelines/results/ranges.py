"""Estimates of any run of windows, in all or by segment, and how two of them differ.

Estimates that are averages over reports are pooled from published rows. Quantiles, distributions
and strings are no averages: they are estimated from the sum of the tables that publications are
made of (:mod:`pipelines.results.range_tables`). :mod:`pipelines.results.range_windows` says which
windows and segments are used: a figure of a range is made of published tables alone. So no
combination of figures of ranges and windows depends on fewer reports than a combination of the
windows' own figures does (:mod:`pipelines.aggregation.publication`).

Intervals are about the reports that were counted. They do not cover that other devices might have
answered otherwise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, TypeAlias

from mechanisms.estimate import Estimate, ShareNoise, forged, nothing, share_region
from mechanisms.estimators.pooling import (
    PooledDifference,
    difference,
    pairs_per_report,
    part_and_whole,
    pooled,
)
from mechanisms.items import OF_EXPERIMENTS, Method
from pipelines.aggregation.result_rows import design_effect, shared_part
from pipelines.aggregation.rounding import without_float_error
from pipelines.results.fields import grouped, milliseconds
from pipelines.results.range_windows import WindowRun, combinations, names_of
from pipelines.results.records import EstimateRecord, MetricKey, RangeComparison, RangeEstimate
from pipelines.results.retention import ends_of, estimate_of, pooled_retention
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledMetric


class ArmsComparedError(ParameterError):
    """Arms of an experiment are not compared in a range: devices that return keep their arm."""


#: Kind and item of an estimate.
ItemKey: TypeAlias = tuple[str, str]
#: Estimates that have a value, by metric, start of the window and segment.
_Rows: TypeAlias = Mapping[tuple[MetricKey, datetime, str], Sequence[EstimateRecord]]
#: How far forged reports can move an estimate: how far one more pseudonym can (1) lower and
#: (2) raise it; by how much it can be (3) too high and (4) too low if a share of all reports is
#: forged. An unknown move is infinite or NaN.
_Moves: TypeAlias = tuple[float, float, float, float]
#: Kinds of estimates that are no averages over reports, or are made of tables together with such.
NO_AVERAGES = frozenset(
    {"quantile", "cdf", "conversion", "retention", "string", "unexplained", "false_names"}
)


@dataclass(frozen=True)
class PooledItem:
    """An estimate of a range.

    ``drawn`` is the estimate with the error that it would have if the noise of every report were
    drawn anew; ``effect`` is the factor by which its variance is larger. ``weight`` is its weight
    in an average with other reports: their number, of a mean that of those that have a value.
    ``windows`` is how many windows it is of. ``cycles`` has the number of reports in each cycle of
    panels. ``averaged`` are the estimates of windows of which it is an average.
    """

    drawn: Estimate
    effect: float
    weight: float
    windows: int
    cycles: Mapping[int, int]
    unit: str | None
    method: Method = Method.UNBIASED
    significant: bool | None = None
    averaged: Sequence[Estimate] = (nothing((1,)),)

    def moved(self, limit: int, share: float | None) -> _Moves:
        """Return how far forged reports move the estimate.

        One pseudonym has ``limit`` reports in a window, and a ``share`` of all may be forged. Both
        are taken to be in the windows where they do most. A report that scores s there moves an
        average x of n reports to x + (s - x) / (n + 1).
        """
        scores = [each.scores or (-math.inf, math.inf) for each in self.averaged]
        by_level = [n for each in self.averaged for n in each.reports_by_level]
        reach: list[Sequence[float]] = []
        for each in self.averaged:
            reach += each.reach or [(math.inf, math.inf)] * len(each.reports_by_level)
        wrong = (math.nan, math.nan) if share is None else forged(share, by_level, reach)
        part = limit / (self.drawn.n + 1)
        down = self.drawn.value - min(least for least, _ in scores)
        up = max(most for _, most in scores) - self.drawn.value
        return part * down, part * up, *wrong

    @property
    def estimate(self) -> Estimate:
        """The estimate, with all that its reports share."""
        return self.drawn.widened(self.effect)


@dataclass(frozen=True)
class RangePart:
    """A run of windows, and what is estimated of it."""

    run: WindowRun
    items: Mapping[ItemKey, PooledItem]

    def named(self, key: ItemKey) -> dict[str, Any]:
        """Return the fields of a record that name an estimate, with its value and reports."""
        run, found = self.run, self.items[key]
        return {
            **run.key._asdict(),
            "start": run.windows[0].window_start,
            "end": run.windows[-1].window_end,
            "segment": run.segment,
            "left_out": run.left_out,
            "kind": key[0],
            "item": key[1],
            "value": found.drawn.value,
            "unit": found.unit,
            "reports": found.drawn.n,
        }

    def records(self, under: float | None = None) -> Iterator[RangeEstimate]:
        """Yield the estimates; with the ends of the truth if a share ``under`` is forged."""
        for key, each in self.items.items():
            low, high, error = (None,) * 3 if each.method.biased else ends_of(each.estimate)
            yield RangeEstimate(
                **self.named(key),
                **_ends((low, high), each.moved(self.run.metric.limit, under)),
                standard_error=error,
                method=each.method.value,
                significant=each.significant,
                windows=each.windows,
            )


def _ends(
    ends: tuple[float | None, float | None], moves: _Moves, others: _Moves = (0.0, 0.0, 0.0, 0.0)
) -> dict[str, Any]:
    """Return the fields of a record for an interval and for how far forged reports move a figure.

    ``ends`` are those of the interval. ``moves`` are of the estimate, ``others`` of the one that is
    subtracted from it, which counts the other way.
    """
    opposite = others[1], others[0], others[3], others[2]
    down, up, over, short = map(sum, zip(moves, opposite, strict=True))
    found = {"forged_down": down, "forged_up": up}
    if ends[0] is not None and ends[1] is not None:
        found |= {"under_low": ends[0] - over, "under_high": ends[1] + short}
    known = {name: each for name, each in found.items() if math.isfinite(each)}
    return {"low": ends[0], "high": ends[1], **known}


_Parts: TypeAlias = Sequence[RangePart]
#: Returns estimates from added tables of runs of a metric's windows, in their order.
AddedTables: TypeAlias = Callable[[Sequence[WindowRun]], Sequence[Mapping[ItemKey, PooledItem]]]


def parts_of(
    runs: Sequence[WindowRun],
    estimates: Sequence[EstimateRecord],
    tables: AddedTables | None = None,
) -> list[RangePart]:
    """Return what is estimated of runs of windows.

    ``estimates``: those of all their windows and segments, and maybe more. ``tables`` estimates
    from added tables; None without a state directory.

    Raises ParameterError if nothing can be estimated.
    """
    known = (row for row in estimates if row.value is not None)
    rows = grouped(known, lambda row: (row.key, row.window_start, row.segment))
    of_tables: list[Mapping[ItemKey, PooledItem]] = [{}] * len(runs)
    if tables is not None:
        groups = groupby(runs, lambda run: run.key)
        of_tables = [each for _, of_metric in groups for each in tables(list(of_metric))]
    found = [
        RangePart(run, {**_items(run, rows), **_retention(run, rows), **more})
        for run, more in zip(runs, of_tables, strict=True)
    ]
    if not any(part.items for part in found):
        raise ParameterError(
            f"nothing is known of {runs[0].key[3]!r} in this range; quantiles, distributions and "
            "strings of a range need the state directory, which has the counts"
        )
    return found


def _items(run: WindowRun, rows: _Rows) -> dict[ItemKey, PooledItem]:
    """Return the estimates that are averages over reports, pooled from the rows of windows."""
    found: dict[ItemKey, list[tuple[EstimateRecord, float]]] = defaultdict(list)
    for start, names in run.pieces.items() if run.metric.type != "string" else ():
        for name in names:
            of_piece = rows.get((run.key, start, name), ())
            present = _present(run.metric, of_piece)
            for row in of_piece:
                if row.kind not in NO_AVERAGES and row.kind not in OF_EXPERIMENTS:
                    weight = row.reports * (present if row.kind == "mean" else 1.0)
                    found[row.kind, row.item].append((row, weight))
    items = {key: _pooled(run, each) for key, each in found.items()}
    return {key: each for key, each in items.items() if math.isfinite(each.drawn.value)}


def _retention(run: WindowRun, rows: _Rows) -> dict[ItemKey, PooledItem]:
    """Return what part of the devices that were new in the windows came again in them, by age."""
    pieces = [(run.key, start, name) for start, names in run.pieces.items() for name in names]
    of_run = [row for piece in pieces for row in rows.get(piece, ())]
    return {
        ("retention", str(age)): PooledItem(rate, 1.0, rate.n, windows, {}, "share")
        for age, rate, windows in pooled_retention(run.metric, of_run, run.arrived)
        if math.isfinite(rate.value)
    }


def _pooled(run: WindowRun, rows: Sequence[tuple[EstimateRecord, float]]) -> PooledItem:
    in_window = design_effect(run.plan, run.metric)
    estimates = [estimate_of(row, run.metric.limit).widened(1 / in_window) for row, _ in rows]
    # A mean of numbers that can be missing is a quotient: forged reports change its weights, too.
    quotient = run.metric.missing and rows[0][0].kind == "mean"
    cycles: dict[int, int] = defaultdict(int)
    for row, _ in rows:
        cycles[cycle_of(run, row.window_start)] += row.reports
    found = pooled(estimates, [weight for _, weight in rows])
    found = replace(found, value=without_float_error(found.value, found.standard_error))
    if len(rows) > 1:
        found = _tested(rows[0][0].kind, found, run.metric, beyond=False)
    methods = {Method(row.method or Method.UNBIASED) for row, _ in rows} - {Method.UNBIASED}
    return PooledItem(
        found,
        effect_of(run, cycles, found.reports_by_level),
        sum(weight for _, weight in rows),
        len({row.window_start for row, _ in rows}),
        cycles,
        rows[0][0].unit,
        max(methods, key=lambda each: each.biased, default=Method.UNBIASED),
        averaged=[nothing((1,))] if quotient else estimates,
    )


def effect_of(run: WindowRun, cycles: Mapping[int, int], by_level: Sequence[int]) -> float:
    """Return the factor by which the variance is larger than if all noise were drawn anew."""
    pairs = pairs_per_report(cycles.values(), run.plan.most_reports(run.metric))
    return 1 + (pairs - 1) * shared_part(run.metric, by_level)


def cycle_of(run: WindowRun, start: datetime) -> int:
    """Return the number of the cycle of panels that a window is in.

    If a budget period is no whole number of windows, each window counts as a cycle of its own.
    """
    period, metric = run.plan.period, run.metric
    length = metric.window if period % metric.window else period * metric.panel
    return milliseconds(start) // length


def _present(metric: CompiledMetric, rows: Sequence[EstimateRecord]) -> float:
    """Return the estimated share of reports whose value is present, of which a mean is made."""
    missing = {("missing", "")}
    if metric.missing and metric.labels:
        missing.add(("group", metric.labels[-1]))
    shares = [row.value for row in rows if (row.kind, row.item) in missing]
    return 1 - sum(each for each in shares if each is not None)


def compared(parts: _Parts, others: _Parts, under: float | None = None) -> list[RangeComparison]:
    """Return how much the estimates of ``parts`` exceed those of ``others``, of the same metric.

    A part is compared with the other part of its segment, or with the only other part. Both are of
    the same windows, or have none in common. ``under`` is the share of each one's reports that is
    forged.

    Raises ParameterError if they cannot be compared.
    """
    found: list[RangeComparison] = []
    for part in parts:
        against = [each for each in others if each.run.key == part.run.key]
        if len(against) > 1:
            against = [each for each in against if each.run.segment == part.run.segment]
        for other in against:
            if len(parts) == 1 or part.run != other.run:
                found += _compared(part, other, under)
    if not found:
        raise ParameterError(
            "the two have no estimate in common: both must be of one version of a plan, and of "
            "segments that both have"
        )
    return found


def _are_nested(run: WindowRun, other: WindowRun) -> bool:
    """Return whether a segment is compared with all reports of its windows.

    Raises ParameterError if the two have reports in common in any other way, or compare arms of an
    experiment.
    """
    starts, others = ({each.window_start for each in of.windows} for of in (run, other))
    if not starts & others:
        return False
    names = {*names_of(run.segment), *names_of(other.segment)}
    if (experiment := run.plan.experiment) is not None and experiment.name in names:
        raise ArmsComparedError(
            "arms are compared by --experiment (in Python: reader.effects()), whose intervals hold "
            "for effects"
        )
    if run.windows != other.windows:
        raise ParameterError(
            "the two have only some windows in common: compare ranges that have none, or segments "
            "in windows that have both"
        )
    if run.segment and not other.segment:
        return True
    both = names_of(run.segment) == names_of(other.segment)
    if not both or combinations(run.segment) & combinations(other.segment):
        raise ParameterError(
            f"{run.segment or 'all reports'} and {other.segment or 'all reports'} of one range "
            "have reports in common: compare two ranges, two segments of one kind, or a segment "
            "with all"
        )
    return False


def _compared(part: RangePart, other: RangePart, under: float | None) -> Iterator[RangeComparison]:
    nested = _are_nested(part.run, other.run)
    for key, one in part.items.items():
        if (two := other.items.get(key)) is None:
            continue
        part_of_all = nested and key[0] not in NO_AVERAGES
        free = (_unbounded(key[0], each, part.run.metric) for each in (one, two))
        found = _of_segment(key[0], part.run, one, two) if part_of_all else difference(*free)
        known = math.isfinite(found.standard_error) and not (one.method.biased or two.method.biased)
        ends = (found.low, found.high) if known else (None, None)
        yield RangeComparison(
            **part.named(key),
            **_ends(ends, *(each.moved(part.run.metric.limit, under) for each in (one, two))),
            against_start=other.run.windows[0].window_start,
            against_end=other.run.windows[-1].window_end,
            against_segment=other.run.segment,
            method=(two if two.method.biased else one).method.value,
            against=two.drawn.value,
            difference=without_float_error(found.value, found.standard_error),
            standard_error=found.standard_error if known else None,
            significant=found.significant if known else None,
            smallest_found=found.smallest_found if known else None,
            against_reports=two.drawn.n,
        )


def _tested(kind: str, found: Estimate, metric: CompiledMetric, *, beyond: bool) -> Estimate:
    """Return an estimate with the interval of a test if it is a share of few reports or chances.

    An estimated error is too small if by chance no report says yes. Some mechanisms also have
    reports that say nothing, those of another block. How many these are is seen by the estimated
    error alone: it is the error of the reports that say yes or no, less the holders. Their test has
    at least the variance that the holders alone have. ``beyond``: whether the interval may end
    outside of [0, 1].
    """
    of_levels = enumerate(found.reports_by_level)
    used = [(n, each) for at, n in of_levels if n and (each := metric.mechanism.noise(at))]
    if kind != "share" or not used or not found.scores:
        return replace(found, region=None) if beyond and found.scores else found
    slopes = tuple((n, each.over - each.under) for n, each in used)
    base, step = sum(n * each.no for n, each in used), max(each.step for _, each in used)
    least = None
    # The scores of a yes and of a no, ``over`` and ``1 - under``, alone have this variance.
    if not all(math.isclose(e.no, e.over * (e.under - 1), abs_tol=1e-6) for _, e in used):
        share = min(max(found.value, 0.0), 1.0)
        base = (found.n * found.standard_error) ** 2 - share * sum(n * each for n, each in slopes)
        least = ShareNoise(found.n, 0.0, tuple((n, each.yes) for n, each in used), step)
    noise = ShareNoise(found.n, base, slopes, step, least)
    return replace(found, region=share_region(found.value, noise, beyond=beyond))


def _unbounded(kind: str, item: PooledItem, metric: CompiledMetric) -> Estimate:
    """Return an estimate whose interval is not cut off at the range of possible values.

    Intervals of few reports are cut off there, but the error of a difference of two must not be. A
    mean's interval that ends within the range is kept: it can be far shorter than a normal one, as
    it is if outputs are close together.
    """
    estimate = item.estimate
    if kind == "mean":
        (low, high), near = estimate.interval(), estimate.standard_error / 1000
        least, most = (metric.type == "number" and metric.range) or (-math.inf, math.inf)
        if least + near < low and high < most - near:
            return estimate
    return _tested(kind if item.effect == 1 else "", estimate, metric, beyond=True)


def _of_segment(kind: str, run: WindowRun, one: PooledItem, whole: PooledItem) -> PooledDifference:
    """Return the difference of a segment and all reports, of which it is a part."""
    cycles = {at: max(n - one.cycles.get(at, 0), 0) for at, n in whole.cycles.items()}
    levels = zip(one.drawn.reports_by_level, whole.drawn.reports_by_level, strict=True)
    left = tuple(max(all_ - own, 0) for own, all_ in levels)
    rest = effect_of(run, cycles, left)
    share = min(max(one.weight / whole.weight, 0.0), 1.0)
    found = part_and_whole(one.drawn, whole.drawn, share, (one.effect, rest))
    if kind != "share" or not one.drawn.scores or one.effect != 1 or rest != 1 or share == 1:
        return found
    # The difference is (1 - share) times that of the segment and the other reports; each of these
    # two may have the interval of a test.
    part = 1 - share
    error = math.sqrt(max(found.standard_error**2 - (part * one.drawn.standard_error) ** 2, 0.0))
    value, drawn = one.drawn.value - found.value / part, whole.drawn
    others = Estimate(value, error / part, sum(left), left, scores=drawn.scores, half=drawn.half)
    tested = [_tested(kind, each, run.metric, beyond=True) for each in (one.drawn, others)]
    if all(each.region is None for each in tested):
        return found
    apart = difference(*tested)
    return replace(found, low=part * apart.low, high=part * apart.high)
