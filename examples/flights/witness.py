"""A second opinion on the log, formed without the aggregator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation import counts
from pipelines.aggregation.pairs import split
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from sotto.plan.compiled import CompiledPlan

from .recount import NEVER, Reports, read_reports
from .truth import KeptReports


@dataclass(frozen=True)
class Opinion:
    """Figures that the log gives without the aggregator.

    ``arrived`` says when each level of each metric's kept reports did (ms), ``windows`` has counts
    at the last level by metric and start; ``reports`` counts levels once.
    """

    arrived: Mapping[str, NDArray[np.int64]]
    windows: Mapping[tuple[str, int], NDArray[np.int64]]
    reports: int


def form_opinion(log: Path, plan: CompiledPlan, kept: Mapping[str, KeptReports]) -> Opinion:
    behaved = np.unique(np.concatenate([each.pseudonym for each in kept.values()]), axis=0)
    reports = read_reports(log, plan, behaved)
    windows: dict[tuple[str, int], NDArray[np.int64]] = {}
    for metric in plan.metrics:
        found = reports[metric.name]
        if (found.arrived == NEVER).any() or len(found) != len(kept[metric.name]):
            raise RuntimeError(f"the log does not hold every level of {metric.name}")
        numbers = found.event // metric.window
        first = int(numbers.min())
        size = int(np.ptp(numbers)) + 1
        last = found.counts(metric, metric.mechanism.levels - 1, numbers - first, size)
        for place, vector in enumerate(last):
            windows[metric.name, (first + place) * metric.window] = vector
    arrived = {name: _arrivals(reports[name], kept[name]) for name in reports}
    return Opinion(arrived, windows, sum(each.arrived.size for each in reports.values()))


def _arrivals(reports: Reports, kept: KeptReports) -> NDArray[np.int64]:
    """Bring the reports of the log into the order of the truth: one a pseudonym on both sides."""
    order = np.argsort(reports.pseudonym[:, 0])
    place = np.searchsorted(reports.pseudonym[order, 0], kept.pseudonym[:, 0])
    return reports.arrived[order[place]]


def equal_windows(state_dir: Path, plan: CompiledPlan, opinion: Opinion) -> tuple[int, int]:
    """Return in how many windows the aggregator counted just the same, and how many there are."""
    directory = StateDirectory(state_dir)
    manifest = directory.manifest()
    committed = {}
    for page, generation in manifest.pages.items():
        data = files.load(directory.files.page(page, generation), counts.KIND)
        for key, window in counts.unpack_page(data).items():
            if window.counts.any():
                metric = plan.metrics[key.metric]
                committed[metric.name, key.start], _ = split(metric.mechanism, window.counts)
    mine = {key: vector for key, vector in opinion.windows.items() if vector.any()}
    equal = sum(
        key in committed
        and np.array_equal(committed[key][-1], vector)
        and not committed[key][:-1].any()
        for key, vector in mine.items()
    )
    return equal, len(committed.keys() | mine.keys())
