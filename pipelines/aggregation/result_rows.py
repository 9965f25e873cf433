"""From the counts of a window to the rows of all results; estimates of few reports are withheld.

Tables, documents, metrics and pages are all made of these rows, so none of them can leave out the
rule for small groups (:mod:`pipelines.aggregation.published`). A withheld window has the same rows
as a window without reports, whatever its reports say; they have the numbers of reports, which are
not protected, and null in every field that is computed from payloads. With segments each slice of a
window has rows of its own (:mod:`pipelines.aggregation.breakdown`).

Runs and streaming jobs call :func:`joined`, :func:`published_again` and :func:`rows_of_windows`, in
this order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeAlias, cast

import numpy as np

from mechanisms.estimators.poisoning import Irregularity, alarms
from mechanisms.items import MAX_STRATA, Item
from pipelines.aggregation.breakdown import Slice, broken_down
from pipelines.aggregation.comparison import compared
from pipelines.aggregation.counts import Matrix, WindowCounts, WindowKey
from pipelines.aggregation.pairs import split
from pipelines.aggregation.publication import Publication, reason
from pipelines.aggregation.published import (
    NOTHING,
    PublishedWindow,
    renewed,
    steadied,
    windows_before,
)
from pipelines.aggregation.rounding import RoundingStep, multiple, probability, step_of
from pipelines.results.fields import Rounding, fields_of
from pipelines.results.records import EstimateRecord
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry

#: Candidates of string metrics, by plan fingerprint and metric name.
Candidates: TypeAlias = Mapping[bytes, Mapping[str, Sequence[str]]]

#: Kinds of estimates that can be made only where all strata are told apart: a number's bits.
PARTS = frozenset({"bit"})

#: Kinds of estimates that count names or reports, which are not rounded.
UNROUNDED = frozenset({"arm_share", "false_names"})

#: How the fields that are computed from payloads are rounded. In a withheld row they are null.
_OF_PAYLOADS = {
    each.stored: each.about.rounding for each in fields_of(EstimateRecord) if each.about.rounding
}


def estimate(
    metric: CompiledMetric,
    counts: Matrix,
    candidates: Sequence[str],
    least: int = 1,
    strata: int = MAX_STRATA,
) -> Iterator[Item]:
    """Yield all estimates that a metric's counts ``(levels, count_length)`` allow.

    ``candidates``: the strings to look for. ``least``: the plan's ``minimum_reports``. ``strata``:
    how many strata of a number's reports are used, at most.
    """
    context = replace(metric.context(candidates, least), strata=strata)
    return metric.mechanism.estimate(counts, context)


def design_effect(plan: CompiledPlan, metric: CompiledMetric) -> float:
    """Return the factor by which reports of one device in a window enlarge the variance, at most.

    For a constant metric it is ``1 + (k - 1) r``: k is the most budget periods that a window has a
    part of, and r the part of the noise that all reports of a device share (:func:`shared_part`).
    For other metrics it is 1. L. Kish, "Survey Sampling", Wiley 1965, section 5.4.
    """
    others = plan.periods_in(metric) - 1
    return 1 + others * shared_part(metric) if others else 1.0


def shared_part(metric: CompiledMetric, reports_by_level: Sequence[int] = ()) -> float:
    """Return which part of the variance of reports' noise is that of permanent responses, at most.

    It is 0 for a metric that is not constant. A report's contribution to an estimate has, given the
    device's permanent response, the contribution of that response as its mean. So the part is the
    ratio of the two variances; it is taken as 1 if that is not known. ``reports_by_level``: if
    empty, all reports are taken to be of the last level that is sent.
    """
    if metric.kind != "constant":
        return 0.0
    if metric.type not in ("category", "boolean", "survey"):
        return 1.0
    mechanism, last = metric.mechanism, metric.sent - 1
    part = mechanism.shared_noise(metric.sent)
    noises = [mechanism.noise(level) for level in range(metric.sent)]
    sent = [(n, each) for n, each in zip(reports_by_level, noises, strict=False) if n and each]
    if (strongest := noises[last]) is None or not sent:
        return part
    reports = sum(n for n, _ in sent)
    # Reports of weaker levels have more noise of their own.
    ratios = [
        reports * getattr(strongest, truth) / total
        for truth in ("no", "yes")
        if (total := sum(n * getattr(each, truth) for n, each in sent)) > 0
    ]
    return min(part * max(ratios, default=1.0), 1.0)


def joined(
    windows: Mapping[WindowKey, WindowCounts], registry: Registry, time: int | None
) -> list[tuple[WindowKey, WindowCounts]]:
    """Return windows, with those of a metric that several versions of a plan share added up.

    A metric that is the same in two versions is estimated once, under the lowest version. All cells
    of a window get the highest revision among the windows that are added, since they are published
    together. ``windows``: all windows of their metrics and times. ``time``: the log's clock, ms,
    the append time up to which reports are counted; None before the first report.
    """
    counts: dict[WindowKey, Matrix] = {}
    revisions: dict[tuple[bytes, int, int], int] = {}
    for key, window in sorted(windows.items()):
        first = registry.same[key.fingerprint, key.metric][0]
        key = WindowKey(first.fingerprint, first.metric.index, key.start, key.cell)
        counts[key] = counts[key] + window.counts if key in counts else window.counts
        revisions[key[:3]] = max(revisions.get(key[:3], 0), window.revision)
    found = []
    for key in sorted(counts):
        due = registry.complete_at(key.fingerprint, key.metric, key.start)
        complete = time is not None and time >= due
        found.append((key, WindowCounts(revisions[key[:3]], counts[key], complete)))
    return found


def published_again(
    windows: Iterable[tuple[WindowKey, WindowCounts]],
    registry: Registry,
    published: Mapping[WindowKey, PublishedWindow],
    revision: int,
) -> dict[WindowKey, PublishedWindow]:
    """Return what is published of windows of :func:`joined` from now on.

    ``published``: what was published of them, and of the windows before them: segments that those
    withheld are held back. ``revision``: that of publications that are made now.
    """
    found: dict[WindowKey, PublishedWindow] = {}
    for key, cells in _by_window(windows):
        plan = registry.by_fingerprint[key.fingerprint]
        least = registry.minimum_reports(key.fingerprint, key.metric)
        before = published.get(key, NOTHING)
        metric = plan.metrics[key.metric]
        made = renewed(before, plan, metric, cells, least, revision)
        earlier = (
            found.get(each) or published.get(each) for each in windows_before(key, metric.window)
        )
        settled = (each.held for each in earlier if each and each.complete and not each.superseded)
        found[key] = steadied(before, made, plan, metric, next(settled, {}))
    return found


def _by_window(
    windows: Iterable[tuple[WindowKey, WindowCounts]],
) -> Iterator[tuple[WindowKey, dict[int, WindowCounts]]]:
    for start, group in groupby(windows, lambda pair: pair[0][:3]):
        yield WindowKey(*start), {key.cell: window for key, window in group}


def rows_of_windows(
    windows: Sequence[tuple[WindowKey, WindowCounts]],
    registry: Registry,
    candidates: Candidates,
    published: Mapping[WindowKey, PublishedWindow] | None = None,
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of the ``windows`` and ``estimates`` tables for windows of :func:`joined`.

    ``candidates``: the strings to look for. ``published``: what :func:`published_again` returned
    for the windows; None if this is their first publication. All cells of a window are given
    together. Its rows of all reports come first, with an empty ``segment``, then those of the
    slices that have reports.

    ``reports_by_level`` of a window are all reports that have come; those of an estimate are the
    ones that it is made of. The row of a window of all reports has a field ``alarms``: rows of the
    table of that name, without the key that they share with the window.
    """
    window_rows: list[dict[str, object]] = []
    estimate_rows: list[dict[str, object]] = []
    if published is None:
        published = published_again(windows, registry, {}, 0)
    for key, cells in _by_window(windows):
        of_window = _Rows(registry, candidates, key, cells, published.get(key, NOTHING))
        window_rows += of_window.windows
        estimate_rows += of_window.estimates
    return window_rows, estimate_rows


def rows_of_sum(
    metric: CompiledMetric,
    counts: Matrix,
    strings: Sequence[str],
    least: int,
    strata: int,
    effect: float,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of estimates from a sum of published tables, without the names of a window.

    ``counts``: the sum. ``strata``: how many strata every one of the tables tells apart.
    ``effect``: the factor by which variances are larger (:func:`design_effect`).
    """
    for item in estimate(metric, counts, strings, least, strata):
        item = replace(item, estimate=item.estimate.widened(effect))
        found = item.estimate
        yield _row_of(metric, item, found.reports_by_level, reason(found.n, least), least)


class _Rows:
    """The rows of one window of a metric: of all reports, and of the slices that have any."""

    def __init__(
        self,
        registry: Registry,
        candidates: Candidates,
        key: WindowKey,
        cells: Mapping[int, WindowCounts],
        published: PublishedWindow,
    ) -> None:
        self.plan = registry.by_fingerprint[key.fingerprint]
        self.metric = self.plan.metrics[key.metric]
        self.strings = strings_of(key, registry, candidates)
        self.least = registry.minimum_reports(key.fingerprint, key.metric)
        self.effect = design_effect(self.plan, self.metric)
        first, *_ = cells.values()
        self.common = {
            "collector": self.plan.collector,
            "plan": self.plan.plan,
            "version": self.plan.version,
            "metric": self.metric.name,
            "window_start": key.start,
            "window_end": key.start + self.metric.window,
            "revision": max(first.revision, published.revision),
            "complete": published.complete,
        }
        self.windows: list[dict[str, object]] = []
        self.estimates: list[dict[str, object]] = []
        mechanism = self.metric.mechanism
        self.arrived = np.zeros((self.plan.cells, mechanism.levels), dtype=np.int64)
        for cell, window in cells.items():
            self.arrived[cell] = mechanism.reports_by_level(split(mechanism, window.counts)[0])
        parts = {cell: split(mechanism, matrix) for cell, matrix in published.counts.items()}
        counts = {cell: part for cell, (part, _) in parts.items()}
        self.published = Publication(
            self.plan, self.metric, counts, self.least, published.strata, published.held
        )
        self._add(self.published.whole)
        (total,) = self.windows
        pairs = [part for _, part in parts.values()]
        total["alarms"] = [] if total["withheld"] else self._alarms(np.sum(pairs, axis=0))
        if self.plan.attributes and published.segments:
            self._break_down()

    def _alarms(self, pairs: Matrix) -> list[dict[str, object]]:
        """Return the alarms of all reports as rows of the table ``alarms``, without its key."""
        whole = self.published.whole
        together = self.plan.periods_in(self.metric) if self.metric.kind == "constant" else 1
        context = self.metric.context(least=self.least)
        context = replace(context, strata=self.published.strata(whole))
        counts = self.published.table(whole)
        found = alarms(self.metric.mechanism, counts, pairs, context, together)
        return [_alarm(each, self.least) for each in found]

    def _break_down(self) -> None:
        names, experiment = [str(row["item"]) for row in self.estimates], self.plan.experiment
        number_of_arms = 0 if experiment is None else len(experiment.arms)
        chosen = [*broken_down(self.plan.attributes, self.metric.type, names, number_of_arms)]
        depths = {len(each.fixed) for each in chosen}
        unions = [each for each in self.published.unions if len(each.fixed) in depths]
        for each in (*chosen, *unions):
            if self.published.reports(each).any():
                self._add(each)
        if experiment is not None:
            self._compare()

    def _compare(self) -> None:
        """Add the rows that compare arms, behind the other rows of each arm's slice."""
        positions = Counter(row["segment"] for row in self.estimates)
        for segment, item, why in compared(self.published, self.arrived):
            if segment in positions:
                row = _row_of(self.metric, item, item.estimate.reports_by_level, why, self.least)
                named = {**self.common, "segment": segment, "position": positions[segment]}
                self.estimates.append({**named, **row})
                positions[segment] += 1

    def _add(self, part: Slice) -> None:
        """Add the rows of a slice."""
        metric, least, counts = self.metric, self.least, self.published.table(part)
        strata, reports = self.published.strata(part), self.arrived[[*part.cells]].sum(axis=0)
        why, reports = self.published.why(part, reports), reports.tolist()
        items = [
            replace(item, estimate=item.estimate.widened(self.effect))
            for item in estimate(metric, counts, self.strings, least, strata)
        ]
        of_window = {
            "type": metric.type,
            "mechanism": metric.mechanism.name,
            "n": sum(reports),
            "reports_by_level": reports,
            "minimum_reports": least,
            "withheld": why,
        }
        named = {**self.common, "segment": part.name}
        self.windows.append({**named, **of_window})
        apart = strata == len(metric.mechanism.joins[-1])
        for number, item in enumerate(items):
            # Bits have rows for all reports alone: few slices have enough reports of every bit.
            if not part.name or item.kind not in PARTS:
                by_level = reports if why else item.estimate.reports_by_level
                of_item = why or reason(item.estimate.n, least)
                if item.kind in PARTS and not apart:
                    of_item = of_item or f"a {item.kind} has too few reports of a level"
                row = _row_of(metric, item, by_level, of_item, least)
                self.estimates.append({**named, "position": number, **row})


def _row_of(
    metric: CompiledMetric, item: Item, by_level: Sequence[int], why: str | None, least: int
) -> dict[str, object]:
    """Return the row of an estimate, rounded; it has all digits if the plan asks for one report."""
    row, step = _row(item, by_level, why), RoundingStep(0.0)
    if least > 1 and item.kind not in UNROUNDED:
        step = step_of(metric.mechanism, by_level, _length(metric, item))
        _round(row, step)
    if why is None and (scores := item.estimate.scores):
        row |= _forged(scores, cast(float, row["value"]), item.estimate.n, step, metric.limit)
    if item.kind == "mean" and isinstance(value := row["value"], float):
        # The shown value of a mean is one that is possible, whatever noise and rounding do.
        low, high = _ends(metric)
        row["display"] = min(max(value, low), high)
    return row


def _row(item: Item, by_level: Sequence[int], withheld: str | None) -> dict[str, object]:
    """Return the row of an estimate; if it is withheld, fields that come from payloads are null.

    An estimate that is known to be biased has no standard error and no interval.
    """
    found = item.estimate
    row: dict[str, object] = {
        "kind": item.kind,
        "item": item.item,
        **dict.fromkeys(_OF_PAYLOADS),
        "n": found.n if withheld is None else sum(by_level),
        "reports_by_level": list(by_level),
        "unit": item.unit,
        "method": item.method.value,
        "withheld": withheld,
    }
    if withheld is None:
        row |= {
            "value": found.value,
            "display": item.display,
            "detection_floor": found.detection_floor,
            "reach": None if found.reach is None else [list(each) for each in found.reach],
            "arms": [list(each) for each in item.arms] or None,
            "significant": item.significant,
            "p_value": item.p_value,
            "confounded_with": list(item.confounded_with) or None,
        }
        if not item.method.biased:
            low, high = found.interval()
            row |= {"standard_error": found.standard_error, "low": low, "high": high}
    return row


def _forged(
    scores: tuple[float, float], value: float, n: int, step: RoundingStep, reports: int
) -> dict[str, object]:
    """Return how far ``reports`` more reports can move an estimate that is made of ``n``.

    ``scores``: the least and the largest that a report can score. The result is computed from the
    published value and rounded scores, so that it shows nothing that these do not.
    """
    down = value + step.size / 2 - step.down(scores[0])
    up = step.up(scores[1]) - value + step.size / 2
    moves = (multiple(reports * each / (n + 1)) for each in (down, up))
    return dict(zip(("forged_down", "forged_up"), moves, strict=True))


def _alarm(found: Irregularity, least: int) -> dict[str, object]:
    """Return the row of an alarm, its figures with four digits as in its message."""
    names = "kind", "statistic", "expected", "threshold", "p_value", "n", "message"
    row: dict[str, Any] = {name: getattr(found, name) for name in names}
    if least > 1:
        for name in ("statistic", "expected", "threshold"):
            row[name] = float(f"{row[name]:.4g}")
        row["p_value"] = probability(row["p_value"])
    return row


def _round(row: dict[str, object], step: RoundingStep) -> None:
    """Round the figures of an estimate's row."""
    how: dict[Rounding, Callable[[Any], object]] = {
        "exact": lambda figure: figure,
        "nearest": step.nearest,
        "up": step.up,
        "down": step.down,
        "error": step.error,
        "probability": probability,
        "multiple": multiple,
        "multiples": lambda reach: [[*map(multiple, each)] for each in reach],
        "averages": lambda arms: [[reports, step.nearest(mean)] for reports, mean in arms],
    }
    row |= {
        name: how[rounding](row[name])
        for name, rounding in _OF_PAYLOADS.items()
        if row[name] is not None
    }


def _length(metric: CompiledMetric, item: Item) -> float:
    """Return the length of the range in which the true value of an estimate lies, in its unit."""
    low, high = (0.0, 1.0) if item.unit == "share" else _ends(metric)
    return float(high - low)


def _ends(metric: CompiledMetric) -> tuple[float, float]:
    """Return the lowest and the highest value that a metric's values stand for."""
    if metric.type == "ordinal":
        # Ranks are counted from 1.
        ranks = 1, len(metric.labels) - metric.missing
        return (min(metric.points), max(metric.points)) if metric.range is not None else ranks
    return metric.range or (0.0, 1.0)


def strings_of(key: WindowKey, registry: Registry, candidates: Candidates) -> Sequence[str]:
    """Return the strings to look for: the candidates of all versions, in order, each once."""
    versions = registry.same[key.fingerprint, key.metric]
    found = [candidates.get(each.fingerprint, {}).get(each.metric.name, ()) for each in versions]
    return list(dict.fromkeys(string for strings in found for string in strings))
