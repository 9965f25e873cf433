"""Messages to columns, millions of rows at a time.

:func:`decode` goes through many messages at once, one group of each at a time, and checks every
row. Whatever bytes it is given, each of them ends in one row or in exactly one reject.
:func:`encode_rows` is the way back, for quarantine and for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mechanisms.coins import shards_of
from sotto.errors import ParameterError
from sotto.plan.registry import Registry
from sotto.wire.authentication import commit_to_keys, forged
from sotto.wire.format import (
    GROUP,
    HEADER,
    MAGIC,
    MAX_MESSAGE,
    SIGNED_VERSION,
    TRAILER,
    VERSION,
    row_size,
)
from sotto.wire.groups import LAYOUT, Groups, known_version, records_at, walk
from sotto.wire.reasons import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Rows checked at once: their columns stay in the second-level cache.
_CHUNK = 1 << 15
#: Fields of a row, as its layout and a batch's columns call them.
_COLUMNS = ("level", "pseudonym", "chain", "event", "payload")
#: Fields that it has of its message.
_OF_MESSAGE = ("append", "cell")
#: Keeps sums of times within 64 bits; durations are far below it.
_FAR = 2**62


@dataclass(frozen=True)
class Batch:
    """Acceptable rows of one metric, as columns of length n."""

    #: The metric's id in the registry.
    metric: int
    level: NDArray[np.uint8]
    #: Ids of shape (n, 2): little-endian halves, bytes 0..7 first.
    pseudonym: NDArray[np.uint64]
    chain: NDArray[np.uint64]
    #: Milliseconds, aligned to the resolution.
    event: NDArray[np.int64]
    #: Append time (ms) of the record that each row came in.
    append: NDArray[np.int64]
    #: Payloads, of shape (n, W).
    payload: NDArray[np.uint8]
    #: The cell of the plan's segments, of the message that each row came in.
    cell: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.level)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> Batch:
        """Return some of the rows."""
        columns = {name: getattr(self, name)[rows] for name in (*_COLUMNS, *_OF_MESSAGE)}
        return Batch(self.metric, **columns)


class Reject(NamedTuple):
    """Rows that were not accepted, and why."""

    reason: Reason
    #: A complete message where the bytes could be read as one: the whole message, or a message of
    #: one group with the rejected rows. Otherwise the bytes as they came.
    message: bytes
    #: Append time (ms).
    append: int
    #: How many rows it holds; 0 where that is unknown.
    rows: int = 0


class Decoded(NamedTuple):
    """Contents of messages: acceptable rows, at most one batch a metric, and everything else."""

    batches: list[Batch]
    rejects: list[Reject]
    #: Rejected rows whose only fault is their time (late or future), at most one batch a metric.
    #: They are not counted, but they are audited.
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


class _Tables(NamedTuple):
    """The registry as arrays: by plan, sorted by the fingerprint's first 8 bytes; by metric."""

    keys: NDArray[np.uint64]
    fingerprints: NDArray[np.uint64]
    first: NDArray[np.int64]
    metrics: NDArray[np.int64]
    width: NDArray[np.int64]
    signed: NDArray[np.bool_]
    cells: NDArray[np.int64]


@lru_cache(maxsize=16)
def _tables(registry: Registry) -> _Tables:
    plans = sorted(registry.plans, key=lambda plan: int.from_bytes(plan.fingerprint[:8], "little"))
    first = {fingerprint: id for id, fingerprint, _, _ in reversed(registry.metrics)}
    fingerprints = np.frombuffer(b"".join(plan.fingerprint for plan in plans), dtype="<u8")
    fingerprints = fingerprints.astype(np.uint64).reshape(-1, 4)
    return _Tables(
        keys=fingerprints[:, 0].copy(),
        fingerprints=fingerprints,
        first=np.array([first[plan.fingerprint] for plan in plans]),
        metrics=np.array([len(plan.metrics) for plan in plans]),
        width=np.array([each.metric.mechanism.payload_width for each in registry.metrics]),
        signed=np.array([plan.signed for plan in plans]),
        cells=np.array([plan.cells for plan in plans]),
    )


def decode(
    buffer: bytes | bytearray | memoryview,
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    append: NDArray[np.int64],
    registry: Registry,
) -> Decoded:
    """Read messages into columns and check every row.

    A row that fails several checks is rejected for the one with the lowest code, but
    unauthenticated goes first. Rows of one group that fail for the same reason make one reject.
    Raises ParameterError if a message would lie outside the buffer: an error of the caller's, not
    of the data.

    Parameters
    ----------
    offsets, lengths : ndarray, shape (m,), int64
        Where in the buffer each message is.
    append : ndarray, shape (m,), int64
        The messages' append times (ms): a row is early or late by these, never by a clock.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    offsets, lengths, append = (
        np.asarray(each, dtype=np.int64) for each in (offsets, lengths, append)
    )
    if not ((offsets >= 0) & (lengths >= 0) & (offsets <= len(data) - lengths)).all():
        raise ParameterError("a message must lie within the buffer")
    messages = _Messages(data, offsets, lengths, append, registry)
    rejects = messages.rejects()
    groups, group_rejects = messages.known_groups()
    rejects += group_rejects
    batches, untimely = [], []
    for metric, chosen in groups.by_metric():
        timely, others, row_rejects = _rows(messages, metric, chosen)
        rejects += row_rejects
        batches += [timely] if len(timely) else []
        untimely += [others] if len(others) else []
    return Decoded(batches, rejects, untimely)


class _Messages:
    """Messages whose headers have been read and whose groups have been found."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        append: NDArray[np.int64],
        registry: Registry,
    ) -> None:
        self.data, self.offsets, self.lengths, self.append = data, offsets, lengths, append
        self.registry, self.tables = registry, _tables(registry)
        count = len(offsets)
        self.reason = np.zeros(count, dtype=np.uint8)
        self.shard = np.zeros(count, dtype=np.uint16)
        self.cell = np.zeros(count, dtype=np.uint8)
        self.plan = np.zeros(count, dtype=np.int64)
        self.signed = np.zeros(count, dtype=np.bool_)
        groups = self._read_headers()
        fine = np.flatnonzero(self.reason == 0)
        ends = offsets + lengths - np.where(self.signed, TRAILER, 0)
        self.groups, broken = walk(data, fine, offsets + HEADER.size, ends, groups)
        self.reason[broken] = Reason.MALFORMED
        self.reason[(self.reason == 0) & (self.plan < 0)] = Reason.UNKNOWN_PLAN
        if registry.signed or self.signed.any():
            self._authenticate(ends)
        outside = (self.reason == 0) & (self.cell >= self.tables.cells[self.plan])
        self.reason[outside] = Reason.UNKNOWN_CELL

    def _authenticate(self, ends: NDArray[np.int64]) -> None:
        """Reject messages that are not signed as their plan says."""
        sound = np.flatnonzero(self.reason == 0)
        wanted, signed = self.tables.signed[self.plan[sound]], self.signed[sound]
        self.reason[sound[wanted != signed]] = Reason.UNAUTHENTICATED
        claimed = sound[wanted & signed]
        if len(claimed):
            bad = forged(self.data, claimed, self.offsets, ends, self.groups, self.registry)
            self.reason[bad] = Reason.UNAUTHENTICATED

    def _read_headers(self) -> NDArray[np.int64]:
        groups = np.zeros(len(self.offsets), dtype=np.int64)
        long = np.flatnonzero(self.lengths >= HEADER.size)
        self.reason[self.lengths < HEADER.size] = Reason.MALFORMED
        header = records_at(self.data, self.offsets[long], LAYOUT)
        reason = np.zeros(len(long), dtype=np.uint8)
        reason[(header["groups"] == 0) | (self.lengths[long] > MAX_MESSAGE)] = Reason.MALFORMED
        reason[~known_version(header)] = Reason.UNKNOWN_VERSION
        reason[header["magic"] != MAGIC] = Reason.MALFORMED
        self.reason[long] = reason
        self.shard[long] = header["shard"]
        self.cell[long] = header["cell"]
        self.signed[long] = header["version"] == SIGNED_VERSION
        self.plan[long] = self._find_plans(header["fingerprint"])
        groups[long] = header["groups"]
        return groups

    def _find_plans(self, fingerprints: NDArray[np.uint64]) -> NDArray[np.int64]:
        tables = self.tables
        plan = np.searchsorted(tables.keys, fingerprints[:, 0])
        plan[plan == len(tables.keys)] = 0
        same = (tables.fingerprints[plan] == fingerprints).all(axis=1)
        found: NDArray[np.int64] = np.where(same, plan, -1)
        return found

    def rejects(self) -> list[Reject]:
        """The messages that are rejected whole."""
        rejected = np.flatnonzero(self.reason)
        # Messages that are malformed or of another version have no group that was found, and no
        # row.
        lost = self.groups.where(self.reason[self.groups.message] != 0)
        counts = np.zeros(len(self.reason), dtype=np.int64)
        np.add.at(counts, lost.message, lost.rows)
        return [
            Reject(
                Reason(int(self.reason[message])),
                self._bytes(self.offsets[message], self.lengths[message]),
                int(self.append[message]),
                int(counts[message]),
            )
            for message in rejected
        ]

    def known_groups(self) -> tuple[Groups, list[Reject]]:
        """The groups of known metrics, these numbered as in the registry, and the other groups."""
        groups = self.groups.where(self.reason[self.groups.message] == 0)
        plan = self.plan[groups.message]
        known = groups.metric < self.tables.metrics[plan]
        metric = np.where(known, self.tables.first[plan] + groups.metric, 0)
        fits = self.tables.width[metric] == groups.width
        rejects = [
            Reject(
                Reason.WRONG_WIDTH if known[group] else Reason.UNKNOWN_METRIC,
                self._one_group(groups, group, self._group_rows(groups, group)),
                int(self.append[groups.message[group]]),
                int(groups.rows[group]),
            )
            for group in np.flatnonzero(~(known & fits)).tolist()
        ]
        return groups._replace(metric=metric).where(known & fits), rejects

    def row_rejects(
        self,
        groups: Groups,
        of_group: NDArray[np.int64],
        starts: NDArray[np.int64],
        reasons: NDArray[np.uint8],
    ) -> list[Reject]:
        """Rejected rows, those of one group and reason together."""
        order = np.lexsort((reasons, of_group))
        of_group, starts, reasons = of_group[order], starts[order], reasons[order]
        new = (of_group[1:] != of_group[:-1]) | (reasons[1:] != reasons[:-1])
        parts = np.split(np.arange(len(order)), np.flatnonzero(new) + 1)
        rejects = []
        for part in parts if len(order) else ():
            group = int(of_group[part[0]])
            size = row_size(int(groups.width[group]))
            rows = b"".join(self._bytes(starts[row], size) for row in part)
            rejects.append(
                Reject(
                    Reason(int(reasons[part[0]])),
                    self._one_group(groups, group, rows),
                    int(self.append[groups.message[group]]),
                    len(part),
                )
            )
        return rejects

    def _bytes(self, start: int, size: int) -> bytes:
        return self.data[start : start + size].tobytes()

    def _group_rows(self, groups: Groups, group: int) -> bytes:
        size = row_size(int(groups.width[group]))
        return self._bytes(groups.start[group], int(groups.rows[group]) * size)

    def _one_group(self, groups: Groups, group: int, rows: bytes) -> bytes:
        """A message of one group; its metric's index is taken from the bytes it came in.

        The signature of a signed message is not one of its parts, which are therefore unsigned.
        """
        header = self._bytes(self.offsets[groups.message[group]], HEADER.size)
        magic, _, cell, shard, _, fingerprint = HEADER.unpack(header)
        metric, width, _ = GROUP.unpack(self._bytes(groups.start[group] - GROUP.size, GROUP.size))
        count = len(rows) // row_size(width)
        return (
            HEADER.pack(magic, VERSION, cell, shard, 1, fingerprint)
            + GROUP.pack(metric, width, count)
            + rows
        )


def _rows(messages: _Messages, metric: int, groups: Groups) -> tuple[Batch, Batch, list[Reject]]:
    """Read and check all rows of one metric; return the timely, the untimely and all rejected."""
    width = int(groups.width[0])
    of_group, starts = groups.places()
    n = len(starts)
    batch = Batch(
        metric=metric,
        level=np.empty(n, dtype=np.uint8),
        pseudonym=np.empty((n, 2), dtype=np.uint64),
        chain=np.empty((n, 2), dtype=np.uint64),
        event=np.empty(n, dtype=np.int64),
        append=messages.append[groups.message][of_group],
        payload=np.empty((n, width), dtype=np.uint8),
        cell=messages.cell[groups.message][of_group],
    )
    shard = messages.shard[groups.message]
    dtype = row_dtype(width)
    reasons = np.empty(n, dtype=np.uint8)
    for begin in range(0, n, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        rows = records_at(messages.data, starts[part], dtype)
        for name in _COLUMNS:
            getattr(batch, name)[part] = rows[name]
        reasons[part] = _row_reasons(batch[part], shard[of_group[part]], messages.registry)
    bad = reasons != 0
    if not bad.any():
        return batch, batch[bad], []
    rejects = messages.row_rejects(groups, of_group[bad], starts[bad], reasons[bad])
    # The lowest code is kept of several reasons, and these two have the highest.
    untimely = (reasons == Reason.LATE) | (reasons == Reason.FUTURE)
    return batch[~bad], batch[untimely], rejects


def _row_reasons(batch: Batch, shard: NDArray[np.uint16], registry: Registry) -> NDArray[np.uint8]:
    """The reason (0: none) of each row; where there are several, the lowest code is kept.

    But that a row needs a signature goes before all others. Under a plan that has signatures they
    have been verified.
    """
    plan, metric = registry.metrics[batch.metric][2:]
    append = np.clip(batch.append, -_FAR, _FAR)
    failed = (
        (Reason.LATE, batch.event < append - metric.horizon),
        (Reason.FUTURE, batch.event > append + registry.resolution),
        (Reason.MISALIGNED_TIME, batch.event % registry.resolution != 0),
        (Reason.OUT_OF_DOMAIN, ~metric.mechanism.valid(batch.payload)),
        (Reason.IMPOSSIBLE_LEVEL, batch.level >= metric.sent),
        (Reason.WRONG_SHARD, shards_of(batch.pseudonym, registry.shards) != shard),
    )
    reasons = np.zeros(len(batch), dtype=np.uint8)
    for reason, rows in failed:
        reasons[rows] = reason
    if not plan.signed:
        reasons[commit_to_keys(batch.pseudonym)] = Reason.UNAUTHENTICATED
    return reasons


def encode_rows(batch: Batch, registry: Registry) -> list[bytes]:
    """Write rows as messages of one row each, in their order."""
    _, fingerprint, plan, metric = registry.metrics[batch.metric]
    rows = np.empty(len(batch), dtype=row_dtype(batch.payload.shape[1]))
    for name in _COLUMNS:
        rows[name] = getattr(batch, name)
    group = GROUP.pack(metric.index, batch.payload.shape[1], 1)
    shards = shards_of(batch.pseudonym, plan.shards).tolist()
    return [
        HEADER.pack(MAGIC, VERSION, cell, shard, 1, fingerprint) + group + row.tobytes()
        for cell, shard, row in zip(batch.cell.tolist(), shards, rows, strict=True)
    ]
