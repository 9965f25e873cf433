"""Puts the aggregator's results beside the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from pipelines.sinks.sql import Results

from .data import Airport
from .findings import Comparison, Decoding, DelayCurve, Destination, Fate, WindowSeries
from .truth import QUANTILES, Truth

DAY = 86_400_000
Row: TypeAlias = dict[str, object]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Collected:
    """All estimates that the results database holds, and the truth."""

    truth: Truth
    rows: Sequence[Row]
    _populations: dict[tuple[str, int, bool], Population] = field(default_factory=dict)

    @classmethod
    def read(cls, truth: Truth, database: str) -> Collected:
        with Results(database) as results:
            return cls(truth, results.estimates())

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

    def kept_in(self, metric: str, start: int) -> Population:
        return self._population(metric, start, kept=True)

    def all_in(self, metric: str, start: int) -> Population:
        return self._population(metric, start, kept=False)

    def _population(self, metric: str, start: int, kept: bool) -> Population:
        key = (metric, start, kept)
        if key not in self._populations:
            truth, window = self.truth, start // self.truth.plan.metric(metric).window
            values = truth.values(metric) if kept else truth.all_values(metric)
            windows = truth.windows(metric) if kept else truth.all_windows(metric)
            self._populations[key] = Population(values[windows == window])
        return self._populations[key]

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
        kept = self.kept_in(metric, start)
        if only is not None:
            kept = self.arrived_in(metric, start, only)
        truths = kept.measure(kind, item), self.all_in(metric, start).measure(kind, item)
        return _compared(label, row, *truths, cast(int, row["n"]))

    def series(self, metric: str, kind: str, item: str, label: str, unit: str) -> WindowSeries:
        """Compare one quantity in every window."""
        found = [
            (start, seen)
            for start in self.windows(metric)
            if (seen := self.compare(metric, start, kind, item, label)) is not None
        ]
        return WindowSeries(label, unit, [start for start, _ in found], [s for _, s in found])

    def shares(self, metric: str, start: int) -> list[Comparison]:
        """Compare the share of every category of a window, largest truth first."""
        labels = self.truth.plan.metric(metric).labels
        found = [self.compare(metric, start, "share", label, label) for label in labels]
        return sorted((one for one in found if one is not None), key=lambda one: -one.kept)

    def quantiles(self, metric: str, start: int) -> list[Comparison]:
        found = [
            self.compare(metric, start, "quantile", repr(tau), f"{100 * tau:g} %")
            for tau in QUANTILES
        ]
        return [one for one in found if one is not None]

    def curve(self, metric: str, start: int) -> DelayCurve:
        rows = [r for r in self.rows if (r["metric"], r["window_start"]) == (metric, start)]
        points = sorted(
            (float(str(r["item"])), cast(float, r["value"]), cast(float, r["standard_error"]))
            for r in rows
            if r["kind"] == "cdf"
        )
        grid, value, error = np.array(points).T
        truth = np.sort(self.kept_in(metric, start).present)
        fine = np.arange(-30.0, 181.0)
        return DelayCurve(
            grid.tolist(),
            value.tolist(),
            np.clip(value - 1.96 * error, 0, 1).tolist(),
            np.clip(value + 1.96 * error, 0, 1).tolist(),
            fine.tolist(),
            (np.searchsorted(truth, fine, side="right") / len(truth)).tolist(),
        )


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


def decode_destinations(
    collected: Collected, airports: dict[str, Airport], candidates: Sequence[str], start: int
) -> Decoding:
    rows = {code: collected.find("dest", start, "string", code) for code in candidates}
    errors = [cast(float, r["standard_error"]) for r in rows.values() if r is not None]
    unexplained = collected.find("dest", start, "unexplained")
    assert unexplained is not None
    kept, everything = collected.kept_in("dest", start), collected.all_in("dest", start)
    unlisted = {name: share for name, share in kept.shares.items() if name not in rows}
    # The year of a small fleet is withheld: no share would be found, all is unexplained.
    floor = 1.0
    if unexplained["withheld"] is not None:
        unexplained = {**unexplained, "value": 1.0, "low": 0.0, "high": 1.0}
    else:
        # Here the estimate is as likely above as below the first threshold of Holm's method.
        floor = NormalDist().inv_cdf(1 - 0.05 / len(candidates)) * float(np.median(errors))
    stops = []
    for code, row in rows.items():
        seen = collected.compare("dest", start, "string", code, code)
        if row is None or seen is None or not (seen.kept > 0 or row["significant"]):
            continue
        place = airports[code]
        fate = _fate(seen.kept, bool(row["significant"]), floor)
        stops.append(Destination(code, place.name, place.latitude, place.longitude, seen, fate))
    elsewhere = sum(share for name, share in everything.shares.items() if name not in rows)
    truths = sum(unlisted.values()), elsewhere
    left = _compared("unexplained", unexplained, *truths, len(kept.values))
    places = [(place.latitude, place.longitude) for place in airports.values()]
    return Decoding(stops, len(candidates), floor, left, unlisted, places)


def _fate(truth: float, significant: bool, floor: float) -> Fate:
    if truth == 0:
        return Fate.FALSE
    if significant:
        return Fate.FOUND
    return Fate.MISSED if truth >= floor else Fate.UNDETECTABLE


def scores(compared: Iterable[Comparison]) -> list[float]:
    """Return errors divided by standard errors, as the widths of the intervals imply them."""
    return [
        (one.value - one.kept) / ((one.high - one.low) / (2 * 1.959964))
        for one in compared
        if np.isfinite(one.high - one.low) and one.high > one.low
    ]


def _compared(label: str, row: Row, kept: float, every: float, n: int) -> Comparison:
    value, low, high = (cast(float | None, row[name]) for name in ("value", "low", "high"))
    assert value is not None
    bounds = -np.inf if low is None else low, np.inf if high is None else high
    return Comparison(label, value, *bounds, kept, every, n)
