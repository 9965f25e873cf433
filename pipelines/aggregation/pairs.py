"""Pairs of successive levels of a chain, and whether their payloads are equal.

A chain's weaker report is drawn from the next stronger one, so the share of pairs with equal
payloads is known whatever was recorded; :mod:`mechanisms.estimators.poisoning` raises an alarm if
the reports show another share. Each countable level of a chain that counts is paired with the next
weaker countable level that was seen. If a level between the two comes later, their pair is replaced
by two others.

The sums are a function of the state alone: payloads are compared by their tags, which the state
keeps of all levels. So neither the order of the rows nor how they are cut into calls changes them,
and revoked pseudonyms have no pairs.

A pair is counted in the window of its chain, in the vector of the stronger level, behind the
mechanism's own counts: at ``2 j`` is the number of pairs with level j, at ``2 j + 1`` how many of
these are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mechanisms.base import Mechanism
from mechanisms.estimators.poisoning import pair_columns
from pipelines.aggregation.counts import Deltas, Matrix
from pipelines.aggregation.rows import LEVEL_COUNT, NEWEST, one_of_each
from pipelines.aggregation.state import State
from sotto.plan.segments import MAX_CELLS

#: Levels of a metric, at most, and columns of a vector of pairs.
_LEVELS = 8
_COLUMNS = pair_columns(_LEVELS)


def columns(mechanism: Mechanism) -> int:
    """Return the length of a window's vectors: the mechanism's counts, then pairs."""
    return mechanism.count_length + pair_columns(mechanism.levels)


def split(mechanism: Mechanism, matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Return the counts of a window by level, and its pairs: zeros if the matrix has no pairs."""
    counts, pairs = matrix[:, : mechanism.count_length], matrix[:, mechanism.count_length :]
    if not pairs.shape[1]:
        pairs = np.zeros((mechanism.levels, pair_columns(mechanism.levels)), dtype=np.int64)
    return counts, pairs


class Touched:
    """Entries whose pairs a call may have changed: a level of theirs has become countable.

    ``ids`` are all different, of pseudonyms that were not revoked; ``before`` are the masks of the
    levels that were countable before the call.
    """

    def __init__(self, state: State, ids: NDArray[np.intp], before: NDArray[np.uint8]) -> None:
        owner = state.entries["pseudonym"][ids]
        kept = LEVEL_COUNT[state.entries["countable"][ids]] > 1
        kept &= state.pseudonyms["reason"][owner] == 0
        at = np.flatnonzero(kept)
        at = at[one_of_each(ids[at])]
        self.ids, self.before = ids[at], before[at]


def pair_changes(
    state: State, retracted: NDArray[np.intp], touched: Touched | None = None
) -> Deltas:
    """Return by how much the numbers of pairs change, by (metric, window, cell, level).

    ``retracted`` are all entries that counted and count no more; ``touched`` are entries with new
    countable levels.
    """
    countable, owner = state.entries["countable"], state.entries["pseudonym"]
    found: list[tuple[NDArray[np.int64], ...]] = []
    if touched is not None:
        live = touched.ids[state.pseudonyms["reason"][owner[touched.ids]] == 0]
        found += _pairs(state, live, countable[live], 1)
        found += _pairs(state, touched.ids, touched.before, -1)
        retracted = retracted[~np.isin(retracted, touched.ids)]
    found += _pairs(state, retracted, countable[retracted], -1)
    if not found:
        return {}
    entry, place, weight, equal = (np.concatenate(parts) for parts in zip(*found, strict=True))
    metric = state.entries["metric"][entry].astype(np.int64)
    length = state.catalog.windows[metric]
    window = state.entries["event"][entry] // length
    # Windows are numbered from the first event, so that keys fit 64 bits whatever their lengths.
    since = window - (state.entries["event"][entry].min() // state.catalog.windows)[metric]
    cell = state.entries["cell"][entry].astype(np.int64)
    key = ((metric * (since.max() + 1) + since) * MAX_CELLS + cell) * _LEVELS + place // _COLUMNS
    _, at, group = np.unique(key, return_index=True, return_inverse=True)
    cells = group * _COLUMNS + place % _COLUMNS
    sums = np.zeros(at.size * _COLUMNS, dtype=np.int64)
    # Sums of ones and minus ones are exact as floats.
    sums += np.bincount(cells, weight, sums.size).astype(np.int64)
    sums += np.bincount(cells + 1, weight * equal, sums.size).astype(np.int64)
    heads = (metric[at], (window * length)[at], cell[at], place[at] // _COLUMNS)
    keys = zip(*(head.tolist() for head in heads), strict=True)
    return {
        each: vector[: pair_columns(int(state.catalog.levels[each[0]]))]
        for each, vector in zip(keys, sums.reshape(-1, _COLUMNS), strict=True)
        if vector.any()
    }


def _pairs(
    state: State, ids: NDArray[np.intp], masks: NDArray[np.uint8], weight: int
) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yield the pairs of entries with these masks of levels, as columns.

    They are entry, place of the pair (stronger level and column), ``weight``, and 1 if both
    payloads are equal, else 0.
    """
    tags = state.entries["tags"]
    for upper in range(1, tags.shape[1]):
        below = masks & np.uint8((1 << upper) - 1)
        at = np.flatnonzero((masks >> np.uint8(upper) & 1 > 0) & (below > 0))
        if at.size:
            entry, lower = ids[at], NEWEST[below[at]].astype(np.int64) - 1
            equal = (tags[entry, upper] == tags[entry, lower]).astype(np.int64)
            yield entry, upper * _COLUMNS + 2 * lower, np.full(at.size, weight), equal


def joined(state: State, counts: Deltas, pairs: Deltas) -> Deltas:
    """Return changes of whole vectors: the changes of counts, followed by those of pairs."""
    deltas: Deltas = {}
    for key in counts.keys() | pairs.keys():
        mechanism = state.catalog.mechanisms[key[0]]
        vector = np.zeros(columns(mechanism), dtype=np.int64)
        if key in counts:
            vector[: mechanism.count_length] = counts[key]
        if key in pairs:
            vector[mechanism.count_length :] = pairs[key]
        deltas[key] = vector
    return deltas
