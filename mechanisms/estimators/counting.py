"""Counting kernels: how many reports of each group have each symbol, or each bit, set.

Counts are all that estimation needs, and they add up, so everything above this module may cut
the rows into pieces as it likes. Bits are numbered as :func:`numpy.packbits` with
``bitorder="little"`` packs them: bit ``j`` of a row is bit ``j % 8`` of byte ``j // 8``.

Two ways to sum bits, both in plain numpy:

* a *carry-save adder tree* on 64-bit lanes for many rows of one group: a full adder turns three
  lanes of weight w into one of weight w and one of weight 2w in five bitwise operations, 64
  columns at a time, so that a row costs about five operations a lane (Harley and Seal; see
  Muła, Kurz and Lemire, "Faster Population Counts Using AVX2 Instructions", 2018);
* *byte lanes* for many small groups: every bit is spread to a byte, and 64-bit additions sum
  eight columns at once, at most 255 rows before a byte could overflow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mechanisms.arrays import Bytes, Ints, Words
from mechanisms.errors import ParameterError

#: Rows that can be added in byte lanes before one could overflow.
_BYTE_ROWS = 255
#: Sorted rows spread at once: few enough for the cache, a multiple of ``_BYTE_ROWS``.
_SPREAD_ROWS = 16 * _BYTE_ROWS
#: Reports whose keys are held at once.
_KEYS = 32_768
#: Groups of at least so many rows go through the adder tree, one by one.
_TREE_ROWS = 8192
#: Lanes of one operand of the adder tree: a few of them stay in the second-level cache.
_TREE_LANES = 16384


def bit_sums(rows: Bytes) -> Ints:
    """Count the rows of ``(n, W)`` packed bits that have each bit set: ``(8 W,)`` ``int64``.

    >>> bit_sums(np.array([[3], [5]], dtype=np.uint8))
    array([2, 1, 1, 0, 0, 0, 0, 0])
    """
    n, width = rows.shape
    if n == 0 or width == 0:
        return np.zeros(8 * width, dtype=np.int64)
    # A period is the shortest stretch that is whole rows and whole lanes at once.
    period = math.lcm(width, 8)
    slab_bytes = period * max(1, min(_TREE_LANES * 8, n * width // 64) // period)
    slabs = n * width // slab_bytes
    if n < _TREE_ROWS or slabs < 8:
        return _sorted_bit_sums(rows, np.zeros(1, dtype=np.int64)).reshape(-1)
    whole = slabs * slab_bytes // width
    lanes = np.ascontiguousarray(rows[:whole]).reshape(slabs, slab_bytes).view(np.uint64)
    total: Ints = np.zeros(8 * width, dtype=np.int64)
    for weight, plane in _planes(lanes):
        total += _plane_sums(plane, period).reshape(-1, 8 * width).sum(axis=0) << weight
    if whole < n:
        total += _sorted_bit_sums(rows[whole:], np.zeros(1, dtype=np.int64)).reshape(-1)
    return total


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
    ends = np.append(starts[1:], n)
    large = ends - starts >= _TREE_ROWS
    for start, end in zip(starts[large], ends[large], strict=True):
        out[groups[start]] = bit_sums(rows[start:end])
    # A run of small groups lies between two large ones.
    edges = np.flatnonzero(np.diff(np.concatenate(([True], large, [True]))))
    for first, last in edges.reshape(-1, 2):
        begin, end = starts[first], ends[last - 1]
        present = groups[starts[first:last]]
        out[present] = _sorted_bit_sums(rows[begin:end], starts[first:last] - begin)
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


def _planes(lanes: Words) -> list[tuple[int, Words]]:
    """Add all rows of ``lanes``; return bit planes with their base-two weights."""
    sums: list[Words | None] = []
    waiting: list[Words | None] = []
    for lane in lanes:
        carry, weight = lane, 0
        while True:
            if weight == len(sums):
                sums.append(None)
                waiting.append(None)
            total, other = sums[weight], waiting[weight]
            if total is None:
                sums[weight] = carry
                break
            if other is None:
                waiting[weight] = carry
                break
            sums[weight], carry = _full_adder(total, other, carry)
            waiting[weight] = None
            weight += 1
    planes = [*enumerate(sums), *enumerate(waiting)]
    return [(weight, plane) for weight, plane in planes if plane is not None]


def _full_adder(a: Words, b: Words, c: Words) -> tuple[Words, Words]:
    partial = a ^ b
    carry = a & b
    total = partial ^ c
    partial &= c
    carry |= partial
    return total, carry


def _plane_sums(plane: Words, period: int) -> Ints:
    """Count the set bits of each of the ``8 * period`` columns of a plane of whole periods."""
    bits = np.unpackbits(plane.view(np.uint8), bitorder="little")
    spread = bits.view(np.uint64).reshape(-1, period)
    # Add whole stretches of periods first: long contiguous additions are the fast ones.
    stretch = -(-len(spread) // _BYTE_ROWS)
    whole = len(spread) // stretch
    lanes = spread[: whole * stretch].reshape(whole, -1).sum(axis=0, dtype=np.uint64)
    total: Ints = np.zeros(8 * period, dtype=np.int64)
    for part in (lanes, spread[whole * stretch :]):
        total += part.view(np.uint8).reshape(-1, 8 * period).sum(axis=0, dtype=np.int64)
    return total
