"""Rows as columns, what is rejected, and the way back to messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mechanisms.coins import shards_of
from sotto.errors import FormatError
from sotto.plan.registry import Registry
from sotto.wire.format import HEADER, MAGIC, MAX_MESSAGE, RUN, VERSION, row_size
from sotto.wire.reasons import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """Acceptable rows of one metric, as columns.

    Attributes
    ----------
    metric : int
        Its id in the registry.
    level : ndarray, shape (n,), uint8
    pseudonym, chain : ndarray, shape (n, 2), uint64
        Little-endian halves, bytes 0..7 first.
    event : ndarray, shape (n,), int64
        Milliseconds, aligned to the resolution.
    append : ndarray, shape (n,), int64
        Append time (ms) of the record that each row came in.
    payload : ndarray, shape (n, W), uint8
    """

    metric: int
    level: NDArray[np.uint8]
    pseudonym: NDArray[np.uint64]
    chain: NDArray[np.uint64]
    event: NDArray[np.int64]
    append: NDArray[np.int64]
    payload: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.level)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Batch:
        """Return some of the rows."""
        return Batch(
            self.metric,
            self.level[rows],
            self.pseudonym[rows],
            self.chain[rows],
            self.event[rows],
            self.append[rows],
            self.payload[rows],
        )


class Reject(NamedTuple):
    """What was not accepted, and why.

    Attributes
    ----------
    reason : Reason
    message : bytes
        A complete message where the bytes could be read as one: the whole message, or a message
        of one run with the rejected rows. Otherwise the bytes as they came.
    append : int
        Append time (ms).
    rows : int
        How many rows it holds; 0 where nobody can tell.
    """

    reason: Reason
    message: bytes
    append: int
    rows: int = 0


class Decoded(NamedTuple):
    """What messages hold.

    Attributes
    ----------
    batches : list of Batch
        Acceptable rows, at most one batch a metric.
    rejects : list of Reject
        Everything else.
    untimely : list of Batch
        Of the rejects the rows at which nothing but the time is wrong (late or future), at most
        one batch a metric: they do not count, and yet were seen.
    """

    batches: list[Batch]
    rejects: list[Reject]
    untimely: list[Batch]


def row_dtype(width: int) -> np.dtype[np.void]:
    """Return the layout of a row whose payload is ``width`` bytes wide."""
    return np.dtype(
        [
            ("level", "u1"),
            ("pseudonym", "<u8", (2,)),
            ("chain", "<u8", (2,)),
            ("event", "<i8"),
            ("payload", "u1", (width,)),
        ]
    )


def encode_rows(
    batch: Batch, registry: Registry, rows_per_message: int | None = None
) -> list[bytes]:
    """Write rows as messages of one run each, a shard after another.

    Parameters
    ----------
    batch : Batch
    registry : Registry
    rows_per_message : int, optional
        At most so many rows in one message; as many as fit if not given. With 1, messages are in
        the order of the rows.

    Raises
    ------
    FormatError
        ``rows_per_message`` is below 1, or so many rows do not fit one message.
    """
    _, fingerprint, plan, metric = registry.metrics[batch.metric]
    width = batch.payload.shape[1]
    most = (MAX_MESSAGE - HEADER.size - RUN.size) // row_size(width)
    limit = most if rows_per_message is None else rows_per_message
    if not 1 <= limit <= most:
        raise FormatError(f"rows_per_message {limit} must be in [1, {most}]")
    shard = shards_of(batch.pseudonym, plan.shards).astype(np.uint16)
    rows = np.empty(len(batch), dtype=row_dtype(width))
    for name in ("level", "pseudonym", "chain", "event", "payload"):
        rows[name] = getattr(batch, name)
    if limit > 1:
        order = np.argsort(shard, kind="stable")
        shard, rows = shard[order], rows[order]
        begins = np.flatnonzero(np.concatenate([[True], shard[1:] != shard[:-1]])).tolist()
        ends = [*begins[1:], len(rows)]
    else:
        begins, ends = [0], [len(rows)]
    messages = []
    for begin, end in zip(begins, ends, strict=True):
        for first in range(begin, end, limit):
            part = rows[first : min(first + limit, end)]
            header = HEADER.pack(MAGIC, VERSION, 0, int(shard[first]), 1, fingerprint)
            run = RUN.pack(metric.index, width, len(part))
            messages.append(header + run + part.tobytes())
    return messages
