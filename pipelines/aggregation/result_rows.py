"""From the counts of a window to the rows of all results; estimates of few reports are withheld.

Tables, documents, metrics and pages are all made of these rows, so none of them can leave the
rule for small groups out. Which rows a withheld window has does not depend on its reports: they
are those of a window without any, with the numbers of reports, which are not protected; every
field that is computed from payloads is null. Parts of a total that is published are published all
or none: from the total and all parts but one, the last part would follow. Of a plan with segments
each slice of a window has rows of its own (:mod:`pipelines.aggregation.breakdown`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.estimate import Estimate
from mechanisms.estimators.poisoning import alarms
from mechanisms.items import Item
from pipelines.aggregation.breakdown import broken_down, withheld
from pipelines.aggregation.comparison import Arms, last_alone, late_cells
from pipelines.aggregation.counts import Matrix, Window, WindowKey
from pipelines.aggregation.pairs import split
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry

#: Candidates of string metrics, by plan fingerprint and metric name.
Candidates: TypeAlias = Mapping[bytes, Mapping[str, Sequence[str]]]

#: Kinds of estimates that are parts of another one that is published: a number's bits, of its mean.
#: A vector's coordinates are parts of nothing, and all others are made of all reports.
PARTS = frozenset({"bit"})

#: Why a slice of enough reports is withheld.
_COMPLEMENT = "with it, the estimate of a segment with too few reports could be computed"

#: What is computed from payloads, and so null in a row that is withheld.
_OF_PAYLOADS = (
    "value",
    "standard_error",
    "low",
    "high",
    "display",
    "detection_floor",
    "significant",
    "p_value",
    "confounded_with",
)


def estimate(
    metric: CompiledMetric, counts: Matrix, candidates: Sequence[str], least: int = 1
) -> Iterator[Item]:
    """Yield all that counts tell; no stratum of a number is to have fewer than ``least``."""
    return metric.mechanism.estimate(counts, metric.context(candidates, least))


def design_effect(plan: CompiledPlan, metric: CompiledMetric) -> float:
    """Return by what factor the variance of an estimate of a metric is larger, at most.

    That is ``1 + (k - 1) r`` for a constant metric, k being the most periods that a window has a
    part of, and r the part of a report's noise that is the permanent response's; 1 for others.
    Given the permanent response, a report's contribution has that one's as its mean. So r is the
    ratio of their variances, and 1 where that is not known. L. Kish, "Survey Sampling", Wiley 1965,
    section 5.4.
    """
    if metric.kind != "constant" or (periods := plan.periods_in(metric)) == 1:
        return 1.0
    finite = metric.type in ("category", "boolean", "survey")
    return 1 + (periods - 1) * (metric.mechanism.shared_noise(metric.sent) if finite else 1.0)


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


def joined(
    windows: Mapping[WindowKey, Window], registry: Registry
) -> list[tuple[WindowKey, Window]]:
    """Return windows with those of equal metrics in several versions of a plan added up.

    A metric that is the same in two versions is estimated once, under the lowest of them, with the
    highest revision of the parts, as are its cells, which are published together. Given are all
    windows of their metrics and times.
    """
    counts: dict[WindowKey, Matrix] = {}
    revisions: dict[tuple[bytes, int, int], int] = {}
    for key, window in sorted(windows.items()):
        first = registry.same[key.fingerprint, key.metric][0]
        key = WindowKey(first.fingerprint, first.metric.index, key.start, key.cell)
        counts[key] = counts[key] + window.counts if key in counts else window.counts
        revisions[key[:3]] = max(revisions.get(key[:3], 0), window.revision)
    return [(key, Window(revisions[key[:3]], counts[key])) for key in sorted(counts)]


def rows_of_windows(
    windows: Iterable[tuple[WindowKey, Window]], registry: Registry, candidates: Candidates
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of the ``windows`` and ``estimates`` tables for windows of :func:`joined`.

    Of fewer reports than the plan's ``minimum_reports`` nothing is estimated: neither of a window
    nor, within one that has more, of a vector's coordinate that fewer are about, nor of any of a
    number's bits if fewer are about one of them. ``candidates`` are the strings to look for. Of a
    plan with segments the cells of a window are given together; rows of their total come first,
    with an empty ``segment``, then those of the slices that have reports. The row of a window's
    total has as ``alarms`` rows of the table of that name, without the key that they share with it.
    """
    window_rows: list[dict[str, object]] = []
    estimate_rows: list[dict[str, object]] = []
    for (fingerprint, index, start), group in groupby(windows, lambda pair: pair[0][:3]):
        cells = {key.cell: window for key, window in group}
        of_window = _Rows(registry, candidates, WindowKey(fingerprint, index, start), cells)
        window_rows += of_window.windows
        estimate_rows += of_window.estimates
    return window_rows, estimate_rows


class _Rows:
    """The rows of one window of a metric: of all reports, and of the slices that have any."""

    def __init__(
        self,
        registry: Registry,
        candidates: Candidates,
        key: WindowKey,
        cells: Mapping[int, Window],
    ) -> None:
        self.plan = registry.by_fingerprint[key.fingerprint]
        self.metric = self.plan.metrics[key.metric]
        self.strings = _strings(key, registry, candidates)
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
            "revision": first.revision,
        }
        self.windows: list[dict[str, object]] = []
        self.estimates: list[dict[str, object]] = []
        parts = {cell: split(self.metric.mechanism, each.counts) for cell, each in cells.items()}
        counts = {cell: part for cell, (part, _) in parts.items()}
        arrived = self._by_level(counts)
        late = late_cells(self.plan, self.metric, counts, arrived, self.least)
        pairs = {cell: part for cell, (_, part) in parts.items()}
        for cell in counts.keys() & late:
            # Pairs of what is left out are, too: these are with the last level of reports that are
            # counted, as alarms compare them.
            counts[cell] = last_alone(self.metric, counts[cell])
            pairs[cell] = last_alone(self.metric, pairs[cell])
        whole = np.sum([*counts.values()], axis=0)
        self._add("", whole, None)
        (total,) = self.windows
        seen = np.sum([*pairs.values()], axis=0)
        total["alarms"] = [] if total["withheld"] else self._alarms(whole, seen)
        if self.plan.attributes:
            self._break_down(counts, arrived, late)

    def _alarms(self, counts: Matrix, pairs: Matrix) -> list[dict[str, object]]:
        """Return the rows of the table ``alarms`` of all reports, without its key."""
        together = self.plan.periods_in(self.metric) if self.metric.kind == "constant" else 1
        context = self.metric.context(least=self.least)
        found = alarms(self.metric.mechanism, counts, pairs, context, together)
        return [asdict(each) for each in found]

    def _by_level(self, counts: Mapping[int, Matrix]) -> NDArray[np.int64]:
        """Return how many reports of each level there are by cell; nothing without attributes."""
        found = np.zeros((self.plan.cells, len(self.metric.ladder)), dtype=np.int64)
        for cell, matrix in counts.items() if self.plan.attributes else ():
            items = [*estimate(self.metric, matrix, ())]
            found[cell] = self.metric.mechanism.reports_by_level(matrix, items)
        return found

    def _break_down(
        self, counts: Mapping[int, Matrix], arrived: NDArray[np.int64], late: Sequence[int]
    ) -> None:
        by_level = arrived.copy()
        for cell in late:
            by_level[cell] = last_alone(self.metric, arrived[cell])
        reports = by_level.sum(axis=1)
        few = withheld(self.plan.attributes, reports, self.least)
        names, experiment = [str(row["item"]) for row in self.estimates], self.plan.experiment
        number_of_arms = 0 if experiment is None else len(experiment.arms)
        of_type = self.metric.type
        for each in broken_down(self.plan.attributes, of_type, names, number_of_arms):
            number = int(reports[[*each.cells]].sum())
            if number:
                own = reason(number, self.least)
                why = own or (_COMPLEMENT if each.name in few else None)
                inside = [counts[cell] for cell in each.cells if cell in counts]
                self._add(each.name, np.sum(inside, axis=0), why)
        if self.plan.experiment is not None:
            arms = Arms(self.plan, self.metric, counts, by_level, arrived, few, self.least)
            self._compare(arms)

    def _compare(self, arms: Arms) -> None:
        """Add the rows of arms behind those of their slices, if these have any."""
        positions = Counter(row["segment"] for row in self.estimates)
        for segment, item, why in arms.compared():
            if segment in positions:
                row = _row(item, item.estimate.reports_by_level, why)
                named = {**self.common, "segment": segment, "position": positions[segment]}
                self.estimates.append({**named, **row})
                positions[segment] += 1

    def _add(self, segment: str, counts: Matrix, why: str | None) -> None:
        """Add the rows of a slice, which are withheld for some reason or for none."""
        metric, least = self.metric, self.least
        items = [
            replace(item, estimate=widened(item.estimate, self.effect))
            for item in estimate(metric, counts, self.strings, least)
        ]
        reports = metric.mechanism.reports_by_level(counts, items)
        why = why or reason(sum(reports), least)
        if why is None:
            reasons = list(_reasons(items, least))
            by_level: Sequence[Sequence[int]] = [item.estimate.reports_by_level for item in items]
        else:
            items = [*estimate(metric, np.zeros_like(counts), self.strings)]
            reasons, by_level = [why] * len(items), [reports] * len(items)
        of_window = {
            "type": metric.type,
            "mechanism": metric.mechanism.name,
            "n": sum(reports),
            "reports_by_level": reports,
            "minimum_reports": least,
            "withheld": why,
        }
        named = {**self.common, "segment": segment}
        self.windows.append({**named, **of_window})
        rows = zip(items, by_level, reasons, strict=True)
        for number, (item, levels, of_item) in enumerate(rows):
            # Made of a part of the reports: the rule of slices is for all of them.
            if not segment or item.kind not in PARTS:
                row = _row(item, levels, of_item)
                self.estimates.append({**named, "position": number, **row})


def reason(reports: int, least: int) -> str | None:
    """Return why an estimate of so many reports is withheld under a plan's ``minimum_reports``.

    >>> reason(7, 20), reason(1, 2), reason(20, 20)
    ('7 reports, the plan asks for 20', '1 report, the plan asks for 2', None)
    """
    if reports >= least:
        return None
    return f"{reports:,} report{'' if reports == 1 else 's'}, the plan asks for {least:,}"


def _reasons(items: Sequence[Item], least: int) -> Iterator[str | None]:
    """Yield why each estimate of a window is withheld; None of one that is not."""
    # A part of no report adds nothing to the total.
    parts = [item.estimate.n for item in items if item.kind in PARTS and item.estimate.n]
    short = reason(min(parts, default=least), least)
    for item in items:
        own = reason(item.estimate.n, least)
        yield (
            f"another {item.kind} has {short}" if item.kind in PARTS and short and not own else own
        )


def _row(item: Item, by_level: Sequence[int], withheld: str | None) -> dict[str, object]:
    """Return the row of an estimate; where it is withheld, nothing in it is of payloads.

    An estimate that is known to be biased has no standard error and no interval.
    """
    found = item.estimate
    row: dict[str, object] = {
        "kind": item.kind,
        "item": item.item,
        **dict.fromkeys(_OF_PAYLOADS),
        "reach": None,
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
            "significant": item.significant,
            "p_value": item.p_value,
            "confounded_with": list(item.confounded_with) or None,
        }
        if not item.method.biased:
            low, high = found.interval()
            row |= {"standard_error": found.standard_error, "low": low, "high": high}
    return row


def _strings(key: WindowKey, registry: Registry, candidates: Candidates) -> Sequence[str]:
    """Return what to look for: the candidates of all versions, in order, each once."""
    versions = registry.same[key.fingerprint, key.metric]
    found = [candidates.get(each.fingerprint, {}).get(each.metric.name, ()) for each in versions]
    return list(dict.fromkeys(string for strings in found for string in strings))
