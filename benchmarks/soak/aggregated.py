"""The fault run of aggregation, as a play."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak import audits
from benchmarks.soak.audits import Audited
from benchmarks.soak.checker import windows_of
from benchmarks.soak.faults import Windows
from benchmarks.soak.injections import KINDS
from benchmarks.soak.schedule import Injection
from benchmarks.soak.stage import Stage
from benchmarks.soak.world import World
from pipelines.sinks.sql import Results, of_state
from pipelines.sinks.tables import WINDOWS
from sotto.plan.registry import Registry


class Aggregated:
    """Aggregation in a world; see :class:`benchmarks.soak.faults.Play`."""

    kinds: Sequence[str] = tuple(KINDS)

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def stage(self) -> Stage:
        """Where reports come from."""
        return self._world

    def inject(self, fault: Injection) -> bool:
        """Bring a fault about; return whether it has hit."""
        return KINDS[fault.kind](self._world, fault)

    def counted(self, settled: Callable[[Windows], bool]) -> Windows:
        """Aggregate to the end and return what is counted: then it is settled."""
        self._world.aggregate_to_the_end()
        return list(windows_of(self._world.state))

    def rejected(self) -> int:
        """Return how many reports are in quarantine."""
        return sum(sum(q.rows.values()) for q in self._world.state.manifest().quarantine)

    def audited(self, counted: NDArray[np.int64]) -> Audited:
        """Compare the states with what was counted and with the devices' ledgers."""
        fleet = self._world.fleet
        state = audits.of_state(self._world.state, Registry([fleet.plan]))
        return audits.compare(state, audits.of_fleet(fleet, counted), self._world.device_files())

    def unlike(self, counted: NDArray[np.int64]) -> int:
        """Return how many windows of the database have other numbers of reports."""
        with Results(of_state(self._world.state.path), create=False) as results:
            told: dict[tuple[object, object], object] = {
                (row["metric"], row["window_start"]): row["n"] for row in results.table(WINDOWS)
            }
        names = {metric.index: metric.name for metric in self._world.fleet.plan.metrics}
        mine: dict[tuple[object, object], object] = {
            (names[key.metric], key.start): int(matrix.sum())
            for key, matrix in windows_of(self._world.state)
            if matrix.any()
        }
        return sum(mine.get(key) != told.get(key) for key in mine.keys() | told.keys())
