"""Decoded reports as columns, and the packed block in which they cross Beam.

A :class:`Rows` holds reports of one shard and one budget period, of any metrics. Between Beam
steps it travels as one *block* of bytes, never as one Python object a report.

Block, little-endian: a header of 32 B (magic ``SOTTOROW``, u16 version, u16 shard, u32
number of metrics, i64 period, u32 rows, u32 bytes of the widest payload); for each metric that
occurs, ascending, u32 registered id and u32 payload bytes; then column after column: pseudonym
and chain (two u64 a row), event and append (i64), metric (u16), level and countable (u8), and in
version 2 the cell (u8), which in version 1 is 0 everywhere; then the payloads without padding:
width after width, ascending, rows of one width in their order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sotto.errors import FormatError, ParameterError

#: By mask of levels: the newest level in it, counted from one; 0 for none.
NEWEST = np.array([mask.bit_length() for mask in range(256)], dtype=np.uint8)
#: By mask of levels: how many levels are in it.
LEVEL_COUNT = np.array([mask.bit_count() for mask in range(256)], dtype=np.uint8)

_MAGIC = b"SOTTOROW"
_VERSION, _WITH_CELLS = 1, 2
_HEADER = struct.Struct("<8sHHIqII")
_COLUMNS = (
    ("pseudonym", "<u8", 2),
    ("chain", "<u8", 2),
    ("event", "<i8", 1),
    ("append", "<i8", 1),
    ("metric", "<u2", 1),
    ("level", "u1", 1),
    ("countable", "?", 1),
    ("cell", "u1", 1),
)
_NAMES = (*(name for name, _, _ in _COLUMNS), "payload")
#: The columns in a block, by version; only version 2 has cells.
_STORED = {_VERSION: _COLUMNS[:-1], _WITH_CELLS: _COLUMNS}

#: Bytes to which narrower payloads are padded: about as many as the rest of a row has.
_NARROW = 64


@dataclass(frozen=True, eq=False)
class Rows:
    """Columns of n decoded reports of one shard and one budget period."""

    shard: int
    period: int
    widths: Mapping[int, int]  #: payload bytes of every metric that occurs, by registered id
    metric: NDArray[np.uint16]  #: (n,) uint16; registered id
    level: NDArray[np.uint8]  #: (n,) uint8; level, 0 the weakest
    #: (n, 2) uint64; ids as little-endian halves.
    pseudonym: NDArray[np.uint64]
    chain: NDArray[np.uint64]
    #: ``event`` and ``append``: (n,) int64; when the value was recorded and when the log took the
    #: report, ms.
    event: NDArray[np.int64]
    append: NDArray[np.int64]
    #: (n,) bool; False for a report that came too late or from the future. It is never counted, but
    #: adds to its pseudonym's observed epsilon.
    countable: NDArray[np.bool_]
    #: (n,) uint8; the cell of the plan's segments in which the value was recorded.
    cell: NDArray[np.uint8]
    #: (n, W) uint8; W at least each metric's width; the bytes beyond it are zero.
    payload: NDArray[np.uint8]

    def __post_init__(self) -> None:
        n = len(self.metric)
        for name, _, width in _COLUMNS:
            shape = (n,) if width == 1 else (n, width)
            if getattr(self, name).shape != shape:
                raise ParameterError(f"column {name} must have the shape {shape}")
        if self.payload.ndim != 2 or len(self.payload) != n:
            raise ParameterError(f"payload must be a matrix of {n} rows")
        if max(self.widths.values(), default=0) > self.payload.shape[1]:
            raise ParameterError("payload has fewer bytes than its widest metric")

    def __len__(self) -> int:
        return len(self.metric)

    @property
    def packed_bytes(self) -> int:
        """Return the approximate size of the packed block, bytes: payloads without padding."""
        columns: int = sum(getattr(self, name).nbytes for name, _, _ in _COLUMNS)
        return columns + int(_by_metric(self.widths)[self.metric].sum())

    def select(
        self,
        index: NDArray[np.intp] | NDArray[np.bool_] | slice,
        place: tuple[int, int] | None = None,
    ) -> Rows:
        """Return the rows at ``index``: numbers, a mask, or a slice, which makes views.

        ``place``: their shard and period, if it differs from the shard and period of all.
        """
        if isinstance(index, slice):
            columns = {name: getattr(self, name)[index] for name in _NAMES}
        else:
            # For wide columns, take is ten times as fast as indexing.
            at = np.flatnonzero(index) if index.dtype == np.bool_ else index
            columns = {name: getattr(self, name).take(at, axis=0) for name in _NAMES}
        shard, period = place or (self.shard, self.period)
        return Rows(shard, period, self.widths, **columns)

    def renumbered(self, ids: NDArray[np.uint16]) -> Rows:
        """Return the rows with other ids of metrics: ``ids`` has the new id at each old one."""
        widths = {int(ids[metric]): width for metric, width in self.widths.items()}
        return replace(self, metric=ids[self.metric], widths=widths)

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """Return the rows of all parts, in order: at least one, of one shard and period."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            raise ParameterError("concat needs at least one part")
        if len({(part.shard, part.period) for part in parts}) > 1:
            raise ParameterError("parts of several shards or periods cannot be one")
        widths: dict[int, int] = {}
        for part in parts:
            for metric, width in part.widths.items():
                if widths.setdefault(metric, width) != width:
                    raise ParameterError(f"metric {metric} has payloads of two widths")
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name, _, _ in _COLUMNS
        }
        widest = max(part.payload.shape[1] for part in parts)
        payload = np.zeros((len(columns["metric"]), widest), dtype=np.uint8)
        at = 0
        for part in parts:
            payload[at : at + len(part), : part.payload.shape[1]] = part.payload
            at += len(part)
        return Rows(parts[0].shard, parts[0].period, widths, payload=payload, **columns)

    def to_bytes(self) -> bytes:
        """Return the packed block; equal rows in equal order give equal bytes."""
        present = np.flatnonzero(np.bincount(self.metric)).tolist()
        widths = {metric: self.widths[metric] for metric in present}
        widest = max(widths.values(), default=0)
        by_row = _by_metric(widths)[self.metric]
        version = _WITH_CELLS if self.cell.any() else _VERSION
        header = _HEADER.pack(
            _MAGIC, version, self.shard, len(widths), self.period, len(self), widest
        )
        columns = [
            getattr(self, name).astype(kind, copy=False).tobytes()
            for name, kind, _ in _STORED[version]
        ]
        payloads = [
            self.payload.take(np.flatnonzero(by_row == width), axis=0)[:, :width].tobytes()
            for width in sorted({*widths.values()})
        ]
        table = np.array(list(widths.items()), dtype="<u4").tobytes()
        return b"".join([header, table, *columns, *payloads])

    @classmethod
    def from_bytes(cls, data: bytes) -> Rows:
        """Return the rows of a packed block; its columns own their memory."""
        if len(data) < _HEADER.size:
            raise FormatError("a block is shorter than its header")
        magic, version, shard, metrics, period, n, widest = _HEADER.unpack_from(data)
        if magic != _MAGIC or version not in _STORED:
            raise FormatError("not a block of a known version")
        at = _HEADER.size + 8 * metrics
        stored = _STORED[version]
        if len(data) < at + n * sum(np.dtype(kind).itemsize * width for _, kind, width in stored):
            raise FormatError(f"a block of {n} rows is cut off at {len(data)} bytes")
        widths = dict(np.frombuffer(data, "<u4", 2 * metrics, _HEADER.size).reshape(-1, 2).tolist())
        columns: dict[str, NDArray[Any]] = {"cell": np.zeros(n, dtype=np.uint8)}
        for name, kind, width in stored:
            column = np.frombuffer(data, kind, n * width, at).copy()
            columns[name] = column if width == 1 else column.reshape(n, width)
            at += column.nbytes
        by_row = _by_metric(widths)[columns["metric"]]
        if len(data) != at + int(by_row.sum()):
            raise FormatError(f"a block of {n} rows has {len(data)} bytes")
        payload = np.zeros((n, widest), dtype=np.uint8)
        for width in sorted({*widths.values()}):
            rows = np.flatnonzero(by_row == width)
            payload[rows, :width] = np.frombuffer(data, "u1", rows.size * width, at).reshape(
                rows.size, width
            )
            at += rows.size * width
        return cls(shard=shard, period=period, widths=widths, payload=payload, **columns)


def padded_width(width: int) -> int:
    """Return the width, bytes, to which payloads of ``width`` bytes may be padded."""
    return max(width, _NARROW)


def _by_metric(widths: Mapping[int, int]) -> NDArray[np.int64]:
    """Return the widths as an array indexed by registered id."""
    table = np.zeros(max(widths, default=0) + 1, dtype=np.int64)
    table[list(widths)] = list(widths.values())
    return table


def opens(*ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a combination of values comes for the first time in columns sorted together.

    >>> opens(np.array([3, 3, 4]), np.array([1, 2, 2])).tolist()
    [True, True, True]
    """
    first = np.zeros(len(ordered[0]), dtype=np.bool_)
    first[:1] = True
    for column in ordered:
        first[1:] |= column[1:] != column[:-1]
    return first


def one_of_each(keys: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return for every different key the place of one row that has it, ascending by key.

    This is much faster than :func:`numpy.unique` with ``return_index``, which sorts stably.
    >>> one_of_each(np.array([7, 5, 6])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(keys)
    return order[opens(keys[order])]
