"""Quarantine: what was rejected, byte for byte, with the reason and when the log took it.

There is one file for each generation, little-endian. An entry is a header of 18 B (reason u16,
append time i64, rows u32, length u32) and the message. Rejected rows of a message that could be
decoded become whole messages, which can be looked at, or appended to a log again. The order of
entries does not depend on the order in which a job met them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.rows import Rows
from sotto.errors import FormatError
from sotto.plan.registry import Registry
from sotto.wire.decode import Batch, Reject, encode_rows
from sotto.wire.reasons import Reason


class Rejects(NamedTuple):
    """Rows that do not count and the reason of each: ``reason`` is ``(n,)`` uint8."""

    rows: Rows
    reason: NDArray[np.uint8]


KIND = b"rejects"

_HEAD = struct.Struct("<HqII")


def pack(rejects: Iterable[Reject]) -> bytes:
    """Return rejects as bytes; those of several calls may be joined.

    >>> packed = pack([Reject(Reason.MALFORMED, b"what", 5)])
    >>> [reject.reason.label for reject in unpack(packed)]
    ['malformed']
    """
    return b"".join(
        _HEAD.pack(each.reason, each.append, each.rows, len(each.message)) + each.message
        for each in rejects
    )


def unpack(data: bytes | memoryview) -> Iterator[Reject]:
    at = 0
    while at < len(data):
        if len(data) < at + _HEAD.size:
            raise FormatError("quarantine is cut short")
        reason, append, rows, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if len(data) < at + length:
            raise FormatError("quarantine is cut short")
        yield Reject(Reason(reason), bytes(data[at : at + length]), append, rows)
        at += length


def combine(packed: Iterable[bytes]) -> bytes:
    """Return packed rejects as one, sorted by append time."""
    rejects = [reject for data in packed for reject in unpack(data)]
    rejects.sort(key=lambda reject: (reject.append, *reject))
    return pack(rejects)


def numbers(rejects: Iterable[Reject]) -> dict[str, int]:
    """Return how many reports are rejected, by reason; a message that has no rows counts as one."""
    total: Counter[str] = Counter()
    for reject in rejects:
        total[reject.reason.label] += max(reject.rows, 1)
    return dict(sorted(total.items()))


def rejected(rejects: Rejects, registry: Registry) -> list[Reject]:
    """Return rejected rows as messages of one row each, which a device could have sent."""
    rows, found = rejects.rows, []
    for metric in np.unique(rows.metric).tolist():
        at = np.flatnonzero(rows.metric == metric)
        messages = encode_rows(_batch(rows, metric, at), registry)
        reasons, appends = rejects.reason[at].tolist(), rows.append[at].tolist()
        for message, reason, append in zip(messages, reasons, appends, strict=True):
            found.append(Reject(Reason(reason), message, append, 1))
    return found


def _batch(rows: Rows, metric: int, at: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Batch:
    return Batch(
        metric=metric,
        level=rows.level[at],
        pseudonym=rows.pseudonym[at],
        chain=rows.chain[at],
        event=rows.event[at],
        append=rows.append[at],
        payload=rows.payload[at, : rows.widths[metric]],
        cell=rows.cell[at],
    )
