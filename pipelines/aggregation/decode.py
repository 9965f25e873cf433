"""From messages to packed rows: which state each row belongs to, and which rows come too late.

:func:`sotto.wire.decode.decode` checks every row by itself; it compares its event time with the
append time of its own log record. One rule is added here: the state of a closed period is gone, so
its rows are late even if a plan that was registered only afterwards would still accept them.

The state of a budget period is cut into parts by the shards of its pseudonyms. A part costs a run
nearly the same for one report as for a thousand, so few parts are best for few reports over many
periods. Parts also bound how much is in memory at once, and are what workers count in parallel, so
many are best for many chains. The number of parts of a period is decided when its first reports
come, from the most reports that the run takes of one period and from the chains of other periods,
and never changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.coins import shards_of
from pipelines.aggregation.forgotten import Forgotten
from pipelines.aggregation.quarantine import Rejects, rejected
from pipelines.aggregation.rows import Rows, opens, padded_width
from sotto.log.reader import Block
from sotto.plan.registry import Registry
from sotto.wire.decode import Batch, Reject, decode
from sotto.wire.reasons import Reason


class Arrivals(NamedTuple):
    """The contents of a stretch of the log."""

    #: Each has rows of one shard, budget period and padded width. Rows that come too early or too
    #: late are among them, not countable, and among the rejects: the state audits them, too.
    rows: list[Rows]
    rejects: list[Reject]
    reports: int  #: decodable reports, those that are rejected for their time included


def arrivals(
    block: Block,
    registry: Registry,
    first_open: int | None,
    parts: Parts | None = None,
    forgotten: Forgotten | None = None,
) -> Arrivals:
    """Decode records of a partition into rows and rejects.

    ``first_open``: the first budget period that is not closed; None if none is closed. ``parts``:
    the numbers of parts of periods; without them rows are sorted by shard. ``forgotten``: the
    pseudonyms whose rows are rejected without their bytes.
    """
    forgotten = forgotten or Forgotten(b"")
    decoded = decode(block.buffer, block.offsets, block.lengths, block.append, registry)
    corrupt = [
        Reject(
            Reason.FUTURE if stretch.future else Reason.CORRUPT_LOG,
            bytes(stretch.body),
            stretch.append,
        )
        for stretch in block.corrupt
    ]
    batches, gone = forgotten.split(decoded.batches)
    timely = rows_of(batches, registry, parts=parts)
    # Rows are selected before they are sorted: made-up event times lie in very many periods.
    seen = [_seen(batch, registry) for batch in forgotten.split(decoded.untimely)[0]]
    untimely = rows_of(seen, registry, countable=False, parts=parts)
    closed = [rows for rows in timely if first_open is not None and rows.period < first_open]
    reasons = [np.full(len(rows), Reason.LATE, dtype=np.uint8) for rows in closed]
    late = [r for each in map(Rejects, closed, reasons) for r in rejected(each, registry)]
    return Arrivals(
        rows=[r for r in timely + untimely if first_open is None or r.period >= first_open],
        rejects=forgotten.without_bytes(decoded.rejects + corrupt) + gone + late,
        reports=sum(len(batch.level) for batch in (*decoded.batches, *decoded.untimely)),
    )


def _seen(batch: Batch, registry: Registry) -> Batch:
    """Return the untimely rows whose budget period could take reports at their append time.

    This depends on each row alone, so that it does not matter how the log is cut into runs.
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


#: How many chains a part is meant to have, at most.
CHAINS = 1 << 17


def parts_for(chains: Iterable[int], shards: int) -> int:
    """Return the number of parts, at most ``shards``, of a period whose first reports come.

    ``chains``: how many chains the period may have, by several measures (reports that the run takes
    of one period, chains of other periods); the largest decides.
    >>> parts_for([0], 64), parts_for([CHAINS, 5], 64), parts_for([1000 * CHAINS], 64)
    (1, 1, 64)
    """
    wanted = -(-max(chains) // CHAINS)
    return min(1 << max(wanted - 1, 0).bit_length(), shards)


@dataclass(frozen=True)
class Parts:
    """The numbers of parts of budget periods."""

    known: Mapping[int, int]  #: period to its number
    new: int  #: the number of all other periods

    def of(self, period: int) -> int:
        return self.known.get(period, self.new)

    def place(self, shards: NDArray[np.int64], periods: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the part of a period that each shard is in."""
        numbers = np.full(len(periods), self.new, dtype=np.int64)
        for period, number in self.known.items():
            if number != self.new:
                numbers[periods == period] = number
        placed: NDArray[np.int64] = shards % numbers
        return placed


def rows_of(
    batches: Sequence[Batch],
    registry: Registry,
    *,
    countable: bool = True,
    parts: Parts | None = None,
) -> list[Rows]:
    """Sort decoded batches into rows of one shard, budget period and padded width each.

    ``batches``: of any metrics, shards and periods. ``countable``: False for batches that were
    decoded but came too late or from the future. ``parts``: if given, rows of all shards in one
    part of a period come together, with the number of the part as ``shard``.

    The list is in the order of shard, period and padded width. Payloads of up to 64 B have one
    padded width, wider ones their own. Rows keep the order of the batches.
    """
    alike: dict[int, list[Rows]] = {}
    for batch in batches:
        if len(batch.level):
            own = alike.setdefault(padded_width(batch.payload.shape[1]), [])
            own.append(_of_batch(batch, countable))
    found = [
        rows
        for width in sorted(alike)
        for rows in _by_place(Rows.concat(alike[width]), registry, parts)
    ]
    return sorted(found, key=lambda rows: (rows.shard, rows.period))


def _by_place(everything: Rows, registry: Registry, parts: Parts | None) -> list[Rows]:
    """Return rows, of which there is at least one, by shard and period."""
    shards = shards_of(everything.pseudonym, registry.shards).astype(np.int64)
    periods = everything.event // registry.period
    if parts is not None:
        shards = parts.place(shards, periods)
    first, last = int(periods.min()), int(periods.max())
    if (last - first + 1) * registry.shards <= 2**16:
        # Numpy sorts 16-bit integers in linear time.
        group = shards * (last - first + 1) + (periods - first)
        order = np.argsort(group.astype(np.uint16), kind="stable")
    else:
        # The product of the two may exceed 64 bits.
        order = np.lexsort((periods, shards))
    ordered, shards, periods = everything.select(order), shards[order], periods[order]
    cuts = [*np.flatnonzero(opens(shards, periods)).tolist(), len(order)]
    return [
        ordered.select(slice(first, end), place=(int(shards[first]), int(periods[first])))
        for first, end in itertools.pairwise(cuts)
    ]


def _of_batch(batch: Batch, countable: bool) -> Rows:
    """Return a batch as rows; shard and period are 0 until :func:`_by_place` sets them."""
    n = len(batch.level)
    return Rows(
        shard=0,
        period=0,
        widths={batch.metric: batch.payload.shape[1]},
        metric=np.full(n, batch.metric, dtype=np.uint16),
        level=batch.level,
        pseudonym=batch.pseudonym,
        chain=batch.chain,
        event=batch.event,
        append=batch.append,
        countable=np.full(n, countable),
        cell=batch.cell,
        payload=batch.payload,
    )
