"""Facts that only a simulation knows: the flight, or week of flights, behind each counted report.

The replay notes the row behind every chain that stayed. From these rows come the truths that
estimates are compared with: that of the *kept* reports, which the intervals are about, and that
of *all* flights, whether anything was recorded of them or not. The truths of values that aircraft
measure in a week are computed from the table alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sotto.plan.compiled import CompiledPlan
from sotto_cli.simulation.devices import AuditLine

from .data import Flights
from .faults import Misbehaviour
from .watched import KeptValues

DAY = 86_400_000


@dataclass(frozen=True)
class KeptReports:
    """The rows of the input behind a metric's counted reports, one a device and period.

    ``pseudonym``, of shape (n, 2), is that under which the report was sent.
    """

    device: NDArray[np.int64]
    period: NDArray[np.int64]
    row: NDArray[np.int64]
    pseudonym: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Truth:
    """The true values of all flights or weeks by metric, their times (ms), and by metric the
    reports that must count.
    """

    plan: CompiledPlan
    recorded: Mapping[str, NDArray[np.generic]]
    time: NDArray[np.int64]
    kept: Mapping[str, KeptReports]

    @classmethod
    def of_replay(
        cls,
        plan: CompiledPlan,
        flights: Flights,
        kept: Iterable[KeptValues],
        audit: Iterable[AuditLine],
        misbehaved: Iterable[Misbehaviour],
    ) -> Truth:
        """Leave out what misbehaving aircraft sent in the periods in which they did."""
        left_out = {(case.device, case.period) for case in misbehaved}
        # The last row that a reservoir draws stays; rows come in the order of time.
        final = {
            (one.metric, one.device, one.period): one.row
            for one in kept
            if (one.device, one.period) not in left_out
        }
        by_metric: dict[str, list[tuple[int, int, int]]] = {m.name: [] for m in plan.metrics}
        for (metric, device, period), row in final.items():
            by_metric[metric].append((device, period, row))
        names = _pseudonyms(audit)
        reports = {name: _columns(rows, names) for name, rows in by_metric.items()}
        values = {metric.name: getattr(flights, metric.name) for metric in plan.metrics}
        return cls(plan, values, flights.scheduled, reports)

    @classmethod
    def of_weeks(cls, plan: CompiledPlan, flights: Flights, audit: Iterable[AuditLine]) -> Truth:
        """Take an aircraft's flights of a week together: one report of each metric is of them."""
        flights = flights.select(flights.tailnum != "")
        _, rows, aircraft = np.unique(
            flights.tailnum.astype(str), return_index=True, return_inverse=True
        )
        # Devices are numbered as they first appear.
        device, week = np.argsort(np.argsort(rows))[aircraft], flights.scheduled // plan.period
        keys, place = np.unique(np.stack([device, week]), axis=1, return_inverse=True)
        first = np.full(len(rows), np.iinfo(np.int64).max)
        np.minimum.at(first, device, week)
        flown = place[~flights.cancelled], (flights.scheduled // DAY)[~flights.cancelled]
        days = np.unique(np.stack(flown), axis=1)[0]
        edges = np.array(plan.metric("flights").edges)
        bins = np.searchsorted(edges, np.bincount(flown[0], minlength=len(keys[0])), "right") - 1
        values = {
            "flights": np.array(plan.metric("flights").labels)[bins],
            "days": np.bincount(days, minlength=len(keys[0])),
            "age": keys[1] - first[keys[0]],
        }
        spans = [(*key, row) for row, key in enumerate(keys.T.tolist())]
        reports = _columns(spans, _pseudonyms(audit))
        return cls(plan, values, keys[1] * plan.period, dict.fromkeys(values, reports))

    def values(self, metric: str) -> NDArray[np.generic]:
        """Return the values of the kept reports, as recorded (a cancelled delay is NaN)."""
        values: NDArray[np.generic] = self.all_values(metric)[self.kept[metric].row]
        return values

    def all_values(self, metric: str) -> NDArray[np.generic]:
        """Return all values, numbers clipped as the plan says."""
        limits, values = self.plan.metric(metric).range, self.recorded[metric]
        return values if limits is None else np.clip(values, *limits).astype(values.dtype)

    def windows(self, metric: str) -> NDArray[np.int64]:
        return np.asarray(self.all_windows(metric)[self.kept[metric].row])

    def all_windows(self, metric: str) -> NDArray[np.int64]:
        return np.asarray(self.time // self.plan.metric(metric).window)


def _pseudonyms(audit: Iterable[AuditLine]) -> dict[tuple[int, int], str]:
    return {(line.device, line.period): line.pseudonym for line in audit}


def _columns(rows: list[tuple[int, int, int]], names: Mapping[tuple[int, int], str]) -> KeptReports:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    raw = b"".join(bytes.fromhex(names[device, period]) for device, period, _ in rows)
    pseudonym = np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    return KeptReports(table[:, 0], table[:, 1], table[:, 2], pseudonym)
