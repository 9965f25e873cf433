"""Counts of a window: one vector a rung, kept on disk in pages; merging is addition.

Everything that is estimated comes from these. They are keyed (plan fingerprint, metric, window
start); the vectors of a window's rungs are the rows of one matrix, which adds to another like
any matrix. A *page* holds the windows that start in one budget period, so that a run rewrites
the few pages that it touches and never the history. Each window carries its *revision*: the
generation that changed it last, by which a database that fell behind finds what it missed.

Page, little-endian: a sequence of windows ascending by key, each a header of 62 B (fingerprint,
metric u16, start i64, revision u64, rungs u16, length u32, 6 B of zeros) and the matrix, i64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sotto.errors import FormatError

KIND = b"counts"

_HEAD = struct.Struct("<32sHqQHI6x")
_KEY = struct.Struct("<32sHq")
_MATRIX = struct.Struct("<HI2x")
_I64 = np.dtype("<i8")
#: Bytes of a window's key.
KEY_BYTES = _KEY.size

Matrix: TypeAlias = NDArray[np.int64]


class WindowKey(NamedTuple):
    """A metric's window: plan fingerprint, the metric's index in that plan, start in ms."""

    fingerprint: bytes
    metric: int
    start: int

    def to_bytes(self) -> bytes:
        """Return the key as 42 bytes."""
        return _KEY.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes) -> WindowKey:
        """Return the key of 42 bytes."""
        return cls(*_KEY.unpack(data))


def page_of(key: WindowKey, period: int) -> int:
    """Return the page that a window is on: the budget period, of ``period`` ms, it starts in."""
    return key.start // period


@dataclass(frozen=True, eq=False)
class Window:
    """What is counted in one window.

    Parameters
    ----------
    revision : int
        The generation that changed it last.
    counts : (rungs, length) int64
        One vector a rung, weakest first.
    """

    revision: int
    counts: Matrix


def pack_matrix(counts: Matrix) -> bytes:
    """Return a matrix as bytes: rungs u16, length u32, 2 B of zeros, then i64."""
    return _MATRIX.pack(*counts.shape) + counts.astype(_I64, copy=False).tobytes()


def matrix_bytes(data: bytes, at: int) -> int:
    """Return how many bytes the packed matrix takes that begins somewhere."""
    rungs, length = _MATRIX.unpack_from(data, at)
    return int(_MATRIX.size + _I64.itemsize * rungs * length)


def unpack_matrix(data: bytes) -> Matrix:
    """Return the matrix of :func:`pack_matrix`; read-only.

    Raises
    ------
    FormatError
        The bytes are no matrix.
    """
    if len(data) < 8 or (len(data) - 8) % 8:
        raise FormatError(f"{len(data)} bytes are no matrix of counts")
    rungs, length = _MATRIX.unpack_from(data)
    values = np.frombuffer(data, _I64, offset=8)
    if values.size != rungs * length:
        raise FormatError(f"a matrix of counts of {rungs} x {length} has {values.size} numbers")
    return values.reshape(rungs, length).astype(np.int64, copy=False)


def add(packed: Iterable[bytes]) -> bytes:
    """Return the sum of packed matrices of one shape, of which there is at least one.

    Examples
    --------
    >>> one = pack_matrix(np.array([[1, 2, 3]]))
    >>> unpack_matrix(add([one, one]))
    array([[2, 4, 6]])
    """
    matrices = iter(packed)
    total = unpack_matrix(next(matrices)).copy()
    for data in matrices:
        total += unpack_matrix(data)
    return pack_matrix(total)


def pack_page(windows: Mapping[WindowKey, Window]) -> bytes:
    """Return the packed page; the same windows give the same bytes."""
    parts = []
    for key, window in sorted(windows.items()):
        parts.append(_HEAD.pack(*key, window.revision, *window.counts.shape))
        parts.append(window.counts.astype(_I64, copy=False).tobytes())
    return b"".join(parts)


def unpack_page(data: bytes | memoryview) -> dict[WindowKey, Window]:
    """Return the windows of a packed page.

    Raises
    ------
    FormatError
        The bytes are no page.
    """
    return dict(_windows(data))


def _windows(data: bytes | memoryview) -> Iterator[tuple[WindowKey, Window]]:
    at = 0
    while at < len(data):
        if len(data) < at + _HEAD.size:
            raise FormatError("a page of counts is cut short")
        fingerprint, metric, start, revision, rungs, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if len(data) < at + 8 * rungs * length:
            raise FormatError("a page of counts is cut short")
        values = np.frombuffer(data, _I64, rungs * length, at).reshape(rungs, length)
        yield WindowKey(fingerprint, metric, start), Window(revision, values.astype(np.int64))
        at += 8 * rungs * length


def merge(
    page: Mapping[WindowKey, Window], changes: Iterable[tuple[WindowKey, Matrix]], revision: int
) -> dict[WindowKey, Window]:
    """Return a page with changes added; a window that they leave as it was keeps its revision.

    Parameters
    ----------
    page : mapping of WindowKey to Window
        As committed.
    changes : iterable of (WindowKey, (rungs, length) int64)
        What a generation adds; negative where it retracts.
    revision : int
        That generation.

    Raises
    ------
    FormatError
        A change has another shape than its window, or takes away more than there is.
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
        merged[key] = Window(revision, counts)
    return merged
