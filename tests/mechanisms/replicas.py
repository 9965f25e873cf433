"""The same clients, randomized again and again: the counts of many replicas of one collection."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.base import Mechanism
from mechanisms.testing import SeededSource

ROWS = 400_000


def replicate(
    mechanism: Mechanism, symbols: Any, levels: ArrayLike, repeats: int, seed: int
) -> NDArray[np.int64]:
    """Randomize ``n`` clients ``repeats`` times, each with new chains and a new pseudonym.

    ``levels`` is the newest level of each client, or of all. Returns counts of shape
    ``(repeats, mechanism.levels, count_length)``.
    """
    n, source = len(symbols), SeededSource(seed)
    newest = np.broadcast_to(np.asarray(levels, dtype=np.int64), (n,))
    some = max(1, ROWS // n)
    parts = []
    for done in range(0, repeats, some):
        times = min(some, repeats - done)
        values = (
            list(symbols) * times
            if isinstance(symbols, list)
            else np.concatenate([symbols] * times)
        )
        ids = source.words(2 * n * times).reshape(-1, 2)
        rung = np.tile(newest, times)
        drawn = mechanism.randomize(values, ids, ids, source)
        groups = np.repeat(np.arange(times), n) * mechanism.levels + rung
        payloads = drawn[np.arange(len(drawn)), rung]
        counts = mechanism.accumulate(payloads, ids, ids, groups, times * mechanism.levels)
        parts.append(counts.reshape(times, mechanism.levels, -1))
    return np.concatenate(parts)
