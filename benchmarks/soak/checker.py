"""Whether counts can be those of what was sent: nothing acknowledged lost, nothing twice.

A *bucket* is one value of the fleet: what its levels count together is 0 or 1, and 1 as soon as one
of them was acknowledged; then at that level or a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.fleet import LEVELS, METRICS, SECOND, SYMBOLS, Fleet
from pipelines.aggregation import counts
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.aggregation.rows import NEWEST
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory


@dataclass(frozen=True)
class Verdict:
    """Buckets by what became of them.

    Parameters
    ----------
    sent, acknowledged : int
        Of which at least one level was.
    once, zero, more : int
        How often buckets count; ``more`` has also those that count less than 0.
    lost : int
        Acknowledged, and count zero.
    older : int
        Count, at an older level than one that was acknowledged.
    unsent : int
        Count, at a level that was never sent.
    stray : int
        Counts in buckets that are nobody's.
    """

    sent: int
    acknowledged: int
    once: int
    zero: int
    more: int
    lost: int
    older: int
    unsent: int
    stray: int

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, and nothing counts twice or has come from nowhere."""
        return not (self.more or self.lost or self.older or self.unsent or self.stray)


def judge(
    counted: NDArray[np.int64],
    sent: NDArray[np.uint8],
    acknowledged: NDArray[np.uint8],
    stray: int = 0,
) -> Verdict:
    """Compare counts with what was sent.

    Parameters
    ----------
    counted : (METRICS, n, LEVELS) int64
        Of every metric and device, by level.
    sent, acknowledged : (n,) uint8
        Levels of every device, as bits.
    stray : int
        What else is counted.
    """
    total = counted.sum(axis=2)
    sound = ((counted == 0) | (counted == 1)).all(axis=2) & (total <= 1)
    once, zero = sound & (total == 1), sound & (total == 0)
    at = counted.argmax(axis=2)
    newest = NEWEST[acknowledged].astype(np.int64) - 1
    return Verdict(
        sent=METRICS * int(np.count_nonzero(sent)),
        acknowledged=METRICS * int(np.count_nonzero(acknowledged)),
        once=int(np.count_nonzero(once)),
        zero=int(np.count_nonzero(zero)),
        more=int(np.count_nonzero(~sound)),
        lost=int(np.count_nonzero(zero & (acknowledged != 0))),
        older=int(np.count_nonzero(once & (at < newest))),
        unsent=int(np.count_nonzero(once & (sent >> at & 1 == 0))),
        stray=stray,
    )


def spread(
    windows: Iterable[tuple[WindowKey, Matrix]], fleet: Fleet, devices: int
) -> tuple[NDArray[np.int64], int]:
    """Return counts by metric, device and level, and the sum of what is no device's.

    Parameters
    ----------
    windows : iterable of (WindowKey, (LEVELS, SYMBOLS) int64)
        What is counted, of whatever metric.
    fleet : Fleet
    devices : int
        How many have begun.
    """
    place = {metric.index: number for number, metric in enumerate(fleet.metrics)}
    seconds = -(-devices // SYMBOLS)
    dense = np.zeros((METRICS, seconds, LEVELS, SYMBOLS), dtype=np.int64)
    stray = 0
    for key, matrix in windows:
        if key.fingerprint == fleet.plan.fingerprint and key.metric in place:
            second, rest = divmod(key.start - fleet.base, SECOND)
            if rest == 0 and 0 <= second < seconds:
                dense[place[key.metric], second] += matrix
            else:
                stray += int(np.abs(matrix).sum())
    found = dense.transpose(0, 1, 3, 2).reshape(METRICS, seconds * SYMBOLS, LEVELS)
    return found[:, :devices], stray + int(np.abs(found[:, devices:]).sum())


def windows_of(state: StateDirectory) -> Iterable[tuple[WindowKey, Matrix]]:
    """Yield all that a state directory has counted."""
    for page, generation in state.manifest().pages.items():
        body = files.load(state.page(page, generation), counts.KIND)
        for key, window in counts.unpack_page(body).items():
            yield key, window.counts
