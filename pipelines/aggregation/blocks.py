"""From messages to packed blocks: where decoded rows go, and which of them come too late.

Whether a report is early or late is decided by the append time of its own log record. One thing
is added here: the state of a closed period is gone, so that its rows are late even if a plan
that was registered only afterwards would still take them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from pipelines.aggregation.parts import Parts
from pipelines.aggregation.rows import Rows, rows_of
from pipelines.aggregation.step import Rejects
from pipelines.storage.quarantine import rejected
from sotto.log.reader import Block
from sotto.plan.registry import Registry
from sotto.wire.decode import Batch, Reject, decode
from sotto.wire.reasons import Reason


class Arrivals(NamedTuple):
    """What a stretch of the log holds.

    Attributes
    ----------
    rows : list of Rows
        Of one shard, budget period and padded width each; not countable are those that come at
        the wrong time, and are rejects too, but of which the state must know.
    rejects : list of Reject
    reports : int
        Decodable reports, whether rejected for their time or not.
    """

    rows: list[Rows]
    rejects: list[Reject]
    reports: int


def arrivals(
    block: Block, registry: Registry, first_open: int | None, parts: Parts | None = None
) -> Arrivals:
    """Decode a stretch of the log.

    Parameters
    ----------
    block : Block
        Records of a lane.
    registry : Registry
        The plans in force.
    first_open : int or None
        The first budget period that is not closed; None if none has been closed yet.
    parts : Parts, optional
        As in :func:`~pipelines.aggregation.rows.rows_of`.
    """
    decoded = decode(block.buffer, block.offsets, block.lengths, block.append, registry)
    corrupt = [
        Reject(Reason.CORRUPT_LOG, bytes(stretch.body), stretch.append) for stretch in block.corrupt
    ]
    timely = rows_of(decoded.batches, registry, parts=parts)
    # Selected first: made-up event times lie in very many periods.
    seen = [_seen(batch, registry) for batch in decoded.untimely]
    untimely = rows_of(seen, registry, countable=False, parts=parts)
    closed = [rows for rows in timely if _is_closed(rows, first_open)]
    late = [reject for rows in closed for reject in rejected(_late(rows), registry)]
    return Arrivals(
        rows=[rows for rows in timely + untimely if not _is_closed(rows, first_open)],
        rejects=decoded.rejects + corrupt + late,
        reports=sum(map(len, timely)) + sum(len(batch.level) for batch in decoded.untimely),
    )


def _is_closed(rows: Rows, first_open: int | None) -> bool:
    return first_open is not None and rows.period < first_open


def _late(rows: Rows) -> Rejects:
    return Rejects(rows, np.full(len(rows), Reason.LATE, dtype=np.uint8))


def _seen(batch: Batch, registry: Registry) -> Batch:
    """Return untimely rows of periods that had begun and were not over when the log took them.

    Like all that is said about time here, this does not depend on where runs are cut.
    """
    period = batch.event // registry.period
    first = (batch.append - registry.horizon) // registry.period
    at = np.flatnonzero((first <= period) & (period <= batch.append // registry.period))
    columns = {
        each.name: getattr(batch, each.name).take(at, axis=0)
        for each in fields(batch)
        if each.name != "metric"
    }
    return replace(batch, **columns)
