"""Counts out of published estimates: of a window of the fleet, which values count, at which level.

An estimated share is (Σ g_r · (c_r − n_r · q_r)) / n over levels r: n_r reports of a level, c_r
of them saying the symbol, and g_r = 1 / (p_r − q_r). Since the numbers of reports are published
too and the g_r differ, a share tells the few c_r that a bucket can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

import numpy as np

from benchmarks.soak.fleet import LEVELS, SYMBOLS, Fleet
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.sinks.documents import WindowDocument
from sotto.plan.compiled import CompiledMetric

#: So many reports at most are looked for in one bucket.
_MOST = 3
_TOLERANCE = 1e-6


class UnexplainedError(Exception):
    """Published estimates that no counts of few reports a bucket give."""


def windows_of(
    documents: Iterable[WindowDocument], fleet: Fleet
) -> Iterator[tuple[WindowKey, Matrix]]:
    """Yield the counts behind published windows of the fleet's metrics.

    Raises
    ------
    UnexplainedError
        See :func:`counts_of`.
    """
    metrics = {metric.name: metric for metric in fleet.metrics}
    for document in documents:
        window = document.window
        metric = metrics.get(str(window["metric"]))
        if metric is None:
            continue
        key = WindowKey(fleet.plan.fingerprint, metric.index, int(str(window["window_start"])))
        yield key, counts_of(metric, window, document.estimates)


def counts_of(
    metric: CompiledMetric, window: Mapping[str, object], estimates: Sequence[Mapping[str, object]]
) -> Matrix:
    """Return what is counted in a window, shape (LEVELS, SYMBOLS).

    Parameters
    ----------
    metric : CompiledMetric
    window, estimates : mapping and sequence of mappings
        As published.

    Raises
    ------
    UnexplainedError
        No counts of at most ``_MOST`` reports a bucket give these shares and these numbers.
    """
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    reports = window["reports_by_level"]
    assert isinstance(reports, list)
    if not estimates:
        return counted
    ends = [metric.mechanism.rung_probabilities(level)[0] for level in range(LEVELS)]
    gain = np.array([1 / (p - q) for p, q in ends])
    noise = sum(n * q * g for n, (_, q), g in zip(reports, ends, gain, strict=True))
    known = {0.0: (0,) * LEVELS}
    for number in range(1, _MOST + 1):
        for levels in combinations_with_replacement(range(LEVELS), number):
            known[sum(gain[level] for level in levels)] = tuple(map(levels.count, range(LEVELS)))
    sums, vectors = np.array(list(known)), np.array(list(known.values()))
    shares = [row for row in estimates if row["kind"] == "share"]
    places = [metric.symbols[str(row["item"])] for row in shares]
    said = np.array([float(str(row["value"])) for row in shares]) * sum(reports) + noise
    nearest = np.abs(said[:, None] - sums[None, :]).argmin(axis=1)
    counted[:, places] = vectors[nearest].T
    off = float(np.abs(said - sums[nearest]).max(initial=0.0))
    if off > _TOLERANCE or counted.sum(axis=1).tolist() != reports:
        raise UnexplainedError(f"window {window['metric']} {window['window_start']}: {reports}")
    return counted
