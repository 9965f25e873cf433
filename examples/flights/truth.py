"""What only a simulation knows: which flight each counted report was about.

The replay notes the row behind every chain that stayed. From these rows come the truths that
estimates are compared with: that of the *kept* reports, which the intervals are about, and that
of *all* flights, whether anything was recorded of them or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sotto.plan.compiled import CompiledPlan
from sotto_cli.simulation.devices import AuditLine, KeptValues

from .data import Flights
from .faults import Misbehaviour

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


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
    """The flights, and by metric the reports that must count."""

    plan: CompiledPlan
    flights: Flights
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
        names = {(line.device, line.period): line.pseudonym for line in audit}
        # Of a reservoir's rows the last one drawn stays; rows come in the order of time.
        final = {
            (one.metric, one.device, one.period): one.row
            for one in kept
            if (one.device, one.period) not in left_out
        }
        by_metric: dict[str, list[tuple[int, int, int]]] = {m.name: [] for m in plan.metrics}
        for (metric, device, period), row in final.items():
            by_metric[metric].append((device, period, row))
        return cls(plan, flights, {name: _columns(rows, names) for name, rows in by_metric.items()})

    @cached_property
    def _values(self) -> dict[str, NDArray[np.generic]]:
        flights = self.flights
        return {
            "carrier": flights.carrier,
            "dest": flights.dest,
            "dep_delay": flights.dep_delay,
            "distance": flights.distance,
            "delayed": flights.delayed,
        }

    def values(self, metric: str) -> NDArray[np.generic]:
        """Return the values of the kept reports, as recorded (a cancelled delay is NaN)."""
        values: NDArray[np.generic] = self.all_values(metric)[self.kept[metric].row]
        return values

    def all_values(self, metric: str) -> NDArray[np.generic]:
        """Return the values of all flights, numbers clipped as the plan says."""
        limits = self.plan.metric(metric).range
        values = self._values[metric]
        return values if limits is None else np.clip(values, *limits)

    def windows(self, metric: str) -> NDArray[np.int64]:
        window = self.flights.scheduled[self.kept[metric].row] // self.plan.metric(metric).window
        return np.asarray(window)

    def all_windows(self, metric: str) -> NDArray[np.int64]:
        return np.asarray(self.flights.scheduled // self.plan.metric(metric).window)


def _columns(rows: list[tuple[int, int, int]], names: Mapping[tuple[int, int], str]) -> KeptReports:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    raw = b"".join(bytes.fromhex(names[device, period]) for device, period, _ in rows)
    pseudonym = np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    return KeptReports(table[:, 0], table[:, 1], table[:, 2], pseudonym)
