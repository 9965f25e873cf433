"""Errors of each level beside what theory says, and relaxed answers beside fresh ones.

Every metric is cut into *cells* whose errors are looked at: a week's shares of categories, a
week's mean, the share of one bit in one cohort over the year. For relaxed beside fresh, the
year's reports are cut into random parts instead of weeks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.base import Mechanism
from mechanisms.coins import bloom_positions, cohort_domain, hash_ids
from mechanisms.randomness import SystemSource
from mechanisms.registry import build
from sotto.plan.compiled import CompiledMetric

from .findings import LevelError, MetricErrors
from .recount import Reports
from .truth import Truth

#: A group of weeks has at least so many reports, on average.
GROUP_REPORTS = 1000
#: Sets of fresh responses that the last level is compared with.
FRESH_SETS = 8
#: For that the year's reports are cut into random parts of about so many, so that errors are many.
PART_REPORTS = 170
#: Normal quantile of bounds that hold 999 times in 1,000.
_BOUND = 3.2905

Cells = NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """How a metric's reports fall into cells: the group of each, and the true value of each cell.

    ``truth`` has the shape (groups, cells), NaN where there are no reports; ``estimate`` makes of a
    mechanism and one group's counts estimates and standard errors of its cells.
    """

    groups: NDArray[np.int64]
    n_groups: int
    truth: Cells
    estimate: Callable[[Mechanism, NDArray[np.int64]], tuple[Cells, Cells]]


def metric_errors(metric: CompiledMetric, reports: Reports, truth: Truth) -> MetricErrors:
    periods = truth.kept[metric.name].period
    first, length = int(periods.min()), _weeks_together(periods)
    weekly = lay_out(metric, truth, (periods - first) // length)
    weeks = (reports.event // truth.plan.period - first) // length
    levels = []
    for level in range(metric.mechanism.levels):
        squares, predicted = _of_level(metric, reports, weekly, level, weeks)
        levels.append(_level_error(metric.ladder[level].epsilon / 1e6, squares, predicted))
    number = max(2, len(reports) // PART_REPORTS)
    parts = lay_out(metric, truth, _part(truth.kept[metric.name].pseudonym, number))
    last = metric.mechanism.levels - 1
    relaxed, _ = _of_level(metric, reports, parts, last, _part(reports.pseudonym, number))
    fresh = _fresh_squares(metric, truth, parts)
    mean = float(fresh.mean())
    # One set of so many errors, against the mean of several sets.
    spread = float(fresh.std(ddof=1)) / math.sqrt(len(relaxed)) * math.sqrt(1 + 1 / FRESH_SETS)
    margin = _BOUND * spread / mean
    ratio = float(relaxed.mean()) / mean
    return MetricErrors(metric.name, metric.unit or "", levels, ratio, 1 - margin, 1 + margin)


def _weeks_together(periods: NDArray[np.int64]) -> int:
    weeks = int(np.ptp(periods)) + 1
    return max(1, min(math.ceil(GROUP_REPORTS * weeks / len(periods)), weeks // 2))


def _part(pseudonyms: NDArray[np.uint64], number: int) -> NDArray[np.int64]:
    return (pseudonyms[:, 0] % np.uint64(number)).astype(np.int64)


def _of_level(
    metric: CompiledMetric, reports: Reports, layout: Layout, level: int, groups: NDArray[np.int64]
) -> tuple[Cells, float]:
    """Estimate every group from one level alone; return squared errors, and what is predicted."""
    groups = groups if layout.n_groups > 1 else np.zeros(len(reports), dtype=np.int64)
    counts = reports.counts(metric, level, groups, layout.n_groups)
    alone = np.zeros((layout.n_groups, metric.mechanism.levels, counts.shape[1]), np.int64)
    alone[:, level] = counts
    return _squares(layout, metric.mechanism, alone)


def _level_error(epsilon: float, squares: Cells, predicted: float) -> LevelError:
    mean = float(squares.mean())
    margin = _BOUND * float(squares.std(ddof=1)) / math.sqrt(len(squares))
    bounds = (math.sqrt(max(mean - margin, 0.0)), math.sqrt(mean + margin))
    return LevelError(epsilon, math.sqrt(mean), predicted, *bounds)


def _squares(
    layout: Layout, mechanism: Mechanism, counts: NDArray[np.int64]
) -> tuple[Cells, float]:
    """Return squared errors (a mean a group, or one a cell of a single group), and predicted."""
    values = np.empty_like(layout.truth)
    stated = np.empty_like(layout.truth)
    for group in range(layout.n_groups):
        values[group], stated[group] = layout.estimate(mechanism, counts[group])
    if layout.n_groups == 1:
        return ((values - layout.truth) ** 2)[0], math.sqrt(float((stated**2).mean()))
    # A group of few reports may determine nothing.
    known = np.isfinite(stated).all(axis=1)
    squares = (values - layout.truth)[known] ** 2
    return squares.mean(axis=1), math.sqrt(float((stated[known] ** 2).mean()))


def _fresh_squares(metric: CompiledMetric, truth: Truth, layout: Layout) -> Cells:
    """Answer the same values afresh, several times, at the last level's epsilon: squared errors."""
    strongest = build(metric.spec, [metric.ladder[-1].epsilon], metric.name)
    kept, symbols, source = truth.kept[metric.name], truth.symbols(metric.name), SystemSource()
    found = []
    for _ in range(FRESH_SETS):
        chains = source.words(2 * len(kept)).reshape(-1, 2)
        drawn = strongest.randomize(symbols, chains, kept.pseudonym, source)
        payloads = np.ascontiguousarray(drawn[:, 0])
        counts = strongest.accumulate(
            payloads, chains, kept.pseudonym, layout.groups, layout.n_groups
        )
        found.append(_squares(layout, strongest, counts[:, None])[0])
    return np.concatenate(found)


def lay_out(metric: CompiledMetric, truth: Truth, groups: NDArray[np.int64]) -> Layout:
    """Return the cells of a metric's reports in groups; strings make one group, by bits."""
    if metric.type == "string":
        return _bits(metric, truth)
    n_groups = int(groups.max()) + 1
    values = truth.values(metric.name)
    if metric.type == "number":
        present = ~np.isnan(values)
        sums = np.bincount(groups[present], values[present], n_groups)
        means = sums / np.bincount(groups[present], minlength=n_groups)
        return Layout(groups, n_groups, means[:, None], _mean_of(metric))
    symbols = np.asarray(truth.symbols(metric.name), dtype=np.int64)
    size = len(metric.labels)
    counts = np.bincount(groups * size + symbols, minlength=n_groups * size)
    counts = counts.reshape(n_groups, size)
    return Layout(groups, n_groups, counts / counts.sum(axis=1, keepdims=True), _shares)


def _shares(mechanism: Any, counts: NDArray[np.int64]) -> tuple[Cells, Cells]:
    found = mechanism.frequencies(counts)
    return np.array([e.value for e in found]), np.array([e.standard_error for e in found])


def _mean_of(
    metric: CompiledMetric,
) -> Callable[[Mechanism, NDArray[np.int64]], tuple[Cells, Cells]]:
    assert metric.range is not None
    low, high = metric.range

    def estimate(mechanism: Any, counts: NDArray[np.int64]) -> tuple[Cells, Cells]:
        mean = mechanism.numeric(counts, low, high, quantiles=()).mean
        return np.array([mean.value]), np.array([mean.standard_error])

    return estimate


def _bits(metric: CompiledMetric, truth: Truth) -> Layout:
    bits, hashes, cohorts = (int(str(metric.spec[name])) for name in ("bits", "hashes", "cohorts"))
    kept = truth.kept[metric.name]
    cohort = (hash_ids(kept.pseudonym, cohort_domain(metric.name)) % np.uint64(cohorts)).astype(
        np.int64
    )
    ones = np.zeros((cohorts, bits))
    names, index = np.unique(np.array(truth.symbols(metric.name)), return_inverse=True)
    counts = np.bincount(cohort * len(names) + index, minlength=cohorts * len(names))
    for c in range(cohorts):
        for number, name in enumerate(names.tolist()):
            places = set(bloom_positions(name, c, hashes, bits))
            ones[c, list(places)] += counts[c * len(names) + number]
    shares = ones / np.bincount(cohort, minlength=cohorts)[:, None]

    def estimate(mechanism: Mechanism, counts: NDArray[np.int64]) -> tuple[Cells, Cells]:
        level = int(np.flatnonzero(counts.sum(axis=1))[0])
        p, q = mechanism.probabilities(level)[0]
        table = counts[level].reshape(cohorts, bits + 1)
        n = table[:, -1:]
        variance = shares * p * (1 - p) + (1 - shares) * q * (1 - q)
        errors = np.sqrt(variance / n) / (p - q)
        return ((table[:, :-1] / n - q) / (p - q)).ravel(), errors.ravel()

    return Layout(np.zeros(len(kept), dtype=np.int64), 1, shares.reshape(1, -1), estimate)
