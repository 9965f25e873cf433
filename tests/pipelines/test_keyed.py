"""Keyed hashes: stored tags must never change, and all of the key and the payload matters."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from pipelines.aggregation.table import KEY_BYTES, keyed_hash, new_key, payload_tags

KEY = bytes(range(16))


def tags(*payloads: bytes, key: bytes = KEY) -> list[int]:
    return payload_tags(key, np.array([list(p) for p in payloads], dtype=np.uint8)).tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_short_payloads_are_their_own_tag(width):
    payload = bytes(range(7, 7 + width))
    assert tags(payload) == [int.from_bytes(payload, "little")]
    assert tags(payload, key=bytes(16)) == tags(payload)


def test_tags_of_wide_payloads_are_those_of_version_1():
    assert tags(bytes(5), bytes([1, 2, 3, 4, 5])) == [0x688AA7C1, 0x0C6CBA83]
    assert tags(bytes(range(16))) == [0x996320B1]
    assert tags(bytes(range(125))) == [0x90958150]


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


def test_no_difference_of_payloads_is_likely_to_go_unnoticed():
    # Through two rounds of a mixing function, chained, this one vanishes with probability 2**-10.
    difference = np.array([0x8000000200000008, 0xB3112151662242A0], dtype="<u8")
    draw = np.random.default_rng(0)
    for _ in range(20):
        key = draw.bytes(KEY_BYTES)
        payloads = draw.integers(0, 256, (4096, 16), dtype=np.uint8)
        others = (payloads.view("<u8") ^ difference).view(np.uint8)
        # By chance in one of 50,000 runs of other seeds.
        assert (payload_tags(key, payloads) != payload_tags(key, others)).all()


@pytest.mark.parametrize("width", [5, 13, 16, 125])
def test_tags_are_the_upper_half_of_a_sum_of_products(width):
    draw = np.random.default_rng(width)
    payloads = draw.integers(0, 256, (50, width), dtype=np.uint8)
    stream = hashlib.shake_256(b"sotto.tag\0" + KEY).digest(8 * (-(-width // 4) + 1))
    constant, *coefficients = struct.unpack(f"<{len(stream) // 8}Q", stream)
    for payload, tag in zip(payloads, payload_tags(KEY, payloads).tolist(), strict=True):
        data = payload.tobytes().ljust(4 * len(coefficients), b"\0")
        words = struct.unpack(f"<{len(coefficients)}I", data)
        total = constant + sum(c * w for c, w in zip(coefficients, words, strict=True))
        assert tag == total % 2**64 >> 32


def test_rows_are_hashed_by_the_order_of_their_columns():
    a, b = np.array([1, 2, 1], dtype=np.uint16), np.array([2, 1, 2], dtype=np.int64)
    hashes = keyed_hash(KEY, [a, b]).tolist()
    assert hashes[0] == hashes[2] != hashes[1]


def test_keys_are_fresh():
    assert len(new_key()) == KEY_BYTES
    assert new_key() != new_key()
