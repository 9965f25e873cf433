"""Keyed hashes: stored tags must never change, and all of the key and the payload matters."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.keyed import KEY_BYTES, keyed_hash, new_key, payload_tags

KEY = bytes(range(16))


def tags(*payloads: bytes, key: bytes = KEY) -> list[int]:
    return payload_tags(key, np.array([list(p) for p in payloads], dtype=np.uint8)).tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_short_payloads_are_their_own_tag(width):
    payload = bytes(range(7, 7 + width))
    assert tags(payload) == [int.from_bytes(payload, "little")]
    assert tags(payload, key=bytes(16)) == tags(payload)


def test_tags_of_wide_payloads_are_those_of_version_1():
    assert tags(bytes(5), bytes([1, 2, 3, 4, 5])) == [0x447F1B95, 0x471828A2]
    assert tags(bytes(range(16))) == [0xF4079A2C]
    assert tags(bytes(range(125))) == [0x71317FF0]


def flipped(data: bytes) -> list[bytes]:
    return [
        bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(data))
        for bit in range(8 * len(data))
    ]


@pytest.mark.parametrize("width", [5, 8, 9, 16])
def test_every_bit_of_payload_and_key_matters(width):
    # Of at most 129 tags of 32 bits, two meet by chance with probability 2**-18.
    payload = bytes(range(100, 100 + width))
    assert len(set(tags(payload, *flipped(payload)))) == 1 + 8 * width
    by_key = [tags(payload, key=key)[0] for key in [KEY, *flipped(KEY)]]
    assert len(set(by_key)) == 1 + 8 * KEY_BYTES


def test_rows_are_hashed_by_the_order_of_their_columns():
    a, b = np.array([1, 2, 1], dtype=np.uint16), np.array([2, 1, 2], dtype=np.int64)
    hashes = keyed_hash(KEY, [a, b]).tolist()
    assert hashes[0] == hashes[2] != hashes[1]


def test_keys_are_fresh():
    assert len(new_key()) == KEY_BYTES
    assert new_key() != new_key()
