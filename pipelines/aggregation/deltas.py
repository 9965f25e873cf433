"""Changes of count vectors: what rows that start and stop counting add up to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.base import Mechanism
from pipelines.aggregation.catalog import Catalog
from pipelines.aggregation.groups import opens
from pipelines.aggregation.rows import Rows

#: Changes of count vectors by (registered metric, start of the window in ms, level).
Deltas: TypeAlias = dict[tuple[int, int, int], NDArray[np.int64]]

#: Cells of count vectors that are made at a time, but always at least one vector.
PASS_CELLS = 1 << 22

_LEVELS = 8


def changes(catalog: Catalog, plus: Rows, *minus: Rows) -> Deltas:
    """Add up rows that count from now on and take off those that no longer do.

    Parameters
    ----------
    catalog : Catalog
        The registered metrics.
    plus, *minus : Rows
        Of one shard and period.

    Returns
    -------
    dict
        ``(count_length,)`` int64 vectors by (metric, window start, level); none that is all zero.
    """
    parts = (plus, *minus)
    metric = np.concatenate([part.metric for part in parts])
    if not metric.size:
        return {}
    event = np.concatenate([part.event for part in parts])
    level = np.concatenate([part.level for part in parts])
    window = event // catalog.windows[metric]
    # Counted from the first event, so that keys stay within 64 bits whatever the lengths.
    since = window - (event.min() // catalog.windows)[metric]
    key = (metric * (since.max() + 1) + since) * _LEVELS + level
    order = np.argsort(key)
    new = opens(key[order])
    group, at = np.cumsum(new) - 1, order[np.flatnonzero(new)]
    starts = (window[at] * catalog.windows[metric[at]]).tolist()
    metrics, levels = metric[at].tolist(), level[at].tolist()
    deltas: Deltas = {}
    for groups in _passes(catalog, metric[at]):
        first, end = np.searchsorted(group, [groups.start, groups.stop]).tolist()
        vectors = _difference(
            catalog.mechanisms[metrics[groups.start]],
            parts,
            order[first:end],
            group[first:end] - groups.start,
        )
        for number in np.flatnonzero(vectors.any(axis=1)).tolist():
            each = groups.start + number
            deltas[metrics[each], starts[each], levels[each]] = vectors[number]
    return deltas


def _passes(catalog: Catalog, metric: NDArray[np.uint16]) -> Iterator[slice]:
    """Cut groups, given the metric of each, ascending, into pieces that are counted together."""
    cuts = [*np.flatnonzero(opens(metric)).tolist(), len(metric)]
    for first, end in itertools.pairwise(cuts):
        size = max(PASS_CELLS // catalog.mechanisms[int(metric[first])].count_length, 1)
        for at in range(first, end, size):
            yield slice(at, min(at + size, end))


def _difference(
    mechanism: Mechanism,
    parts: tuple[Rows, ...],
    at: NDArray[np.intp],
    group: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Count rows of one metric by group: those of the first part less those of the others.

    ``at`` numbers the rows of all parts one after another. They are never joined, since the
    payloads of one may be much wider than another's.
    """
    groups, first = int(group[-1]) + 1, 0
    counts = np.zeros((groups, mechanism.count_length), dtype=np.int64)
    for number, part in enumerate(parts):
        own = (at >= first) & (at < first + len(part))
        if own.any():
            some = _counts(mechanism, part, at[own] - first, group[own], groups)
            (np.subtract if number else np.add)(counts, some, out=counts)
        first += len(part)
    return counts


def _counts(
    mechanism: Mechanism,
    rows: Rows,
    at: NDArray[np.intp],
    group: NDArray[np.int64],
    groups: int,
) -> NDArray[np.int64]:
    """Count the rows ``at`` by group."""
    counts: NDArray[np.int64] = mechanism.accumulate(
        rows.payload.take(at, axis=0)[:, : mechanism.payload_width],
        rows.chain.take(at, axis=0),
        rows.pseudonym.take(at, axis=0),
        group,
        groups,
    )
    return counts
