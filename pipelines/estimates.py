"""From the counts of a window to the rows that a database is given; the formulas are elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from pipelines.counts import Window, WindowKey
from pipelines.items import Item, estimate, reports_by_level
from pipelines.repeats import design_effect, widened
from sotto.compiled import CompiledMetric, CompiledPlan
from sotto.registry import Registry

#: Candidates of string metrics, by plan fingerprint and metric name.
Candidates: TypeAlias = Mapping[bytes, Mapping[str, Sequence[str]]]


def rows_of_windows(
    windows: Iterable[tuple[WindowKey, Window]], registry: Registry, candidates: Candidates
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of the ``windows`` and ``estimates`` tables for some windows.

    Parameters
    ----------
    windows : iterable of (WindowKey, Window)
        What is counted.
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
        strings = candidates.get(key.fingerprint, {}).get(metric.name, ())
        effect = design_effect(plan, metric)
        items = [
            replace(item, estimate=widened(item.estimate, effect))
            for item in estimate(metric, window.counts, strings)
        ]
        reports = reports_by_level(metric, window.counts, items)
        window_rows.append(
            {
                **common,
                "type": metric.type,
                "mechanism": metric.mechanism.name,
                "n": sum(reports),
                "reports_by_level": reports,
            }
        )
        estimate_rows += [{**common, **_row(i, item)} for i, item in enumerate(items)]
    return window_rows, estimate_rows


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


def _row(position: int, item: Item) -> dict[str, object]:
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
    }
