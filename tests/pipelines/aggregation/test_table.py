"""The table against a dictionary; its hashes: stored tags must never change."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.aggregation import table
from pipelines.aggregation.table import KEY_BYTES, HashTable, new_key, payload_tags

KEY = bytes(16)
TAG_KEY = bytes(range(16))
CALLS = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=40), max_size=8
)


def make() -> HashTable:
    keys = {"a": np.dtype("u8"), "b": np.dtype("u2")}
    return HashTable(KEY, keys, {"value": np.dtype("i8"), "wide": np.dtype(("u1", (2,)))})


def check(calls: list[list[tuple[int, int]]]) -> None:
    """Every key has one id for ever, ids are dense, and values stay with them."""
    entries, known = make(), {}
    for call in calls:
        size = entries.size
        a = np.array([key[0] for key in call], dtype=np.uint64)
        b = np.array([key[1] for key in call], dtype=np.uint16)
        ids, new = entries.intern(a, b)
        assert ids[new].tolist() == list(range(size, entries.size))
        for key, number in zip(call, ids.tolist(), strict=True):
            assert known.setdefault(key, number) == number
        assert sorted(known.values()) == list(range(entries.size))
        entries["value"][ids[new]] = 100 * a[new].astype(np.int64) + b[new]
        entries["wide"][ids[new], 1] = b[new]
    for key, number in known.items():
        assert entries["value"][number] == 100 * key[0] + key[1]
        assert entries["wide"][number].tolist() == [0, key[1]]
        assert entries.find(*key) == number
    assert entries.find(99, 99) is None


@settings(deadline=None)
@given(CALLS)
def test_a_table_is_a_dictionary(calls):
    check(calls)


def test_values_have_room_for_new_entries_alone_however_many_rows_come():
    entries = HashTable(KEY, {"a": np.dtype("u1")}, {"wide": np.dtype(("u1", (1_000,)))})
    for first in range(3):
        entries.intern(np.resize(np.arange(first, first + 2, dtype=np.uint8), 10_000))
    assert entries["wide"].tolist() == [[0] * 1_000] * 4
    assert entries.nbytes < 1_000 * 10_000


@settings(deadline=None)
@given(CALLS)
def test_a_table_is_a_dictionary_even_if_all_hashes_are_equal(calls):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "keyed_hash", lambda _, columns: np.zeros(len(columns[0]), "u8"))
        check(calls)


def test_a_large_table():
    draw = np.random.default_rng(1)
    keys = draw.integers(0, 30_000, 100_000).astype(np.uint64)
    entries, known = make(), {}
    for part in np.split(keys, [10, 5_000, 5_001, 60_000]):
        ids, _ = entries.intern(part, np.zeros(part.size, dtype=np.uint16))
        for key, number in zip(part.tolist(), ids.tolist(), strict=True):
            assert known.setdefault(key, number) == number
    assert entries.size == len(known)
    loaded = make()
    loaded.load({name: entries[name] for name in ("a", "b", "value")})
    again, new = loaded.intern(keys, np.zeros(keys.size, dtype=np.uint16))
    assert new.size == 0
    assert again.tolist() == [known[key] for key in keys.tolist()]


def test_memory_is_what_the_columns_take_and_a_little():
    entries = make()
    for part in np.split(np.arange(100_000, dtype=np.uint64), 100):
        entries.intern(part, np.zeros(1000, dtype=np.uint16))
    assert entries.nbytes < 100_000 * (8 + 2 + 8 + 2) * 1.26 + 4 * 2**18


def test_a_table_has_a_limit(monkeypatch):
    monkeypatch.setattr(table, "_LARGEST", 10)
    with pytest.raises(MemoryError, match="at most 10"):
        make().intern(np.arange(11, dtype=np.uint64), np.zeros(11, dtype=np.uint16))


def tags(*payloads: bytes, key: bytes = TAG_KEY) -> list[int]:
    return payload_tags(key, np.array([list(p) for p in payloads], dtype=np.uint8)).tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_short_payloads_are_their_own_tag(width):
    payload = bytes(range(7, 7 + width))
    assert tags(payload) == [int.from_bytes(payload, "little")]
    assert tags(payload, key=bytes(16)) == tags(payload)


@pytest.mark.parametrize("width", [5, 13, 16, 125])
def test_tags_are_the_upper_half_of_a_sum_of_products(width):
    draw = np.random.default_rng(width)
    payloads = draw.integers(0, 256, (50, width), dtype=np.uint8)
    stream = hashlib.shake_256(b"sotto.tag\0" + TAG_KEY).digest(8 * (-(-width // 4) + 1))
    constant, *coefficients = struct.unpack(f"<{len(stream) // 8}Q", stream)
    for payload, tag in zip(payloads, payload_tags(TAG_KEY, payloads).tolist(), strict=True):
        data = payload.tobytes().ljust(4 * len(coefficients), b"\0")
        words = struct.unpack(f"<{len(coefficients)}I", data)
        total = constant + sum(c * w for c, w in zip(coefficients, words, strict=True))
        assert tag == total % 2**64 >> 32


def test_keys_are_fresh():
    assert len(new_key()) == KEY_BYTES
    assert new_key() != new_key()
