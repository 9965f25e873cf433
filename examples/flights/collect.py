"""Puts the aggregator's results beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from pipelines.results.tables import ESTIMATES
from pipelines.sinks.sql import Results

from .findings import Comparison, WindowSeries
from .truth import Truth

Row: TypeAlias = dict[str, object]
Mask: TypeAlias = NDArray[np.bool_]
#: Kinds of estimates that have the metric's unit.
_NUMBERS = ("mean", "quantile")


@dataclass(frozen=True, eq=False)
class Collected:
    """All estimates that the results database holds, and the truth."""

    truth: Truth
    rows: Sequence[Row]

    @classmethod
    def read(cls, truth: Truth, database: str) -> Collected:
        with Results(database) as results:
            return cls(truth, results.table(ESTIMATES))

    @cached_property
    def _index(self) -> dict[tuple[str, int, str, str], Row]:
        return {
            (str(r["metric"]), cast(int, r["window_start"]), str(r["kind"]), str(r["item"])): r
            for r in self.rows
        }

    def windows(self, metric: str) -> list[int]:
        return sorted({start for name, start, _, _ in self._index if name == metric})

    def withheld(self) -> list[tuple[str, int, str]]:
        """Return the windows of too few reports: metric, start in ms, and why."""
        whys: dict[tuple[str, int], set[object]] = {}
        for row in self.rows:
            window = str(row["metric"]), cast(int, row["window_start"])
            whys.setdefault(window, set()).add(row["withheld"])
        return sorted((*window, str(*why)) for window, why in whys.items() if None not in why)

    def find(self, metric: str, start: int, kind: str, item: str = "") -> Row | None:
        return self._index.get((metric, start, kind, item))

    @cache  # noqa: B019 - a demo makes few, and they live as long as it does
    def _population(self, metric: str, start: int, kept: bool) -> Population:
        truth, window = self.truth, start // self.truth.plan.metric(metric).window
        values = truth.values(metric) if kept else truth.all_values(metric)
        windows = truth.windows(metric) if kept else truth.all_windows(metric)
        return Population(values[windows == window])

    def arrived_in(self, metric: str, start: int, arrived: Mask) -> Population:
        window = start // self.truth.plan.metric(metric).window
        chosen = arrived & (self.truth.windows(metric) == window)
        return Population(self.truth.values(metric)[chosen])

    def compare(
        self, metric: str, start: int, kind: str, item: str, label: str, only: Mask | None = None
    ) -> Comparison | None:
        """Put one estimate beside its truths, of those kept reports that were counted."""
        row = self.find(metric, start, kind, item)
        if row is None or row["value"] is None:
            return None
        kept = self._population(metric, start, kept=True)
        if only is not None:
            kept = self.arrived_in(metric, start, only)
        low, high = (cast(float | None, row[name]) for name in ("low", "high"))
        return Comparison(
            label,
            self.unit(metric, kind),
            cast(float, row["value"]),
            -np.inf if low is None else low,
            np.inf if high is None else high,
            kept.measure(kind, item),
            self._population(metric, start, kept=False).measure(kind, item),
            cast(int, row["n"]),
        )

    def unit(self, metric: str, kind: str) -> str:
        """Return what a kind of estimate counts: a share, or the metric's unit."""
        return self.truth.plan.metric(metric).unit or "" if kind in _NUMBERS else "share"

    def series(self, metric: str, kind: str, item: str, label: str) -> WindowSeries:
        """Compare one quantity in every window."""
        found = [
            (start, seen)
            for start in self.windows(metric)
            if (seen := self.compare(metric, start, kind, item, label)) is not None
        ]
        return WindowSeries(
            label, self.unit(metric, kind), [start for start, _ in found], [s for _, s in found]
        )

    def shares(self, metric: str, start: int) -> list[Comparison]:
        """Compare the share of every value of a window, of a category's largest truth first."""
        labels = self.truth.plan.metric(metric).labels
        found = [self.compare(metric, start, "share", label, label) for label in labels]
        return sorted((one for one in found if one is not None), key=lambda one: -one.kept)

    def of_kind(self, metric: str, kind: str) -> list[Comparison]:
        """Compare all estimates of a kind in every window."""
        rows = (row for row in self.rows if (row["metric"], row["kind"]) == (metric, kind))
        places = ((cast(int, row["window_start"]), str(row["item"])) for row in rows)
        found = (self.compare(metric, start, kind, item, item) for start, item in places)
        return [one for one in found if one is not None]


@dataclass(frozen=True, eq=False)
class Population:
    """The true values of some flights, and what they come to."""

    values: NDArray[np.generic]

    @cached_property
    def shares(self) -> dict[str, float]:
        names, counts = np.unique(self.values.astype(str), return_counts=True)
        return dict(zip(names.tolist(), (counts / len(self.values)).tolist(), strict=True))

    @cached_property
    def present(self) -> NDArray[np.float64]:
        numbers = self.values.astype(np.float64)
        return numbers[~np.isnan(numbers)]

    def measure(self, kind: str, item: str) -> float:
        if not len(self.values):
            return float("nan")
        if kind in ("share", "string"):
            # NumPy writes truth values with a capital letter, plans do not.
            name = item.capitalize() if self.values.dtype == np.bool_ else item
            return self.shares.get(name, 0.0)
        if kind == "missing":
            return 1 - len(self.present) / len(self.values)
        if kind == "quantile":
            return float(np.quantile(self.present, float(item), method="inverted_cdf"))
        return float(self.present.mean())
