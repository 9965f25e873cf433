"""The registered metrics as arrays indexed by their id: what vectorised code asks of a registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.base import Mechanism
from pipelines.aggregation.keyed import EXACT_BYTES
from sotto.plan.registry import Registry


@dataclass(frozen=True, eq=False)
class Catalog:
    """Columns over the M registered metrics of a deployment.

    Attributes
    ----------
    certified : (M, 9) int64
        Micro-epsilon that a chain costs whose newest rung is the k-th, counted from one; column 0
        is zero: no rung, no cost.
    levels : (M,) uint8
        Number of rungs.
    windows : (M,) int64
        Length of the estimation window, ms.
    widths : (M,) int64
        Bytes of a payload.
    wide : tuple of int
        The widths above 4, ascending: payloads that do not fit into their tag.
    identities : tuple of (bytes, int)
        Plan fingerprint and the metric's index in that plan: what an id stands for elsewhere.
    mechanisms : tuple of Mechanism
        What accumulates the payloads.
    """

    certified: NDArray[np.int64]
    levels: NDArray[np.uint8]
    windows: NDArray[np.int64]
    widths: NDArray[np.int64]
    wide: tuple[int, ...]
    identities: tuple[tuple[bytes, int], ...]
    mechanisms: tuple[Mechanism, ...]

    @property
    def rungs(self) -> int:
        """The largest number of rungs of a metric."""
        return int(self.levels.max(initial=0))

    def widths_of(self, metric: NDArray[np.uint16]) -> dict[int, int]:
        """Return the payload bytes of every metric that occurs among these."""
        present = np.flatnonzero(np.bincount(metric))
        return dict(zip(present.tolist(), self.widths[present].tolist(), strict=True))

    def wide_rows(self, metric: NDArray[np.uint16]) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield, of rows of these metrics, each width above 4 that occurs and the rows of it."""
        for width in sorted({*self.widths_of(metric).values()}):
            if width > EXACT_BYTES:
                yield width, np.flatnonzero(self.widths[metric] == width)

    def shape_of(self, metric: int) -> tuple[int, int]:
        """Return a metric's number of rungs and payload bytes."""
        return int(self.levels[metric]), int(self.widths[metric])


@lru_cache(maxsize=16)
def catalog_of(registry: Registry) -> Catalog:
    """Return the catalog of a registry, built once."""
    metrics = [registered.metric for registered in registry.metrics]
    mechanisms = tuple(metric.mechanism for metric in metrics)
    certified = np.zeros((len(metrics), 9), dtype=np.int64)
    for row, mechanism in zip(certified, mechanisms, strict=True):
        row[1 : mechanism.levels + 1] = [mechanism.certified(k) for k in range(mechanism.levels)]
    widths = np.array([mechanism.payload_width for mechanism in mechanisms], dtype=np.int64)
    return Catalog(
        certified=certified,
        levels=np.array([mechanism.levels for mechanism in mechanisms], dtype=np.uint8),
        windows=np.array([metric.window for metric in metrics], dtype=np.int64),
        widths=widths,
        wide=tuple(sorted({int(width) for width in widths if width > EXACT_BYTES})),
        identities=tuple((r.fingerprint, r.metric.index) for r in registry.metrics),
        mechanisms=mechanisms,
    )
