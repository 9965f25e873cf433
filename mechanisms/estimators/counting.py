"""Counting kernels: how many reports of each group have each symbol, or each bit, set.

Counts are all that estimation needs, and they add up, so everything above this module may cut
the rows into pieces as it likes. Bits are numbered as :func:`numpy.packbits` with
``bitorder="little"`` packs them: bit ``j`` of a row is bit ``j % 8`` of byte ``j // 8``.

Bits are summed in *byte lanes*: every bit is spread to a byte, and 64-bit additions sum eight
columns at once, at most 255 rows before a byte could overflow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechanisms.arrays import Bytes, Ints
from mechanisms.errors import ParameterError

#: Rows that can be added in byte lanes before one could overflow.
_BYTE_ROWS = 255
#: Sorted rows spread at once: few enough for the cache, a multiple of ``_BYTE_ROWS``.
_SPREAD_ROWS = 16 * _BYTE_ROWS
#: Reports whose keys are held at once.
_KEYS = 32_768


def grouped_bit_sums(rows: Bytes, groups: Ints, n_groups: int) -> Ints:
    """Count, in each group, the rows that have each bit set: ``(n_groups, 8 W)`` ``int64``.

    Rows are ``(n, W)`` packed bits; the group of each, in any order, must lie in ``[0, n_groups)``.

    >>> grouped_bit_sums(np.array([[3], [5], [1]], dtype=np.uint8), np.array([1, 0, 1]), 2)
    array([[1, 0, 1, 0, 0, 0, 0, 0],
           [2, 1, 0, 0, 0, 0, 0, 0]])
    """
    n, width = rows.shape
    _check_range("groups", groups, n_groups)
    out = np.zeros((n_groups, 8 * width), dtype=np.int64)
    if n == 0:
        return out
    if not (groups[1:] >= groups[:-1]).all():
        order = _stable_order(groups, n_groups)
        rows, groups = rows.take(order, axis=0), groups.take(order)
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    out[groups[starts]] = _sorted_bit_sums(rows, starts)
    return out


def grouped_counts(symbols: NDArray[np.integer], groups: Ints, n_groups: int, m: int) -> Ints:
    """Count, in each group, the reports of each symbol: ``(n_groups, m)`` ``int64``.

    Symbols must lie in ``[0, m)`` and groups in ``[0, n_groups)``.

    >>> grouped_counts(np.array([2, 0, 2]), np.array([0, 1, 0]), 2, 3)
    array([[0, 0, 2],
           [1, 0, 0]])
    """
    counts = np.zeros(n_groups * m, dtype=np.int64)
    # Keys are made, checked and counted while they are still in the processor's cache.
    for start in range(0, len(symbols), _KEYS):
        part = symbols[start : start + _KEYS]
        _check_range("symbols", part, m)
        keys = np.multiply(groups[start : start + _KEYS], m, dtype=np.int64)
        keys += part
        # With symbols in range, a key is out of range exactly if its group is; seen as unsigned,
        # a negative one is too large.
        if not int(keys.view(np.uint64).max()) < counts.size:
            raise ParameterError(f"groups must lie in [0, {n_groups})")
        found = np.bincount(keys)
        counts[: found.size] += found
    return counts.reshape(n_groups, m)


def _check_range(name: str, values: NDArray[np.integer], limit: int) -> None:
    unsigned = values.dtype.kind == "u"
    if values.size and not ((unsigned or int(values.min()) >= 0) and int(values.max()) < limit):
        raise ParameterError(f"{name} must lie in [0, {limit})")


def _stable_order(groups: Ints, n_groups: int) -> NDArray[np.intp]:
    """Sort by group with numpy's radix sort, which it has for 16-bit keys only."""
    order = np.argsort((groups & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(16, (n_groups - 1).bit_length(), 16):
        digit = ((groups >> shift) & 0xFFFF).astype(np.uint16)
        order = order.take(np.argsort(digit.take(order), kind="stable"))
    return order


def _sorted_bit_sums(rows: Bytes, starts: NDArray[np.intp]) -> Ints:
    """Sum bits in byte lanes; group ``i`` is ``rows[starts[i]:starts[i + 1]]``, none empty."""
    n, width = rows.shape
    cut = np.zeros(n, dtype=bool)
    cut[::_BYTE_ROWS] = True
    cut[starts] = True
    pieces = np.flatnonzero(cut)
    sums = np.empty((width, len(pieces)), dtype=np.uint64)
    done = 0
    for begin in range(0, n, _SPREAD_ROWS):
        upto = int(np.searchsorted(pieces, begin + _SPREAD_ROWS))
        columns = np.ascontiguousarray(rows[begin : begin + _SPREAD_ROWS].T)
        lanes = np.unpackbits(columns.reshape(-1), bitorder="little").view(np.uint64)
        np.add.reduceat(
            lanes.reshape(width, -1), pieces[done:upto] - begin, axis=1, out=sums[:, done:upto]
        )
        done = upto
    counts = sums.view(np.uint8).reshape(width, -1, 8)
    if len(pieces) == len(starts):
        return counts.transpose(1, 0, 2).reshape(len(starts), -1).astype(np.int64)
    wide = counts.transpose(0, 2, 1).astype(np.int64)
    grouped = np.add.reduceat(wide, np.searchsorted(pieces, starts), axis=2)
    return grouped.reshape(8 * width, len(starts)).T
