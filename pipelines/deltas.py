"""Changes of count vectors: what rows that start and stop counting add up to."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.catalog import Catalog
from pipelines.groups import opens
from pipelines.rows import Rows

#: Changes of count vectors by (registered metric, start of the window in ms, level).
Deltas: TypeAlias = dict[tuple[int, int, int], NDArray[np.int64]]

_LEVELS = 8


def changes(catalog: Catalog, plus: Rows, minus: Rows) -> Deltas:
    """Add up rows that count from now on and take off those that no longer do.

    Parameters
    ----------
    catalog : Catalog
        The registered metrics.
    plus, minus : Rows
        Of one shard and period.

    Returns
    -------
    dict
        ``(count_length,)`` int64 vectors by (metric, window start, level); none that is all zero.
    """
    rows = Rows.concat([plus, minus])
    if not len(rows):
        return {}
    window = rows.event // catalog.windows[rows.metric]
    # Counted from the first event, so that keys stay within 64 bits whatever the lengths.
    since = window - (rows.event.min() // catalog.windows)[rows.metric]
    key = (rows.metric * (since.max() + 1) + since) * _LEVELS + rows.level
    order = np.argsort(key)
    rows, window, off = rows.select(order), window[order], order >= len(plus)
    new = opens(key[order])
    group, at = np.cumsum(new) - 1, np.flatnonzero(new)
    starts = (window[at] * catalog.windows[rows.metric[at]]).tolist()
    levels = rows.level[at].tolist()
    deltas: Deltas = {}
    cuts = [*np.flatnonzero(opens(rows.metric)).tolist(), len(rows)]
    for own in itertools.starmap(slice, itertools.pairwise(cuts)):
        metric, first = int(rows.metric[own.start]), int(group[own.start])
        vectors = _difference(catalog, metric, rows.select(own), group[own] - first, off[own])
        for number in np.flatnonzero(vectors.any(axis=1)).tolist():
            key_of = metric, starts[first + number], levels[first + number]
            deltas[key_of] = vectors[number]
    return deltas


def _difference(
    catalog: Catalog,
    metric: int,
    rows: Rows,
    group: NDArray[np.int64],
    off: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Count rows of one metric by group, those marked ``off`` as negative."""
    groups = int(group[-1]) + 1
    counts = catalog.mechanisms[metric].accumulate(
        rows.payload[:, : catalog.widths[metric]],
        rows.chain,
        rows.pseudonym,
        group + off * groups,
        2 * groups,
    )
    difference: NDArray[np.int64] = counts[:groups] - counts[groups:]
    return difference
