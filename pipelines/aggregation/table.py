"""A vectorised hash table: growing columns whose entries are found by key, and never deleted.

The three tables of :class:`pipelines.aggregation.state.State` are of this class. An entry has a
dense id (0, 1, 2, ...), which indexes every column. An open-addressing index holds ids alone; full
keys are compared to decide whether an id is the one looked for, so that two keys with one hash are
two entries. All rows of a call are looked up together, one probe a round. Rows that are not found
claim an empty slot by writing to it: of several that write to one slot one wins, and the others
compare their keys with the winner's.

The key of the hashes is drawn once for a deployment and never leaves it. Two payloads are
compared by their tags, which bounds the probability that two different ones pass for one. Hashes of
ids only decide where a table looks first: ids whose hashes collide cost one more probe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mechanisms.coins import mix64s
from mechanisms.randomness import SystemSource

#: The largest part of an index that is in use: looking for an absent key takes 1 / (1 - fill)
#: probes on average.
_FILL = 0.6
_EMPTY = -1
_SMALLEST_INDEX = 64
_LARGEST = 2**31 - 1


class HashTable:
    """Columns of entries, found by the columns that are their key.

    ``key``: key of the hash, 16 bytes. ``keys``: the columns that together are an entry's key;
    integers. ``values``: the other columns; zero in a new entry. A dtype with a shape makes a wider
    column.
    """

    def __init__(
        self, key: bytes, keys: Mapping[str, DTypeLike], values: Mapping[str, DTypeLike]
    ) -> None:
        self.size = 0
        self._key = key
        self._keys = tuple(keys)
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(0, dtype) for name, dtype in {**keys, **values}.items()
        }
        self._index = np.full(0, _EMPTY, dtype=np.int32)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the column ``name`` as a view of its ``size`` entries, to read or write."""
        return self._columns[name][: self.size]

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + sum(column.nbytes for column in self._columns.values())

    def reserve(self, extra: int, *names: str) -> None:
        """Make room for ``extra`` entries more, in the columns ``names`` or in all."""
        needed = self.size + extra
        if needed > _LARGEST:
            raise MemoryError(f"a table holds at most {_LARGEST} entries")
        for name in names or self._columns:
            self._columns[name] = _with_room(self._columns[name], self.size, needed)

    def load(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Fill an empty table with entries of distinct keys; columns not given are zero."""
        size = len(columns[self._keys[0]])
        self.reserve(size + size // 4)
        for name, column in columns.items():
            self._columns[name][:size] = column
        self.size = size

    def intern(self, *keys: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the ids of rows of keys, after adding the entries that are missing.

        ``keys`` ((n,) arrays): one a key column, in their order. Rows may repeat.

        Returns ``ids`` ((n,) intp): equal for equal keys, and only for those. ``new`` ((m,) intp):
        for every entry added, in the order of their ids, the row that it was added for.
        """
        n, first = len(keys[0]), self.size
        self.reserve(n, *self._keys)
        self._reserve_index(n)
        for name, column in zip(self._keys, keys, strict=True):
            # Every row becomes a provisional entry, so that rows are also compared with each other.
            self._columns[name][first : first + n] = column
        ids, slots = self._claim(keys, first)
        new = np.flatnonzero(ids == np.arange(first, first + n))
        if not new.size:
            return ids, new
        self.reserve(new.size)
        rank = np.zeros(n, dtype=np.intp)
        rank[new] = np.arange(first, first + new.size)
        provisional = np.flatnonzero(ids >= first)
        ids[provisional] = rank[ids[provisional] - first]
        self._index[slots[new]] = rank[new]
        for name in self._keys:
            column = self._columns[name]
            column[first : first + new.size] = column[first + new]
        self.size += new.size
        return ids, new

    def find(self, *key: int) -> int | None:
        """Return the id of one key, or None. This scans all entries: it is for single look-ups."""
        found = np.ones(self.size, dtype=np.bool_)
        for name, value in zip(self._keys, key, strict=True):
            found &= self[name] == value
        at = np.flatnonzero(found)
        return int(at[0]) if at.size else None

    def _claim(
        self, keys: Sequence[NDArray[Any]], first: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Find each row in the index, or place row i in it as the entry ``first + i``.

        Returns each row's id, which equal keys share, and its slot.
        """
        columns = [self._columns[name] for name in self._keys]
        at, strides = self._probes(keyed_hash(self._key, keys))
        rows = np.arange(at.size)
        ids, slots = np.empty_like(rows), np.empty_like(rows)
        while rows.size:
            held = self._index.take(at)
            vacant = np.flatnonzero(held < 0)
            if vacant.size:
                self._index[at[vacant]] = first + rows[vacant]
                held = self._index.take(at)
            held = held.astype(np.intp)
            same = _same(columns, held, keys)
            done, apart = np.flatnonzero(same), np.flatnonzero(~same)
            ids[rows[done]], slots[rows[done]] = held[done], at[done]
            rows, strides, keys = rows[apart], strides[apart], [key[apart] for key in keys]
            at = (at[apart] + strides) & (self._index.size - 1)
        return ids, slots

    def _probes(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return each row's first slot and its stride, which is odd and so meets every slot."""
        mask = self._index.size - 1
        at = hashes.astype(np.intp) & mask
        return at, ((hashes >> np.uint64(32)).astype(np.intp) & mask) | 1

    def _reserve_index(self, extra: int) -> None:
        """Make room in the index for ``extra`` entries more, by building a larger one."""
        slots = max(self._index.size, _SMALLEST_INDEX)
        while slots * _FILL < self.size + extra:
            slots *= 2
        if slots == self._index.size:
            return
        self._index = np.full(slots, _EMPTY, dtype=np.int32)
        ids = np.arange(self.size)
        at, strides = self._probes(keyed_hash(self._key, [self[k] for k in self._keys]))
        while ids.size:
            vacant = self._index[at] < 0
            self._index[at[vacant]] = ids[vacant]
            apart = self._index[at] != ids
            ids, at, strides = ids[apart], at[apart], strides[apart]
            at = (at + strides) & (slots - 1)


def _with_room(column: NDArray[Any], size: int, needed: int) -> NDArray[Any]:
    """Return a column that holds ``needed`` entries, of which the first ``size`` are kept."""
    if needed <= len(column):
        return column
    grown = np.zeros((max(needed, size + size // 4), *column.shape[1:]), dtype=column.dtype)
    grown[:size] = column[:size]
    return grown


def _same(
    columns: Sequence[NDArray[Any]], ids: NDArray[Any], keys: Sequence[NDArray[Any]]
) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = columns[0].take(ids) == keys[0]
    for column, key in zip(columns[1:], keys[1:], strict=True):
        same &= column.take(ids) == key
    return same


class Pool:
    """Payloads of one width, one a slot; slots are handed out in order and never reused."""

    def __init__(self, width: int) -> None:
        self.size = 0
        self.rows: NDArray[np.uint8] = np.zeros((0, width), dtype=np.uint8)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def add(self, extra: int) -> NDArray[np.intp]:
        """Return ``extra`` slots not in use yet."""
        first = self.size
        self.size += extra
        self.rows = _with_room(self.rows, first, self.size)
        return np.arange(first, self.size)


KEY_BYTES = 16

#: Payloads of up to this many bytes are their own tag: two of them never share one.
EXACT_BYTES = 4


def new_key() -> bytes:
    """Return a fresh random key of 16 bytes, for a new deployment."""
    return SystemSource().bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "little")


def keyed_hash(key: bytes, columns: Sequence[NDArray[np.generic]]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row of integer columns; the key has 16 bytes."""
    first = np.uint64(int.from_bytes(key[:8], "little"))
    second = np.uint64(int.from_bytes(key[8:KEY_BYTES], "little"))
    hashes = mix64s(columns[0].astype(np.uint64) ^ first)
    for column in columns[1:]:
        hashes = mix64s(hashes ^ column.astype(np.uint64))
    return mix64s(hashes ^ second)


def payload_tags(key: bytes, payloads: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return a 32-bit tag of each payload; equal payloads have equal tags.

    ``key``: 16 bytes. ``payloads`` ((n, width) uint8): payloads of one width, without padding.

    Returns (n,) uint32: the payload itself, little-endian, up to 4 bytes; above, a multilinear
    hash: the upper half of c0 + c1 w1 + c2 w2 + ... mod 2**64, of the payload's 32-bit words w and
    of coefficients c that SHAKE-256 draws from the key. Two different payloads chosen without
    knowledge of the key, such as by someone who only sends reports, share a tag with probability at
    most 2**-32 over the coefficients, whatever their difference.

    References
    ----------
    Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
    arithmetic without primes", STACS 1996. Lemire and Kaser, "Strongly universal string hashing
    is fast", The Computer Journal 57 (2014): the family called Multilinear.
    """
    n, width = payloads.shape
    padded = np.zeros((n, -(-width // EXACT_BYTES) * EXACT_BYTES), dtype=np.uint8)
    padded[:, :width] = payloads
    words = padded.view("<u4")
    if width <= EXACT_BYTES:
        return words[:, 0].astype(np.uint32, copy=False)
    constant, *coefficients = _coefficients(key, words.shape[1])
    sums = np.full(n, constant, dtype=np.uint64)
    for word, coefficient in zip(words.T, coefficients, strict=True):
        sums += word * coefficient
    return (sums >> np.uint64(32)).astype(np.uint32)


@lru_cache(maxsize=256)
def _coefficients(key: bytes, words: int) -> NDArray[np.uint64]:
    """Return the coefficients for payloads of so many words, the constant first."""
    drawn = hashlib.shake_256(b"sotto.tag\0" + key).digest(8 * (words + 1))
    return np.frombuffer(drawn, "<u8").astype(np.uint64, copy=False)
