"""Estimates of a range from the sum of its windows' published tables.

Quantiles, distributions and strings are no averages over windows: their counts have to be added
first. Only a state directory has the tables of counts. :class:`ResultsReader` uses this module if
it was given a state directory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np

from mechanisms.items import Method
from pipelines.aggregation.breakdown import slices
from pipelines.aggregation.counts import WindowKey, page_of
from pipelines.aggregation.pairs import split
from pipelines.aggregation.publication import Publication
from pipelines.aggregation.published import NOTHING, PublishedWindow
from pipelines.aggregation.result_rows import rows_of_sum, strings_of
from pipelines.results.fields import fields_of, milliseconds, record_of
from pipelines.results.range_windows import WindowRun
from pipelines.results.ranges import NO_AVERAGES, ItemKey, PooledItem, cycle_of, effect_of
from pipelines.results.records import EstimateRecord
from pipelines.results.retention import estimate_of
from pipelines.storage.directory import StateDirectory
from pipelines.storage.published import published_of


class RangeTables:
    """The published tables of a state directory, as of one commit."""

    def __init__(self, state: StateDirectory) -> None:
        self._state, self._manifest = state, state.manifest()
        self._registry, self._candidates = state.plans.with_given([], {})
        self._pages: dict[int, Mapping[WindowKey, PublishedWindow]] = {}

    def __call__(self, runs: Sequence[WindowRun]) -> list[Mapping[ItemKey, PooledItem]]:
        """Return, for each run of one metric, its estimates that are no averages over reports.

        Raises LostFileError if a commit has removed the tables meanwhile.
        """
        if runs[0].metric.type not in ("number", "ordinal", "string"):
            return [{} for _ in runs]
        sums = [_Sum(run) for run in runs]
        plan, metric = runs[0].plan, runs[0].metric
        key = WindowKey(plan.fingerprint, metric.index, 0)
        least = self._registry.minimum_reports(plan.fingerprint, metric.index)
        for start in sorted({start for run in runs for start in run.pieces}):
            window = self._window(key._replace(start=milliseconds(start)))
            counts = {
                cell: split(metric.mechanism, each)[0] for cell, each in window.counts.items()
            }
            made = Publication(plan, metric, counts, least, window.strata, window.held)
            for each in sums:
                each.add(start, made)
        strings = strings_of(key, self._registry, self._candidates)
        return [dict(each.items(strings, least)) for each in sums]

    def _window(self, key: WindowKey) -> PublishedWindow:
        page = page_of(key, self._registry.period)
        if page not in self._pages:
            self._pages[page] = published_of(
                self._state.files, self._manifest, page, self._registry
            )
        return self._pages[page].get(key, NOTHING)


class _Sum:
    """The sum of a run's published tables."""

    def __init__(self, run: WindowRun) -> None:
        mechanism = run.metric.mechanism
        self.run, self.windows = run, 0
        self.counts = np.zeros((len(run.metric.ladder), mechanism.count_length), dtype=np.int64)
        self.cycles: dict[int, int] = defaultdict(int)
        #: How many strata every window that was added tells apart.
        self.strata = len(mechanism.joins[-1])

    def add(self, start: datetime, made: Publication) -> None:
        """Add the tables of those segments of a window that belong to the run."""
        names, before = self.run.pieces.get(start, ()), int(self.counts.sum())
        for piece in (*slices(made.plan.attributes), *made.unions):
            if piece.name in names:
                table = made.table(piece)
                self.counts += table
                self.strata = min(self.strata, made.strata(piece))
                reports = int(made.metric.mechanism.reports_by_level(table).sum())
                self.cycles[cycle_of(self.run, start)] += reports
        self.windows += int(self.counts.sum()) > before

    def items(self, strings: Sequence[str], least: int) -> Iterator[tuple[ItemKey, PooledItem]]:
        """Yield the estimates, rounded as those of windows are."""
        metric = self.run.metric
        by_level = metric.mechanism.reports_by_level(self.counts).tolist()
        if not any(by_level):
            return
        effect = effect_of(self.run, self.cycles, by_level)
        nameless = dict.fromkeys(each.stored for each in fields_of(EstimateRecord))
        for each in rows_of_sum(metric, self.counts, strings, least, self.strata, effect):
            row = record_of(EstimateRecord, {**nameless, **each})
            of_tables = row.kind in NO_AVERAGES or metric.type == "string"
            if not of_tables or row.value is None or not math.isfinite(row.value):
                continue
            found = estimate_of(row, metric.limit)
            method = Method(row.method or Method.UNBIASED)
            figures = found, 1.0, found.n, self.windows, self.cycles, row.unit, method
            yield (row.kind, row.item), PooledItem(*figures, row.significant, [found])
