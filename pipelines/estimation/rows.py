"""From the counts of a window to the rows that all results are made of; the formulas are elsewhere.

Nothing else makes rows of counts, so that what is withheld here is withheld everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from mechanisms.items import Item
from pipelines.aggregation.counts import Window, WindowKey
from pipelines.estimation.items import estimate, reports_by_level
from pipelines.estimation.repeats import design_effect, widened
from pipelines.estimation.small_groups import reason, reasons, withheld_row, withheld_window
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry

#: Candidates of string metrics, by plan fingerprint and metric name.
Candidates: TypeAlias = Mapping[bytes, Mapping[str, Sequence[str]]]


def joined(
    windows: Mapping[WindowKey, Window], registry: Registry
) -> list[tuple[WindowKey, Window]]:
    """Return windows with those of equal metrics in several versions of a plan added up.

    A metric that is the same in two versions is estimated once, under the lowest of them. The
    revision is the highest of the parts'.

    Parameters
    ----------
    windows : mapping of WindowKey to Window
        All that are counted of their metrics and times.
    registry : Registry
        Has the plans of all of them.
    """
    whole: dict[WindowKey, Window] = {}
    for key, window in sorted(windows.items()):
        first = registry.same[key.fingerprint, key.metric][0]
        key = WindowKey(first.fingerprint, first.metric.index, key.start)
        if (before := whole.get(key)) is not None:
            revision = max(before.revision, window.revision)
            window = Window(revision, before.counts + window.counts)
        whole[key] = window
    return sorted(whole.items(), key=lambda pair: pair[0])


def rows_of_windows(
    windows: Iterable[tuple[WindowKey, Window]], registry: Registry, candidates: Candidates
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of the ``windows`` and ``estimates`` tables for some windows.

    Of fewer reports than the plan's ``minimum_reports`` nothing is estimated: neither of a window
    nor, within one that has more, of a vector's coordinate that fewer are about, nor of any of a
    number's bits if fewer are about one of them.

    Parameters
    ----------
    windows : iterable of (WindowKey, Window)
        What is counted, as of :func:`joined`.
    registry : Registry
        Has the plans of all of them.
    candidates : mapping
        The strings to look for, by fingerprint and metric; none are found where there are none.
    """
    window_rows, estimate_rows = [], []
    for key, window in windows:
        plan = registry.by_fingerprint[key.fingerprint]
        metric = plan.metrics[key.metric]
        common = _common(plan, metric, key, window)
        strings = _strings(key, registry, candidates)
        effect = design_effect(plan, metric)
        least = registry.minimum_reports(key.fingerprint, key.metric)
        items = [
            replace(item, estimate=widened(item.estimate, effect))
            for item in estimate(metric, window.counts, strings, least)
        ]
        reports = reports_by_level(metric, window.counts, items)
        why = reason(sum(reports), least)
        window_rows.append(
            {
                **common,
                "type": metric.type,
                "mechanism": metric.mechanism.name,
                "n": sum(reports),
                "reports_by_level": reports,
                "minimum_reports": least,
                "withheld": why,
            }
        )
        if why is not None:
            rows = withheld_window(metric, window.counts, strings, reports, why)
        else:
            whys = reasons(items, least)
            rows = (_row(n, *pair) for n, pair in enumerate(zip(items, whys, strict=True)))
        estimate_rows += [{**common, **row} for row in rows]
    return window_rows, estimate_rows


def _strings(key: WindowKey, registry: Registry, candidates: Candidates) -> Sequence[str]:
    """Return what to look for: the candidates of all versions, in order, each once."""
    versions = registry.same[key.fingerprint, key.metric]
    found = [candidates.get(each.fingerprint, {}).get(each.metric.name, ()) for each in versions]
    return list(dict.fromkeys(string for strings in found for string in strings))


def _common(
    plan: CompiledPlan, metric: CompiledMetric, key: WindowKey, window: Window
) -> dict[str, object]:
    return {
        "collector": plan.collector,
        "plan": plan.plan,
        "version": plan.version,
        "metric": metric.name,
        "window_start": key.start,
        "window_end": key.start + metric.window,
        "revision": window.revision,
    }


def _row(position: int, item: Item, why: str | None) -> dict[str, object]:
    if why is not None:
        return withheld_row(position, item, item.estimate.reports_by_level, why)
    low, high = item.estimate.interval()
    return {
        "kind": item.kind,
        "item": item.item,
        "position": position,
        "value": item.estimate.value,
        "standard_error": item.estimate.standard_error,
        "low": low,
        "high": high,
        "display": item.display,
        "n": item.estimate.n,
        "reports_by_level": list(item.estimate.reports_by_level),
        "detection_floor": item.estimate.detection_floor,
        "significant": item.significant,
        "p_value": item.p_value,
        "confounded_with": list(item.confounded_with) or None,
        "unit": item.unit,
        "method": item.method.value,
        "withheld": None,
    }
