"""From the counts of a window to the rows that a database is given; the formulas are elsewhere.

Kinds of estimate: ``share`` of a category; ``mean``, ``missing``, ``quantile``, ``cdf`` and
``bit`` of a number; ``string``, ``missing`` and ``unexplained`` of a string metric. ``display``
is the Norm-Sub value of what sums to one: it stands beside the estimate, and the interval does
not belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mechanisms.decoding import decode
from mechanisms.estimate import Estimate
from mechanisms.frequency import frequencies, norm_sub
from mechanisms.numeric import NumericEstimates, numeric
from mechanisms.rappor import RapporLadder
from pipelines.counts import Matrix, Window, WindowKey
from sotto.compiled import CompiledMetric, CompiledPlan
from sotto.registry import Registry
from sotto.values import MISSING_STRING

#: Candidates of string metrics, by plan fingerprint and metric name.
Candidates: TypeAlias = Mapping[bytes, Mapping[str, Sequence[str]]]


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
    """

    kind: str
    item: str
    estimate: Estimate
    unit: str | None = "share"
    display: float | None = None
    p_value: float | None = None
    significant: bool | None = None
    confounded_with: tuple[str, ...] = ()


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
        items = list(estimate(metric, window.counts, strings))
        window_rows.append(
            {
                **common,
                "type": metric.type,
                "mechanism": metric.mechanism.name,
                "n": items[0].estimate.n,
                "reports_by_level": list(items[0].estimate.reports_by_level),
            }
        )
        estimate_rows += [{**common, **_row(i, item)} for i, item in enumerate(items)]
    return window_rows, estimate_rows


def estimate(metric: CompiledMetric, counts: Matrix, candidates: Sequence[str]) -> Iterator[Item]:
    """Yield all that the counts of a window tell about a metric; at least one item.

    Parameters
    ----------
    metric : CompiledMetric
    counts : (rungs, length) int64
    candidates : sequence of str
        For a string metric.
    """
    if metric.type in ("category", "boolean"):
        return _shares(metric, counts)
    if metric.type == "string":
        return _strings(metric, counts, candidates)
    return _number(metric, counts)


def _shares(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    estimates = frequencies(metric.mechanism, counts)
    values = np.array([each.value for each in estimates])
    shown = norm_sub(values).tolist() if np.isfinite(values).all() else [None] * len(values)
    for label, each, display in zip(metric.labels, estimates, shown, strict=True):
        yield Item("share", label, each, display=display)


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


def _number(metric: CompiledMetric, counts: Matrix) -> Iterator[Item]:
    assert metric.range is not None
    found = numeric(metric.mechanism, counts, *metric.range)
    yield Item("mean", "", found.mean, metric.unit)
    if found.missing is not None:
        yield Item("missing", "", found.missing)
    for probability, each in (found.quantiles or {}).items():
        yield Item("quantile", repr(probability), each, metric.unit)
    for number, each in enumerate(found.bit_means or (), start=1):
        yield Item("bit", str(number), each)
    yield from _distribution(found)


def _distribution(found: NumericEstimates) -> Iterator[Item]:
    if found.cdf is None:
        return
    columns = (found.cdf.grid, found.cdf.values, found.cdf.standard_errors)
    for at, value, error in zip(*(column.tolist() for column in columns), strict=True):
        point = Estimate(value, error, found.mean.n, found.mean.reports_by_level)
        yield Item("cdf", repr(at), point)


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
    }
