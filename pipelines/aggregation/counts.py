"""Counts of a window: one vector a level, kept on disk in pages; merging is addition.

All estimates are made of these counts. :func:`changes` makes them from rows that start or stop
counting. A window is named by plan fingerprint, metric, start and cell of the plan's segments
(:class:`WindowKey`); the vectors of its levels are the rows of one matrix, and windows are merged
by adding matrices. A *page* holds the windows that start in one budget period, so that a run
rewrites the few pages that it touches and never the history. Each window carries its *revision*:
the generation that changed it last, by which a database that fell behind finds what it missed.

Page, little-endian: a sequence of windows ascending by key, each a header of 62 B (fingerprint,
metric u16, start i64, revision u64, levels u16, length u32, cell u8, 5 B of zeros) and the matrix,
i64. Plans without segments have 0 for all cells.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.base import Mechanism
from pipelines.aggregation.rows import Rows, opens
from pipelines.aggregation.state import Catalog
from sotto.errors import FormatError
from sotto.plan.segments import MAX_CELLS

KIND = b"counts"

_HEAD = struct.Struct("<32sHqQHIB5x")
_KEY = struct.Struct("<32sHqB")
_CHANGE = struct.Struct("<32sHq")
_MATRIX = struct.Struct("<HIBx")
_I64 = np.dtype("<i8")
Matrix: TypeAlias = NDArray[np.int64]


class WindowKey(NamedTuple):
    """A metric's window in one cell of the plan's segments.

    Plan fingerprint, the metric's index in that plan, start in ms, and the cell, which is 0 where
    the plan has no segments.
    """

    fingerprint: bytes
    metric: int
    start: int
    cell: int = 0

    def to_bytes(self) -> bytes:
        return _KEY.pack(*self)


def page_of(key: WindowKey, period: int) -> int:
    """Return the page that a window is on: the budget period, of ``period`` ms, it starts in."""
    return key.start // period


@dataclass(frozen=True, eq=False)
class WindowCounts:
    """The counts of one window."""

    revision: int  #: the generation that changed it last
    counts: Matrix  #: (levels, length) int64; one vector a level, weakest first
    complete: bool = True  #: whether all its levels were due, and their grace over


def pack_change(key: WindowKey, change: Matrix) -> bytes:
    """Return a window and the change of its counts as bytes; several may be joined.

    The bytes are fingerprint, metric u16, start i64, levels u16, length u32, cell u8, a zero byte,
    and the matrix, i64.
    """
    head = _CHANGE.pack(*key[:3]) + _MATRIX.pack(*change.shape, key.cell)
    return head + change.astype(_I64, copy=False).tobytes()


def unpack_changes(data: bytes) -> Iterator[tuple[WindowKey, Matrix]]:
    """Yield the windows and matrices of :func:`pack_change`."""
    at = 0
    while at < len(data):
        start = at + _CHANGE.size
        levels, length, cell = _MATRIX.unpack_from(data, start)
        end = start + _MATRIX.size + _I64.itemsize * levels * length
        fingerprint, metric, first = _CHANGE.unpack_from(data, at)
        yield WindowKey(fingerprint, metric, first, cell), unpack_matrix(data[start:end])
        at = end


def unpack_matrix(data: bytes) -> Matrix:
    """Return the matrix of :func:`pack_change`; read-only."""
    if len(data) < 8 or (len(data) - 8) % 8:
        raise FormatError(f"{len(data)} bytes are no matrix of counts")
    levels, length, _ = _MATRIX.unpack_from(data)
    values = np.frombuffer(data, _I64, offset=8)
    if values.size != levels * length:
        raise FormatError(f"a matrix of counts of {levels} x {length} has {values.size} numbers")
    return values.reshape(levels, length).astype(np.int64, copy=False)


def summed(parts: Iterable[bytes]) -> bytes:
    """Return the sum of packed changes by window, packed in the order of the windows.

    >>> one = pack_change(WindowKey(bytes(32), 0, 5), np.array([[1, 2, 3]]))
    >>> [matrix.tolist() for _, matrix in unpack_changes(summed([one, one]))]
    [[[2, 4, 6]]]
    >>> earlier = pack_change(WindowKey(bytes(32), 0, 3), np.array([[4]]))
    >>> summed([one, earlier]) == summed([earlier, one]) == earlier + one
    True
    """
    total: dict[WindowKey, Matrix] = {}
    for part in parts:
        for key, matrix in unpack_changes(part):
            if key in total:
                total[key] += matrix
            else:
                total[key] = matrix.copy()
    return b"".join(pack_change(key, total[key]) for key in sorted(total))


def pack_page(windows: Mapping[WindowKey, WindowCounts]) -> bytes:
    """Return the packed page; the same windows give the same bytes."""
    parts = []
    for key, window in sorted(windows.items()):
        of_key, shape = key[:3], window.counts.shape
        parts.append(_HEAD.pack(*of_key, window.revision, *shape, key.cell))
        parts.append(window.counts.astype(_I64, copy=False).tobytes())
    return b"".join(parts)


def unpack_page(data: bytes | memoryview) -> dict[WindowKey, WindowCounts]:
    windows = {}
    at = 0
    while at < len(data):
        if len(data) < at + _HEAD.size:
            raise FormatError("a page of counts is cut short")
        fingerprint, metric, start, revision, levels, length, cell = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if len(data) < at + 8 * levels * length:
            raise FormatError("a page of counts is cut short")
        values = np.frombuffer(data, _I64, levels * length, at).reshape(levels, length)
        key = WindowKey(fingerprint, metric, start, cell)
        windows[key] = WindowCounts(revision, values.astype(np.int64))
        at += 8 * levels * length
    return windows


def merge(
    page: Mapping[WindowKey, WindowCounts],
    changes: Iterable[tuple[WindowKey, Matrix]],
    revision: int,
) -> dict[WindowKey, WindowCounts]:
    """Return a page with changes added; windows that change get the ``revision``.

    A change is negative where rows count no more. Raises FormatError if a count would be.
    """
    merged = dict(page)
    for key, change in changes:
        if not change.any():
            continue
        before = merged.get(key)
        if before is not None and before.counts.shape != change.shape:
            raise FormatError(f"counts of metric {key.metric} changed their shape")
        counts = change if before is None else before.counts + change
        if counts.min() < 0:
            raise FormatError(f"counts of metric {key.metric} would be negative")
        merged[key] = WindowCounts(revision, counts)
    return merged


#: Changes of count vectors by (registered metric, start of the window in ms, cell, level).
Deltas: TypeAlias = dict[tuple[int, int, int, int], NDArray[np.int64]]

#: Numbers in the count vectors that are made at a time; at least one vector always is.
PASS_CELLS = 1 << 22

_LEVELS = 8


def changes(catalog: Catalog, plus: Rows, *minus: Rows) -> Deltas:
    """Count rows of one shard and period: ``plus`` count from now on, ``minus`` no more.

    Returns ``(count_length,)`` int64 vectors by (metric, window start, cell, level); none that is
    all zero.
    """
    parts = (plus, *minus)
    metric = np.concatenate([part.metric for part in parts])
    if not metric.size:
        return {}
    event = np.concatenate([part.event for part in parts])
    level = np.concatenate([part.level for part in parts])
    cell = np.concatenate([part.cell for part in parts])
    window = event // catalog.windows[metric]
    # Windows are numbered from the first event, so that keys fit 64 bits whatever their lengths.
    since = window - (event.min() // catalog.windows)[metric]
    key = ((metric * (since.max() + 1) + since) * MAX_CELLS + cell) * _LEVELS + level
    order = np.argsort(key)
    new = opens(key[order])
    group, at = np.cumsum(new) - 1, order[np.flatnonzero(new)]
    starts = (window[at] * catalog.windows[metric[at]]).tolist()
    metrics, cells, levels = (column[at].tolist() for column in (metric, cell, level))
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
            deltas[metrics[each], starts[each], cells[each], levels[each]] = vectors[number]
    return deltas


def _passes(catalog: Catalog, metric: NDArray[np.uint16]) -> Iterator[slice]:
    """Yield slices of groups to count together: of one metric, and ``PASS_CELLS`` at most.

    ``metric``: that of each group, ascending.
    """
    cuts = [*np.flatnonzero(opens(metric)).tolist(), len(metric)]
    for first, end in itertools.pairwise(cuts):
        size = max(PASS_CELLS // catalog.mechanisms[int(metric[first])].count_length, 1)
        for at in range(first, end, size):
            yield slice(at, min(at + size, end))


def _difference(
    mechanism: Mechanism, parts: tuple[Rows, ...], at: NDArray[np.intp], group: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the counts of the first part's rows less those of the other parts', by group.

    ``at``: the places of one metric's rows in all parts joined; ``group``: the group of each.
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
    mechanism: Mechanism, rows: Rows, at: NDArray[np.intp], group: NDArray[np.int64], groups: int
) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = mechanism.accumulate(
        rows.payload.take(at, axis=0)[:, : mechanism.payload_width],
        rows.chain.take(at, axis=0),
        rows.pseudonym.take(at, axis=0),
        group,
        groups,
    )
    return counts
