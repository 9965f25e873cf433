"""Batches that become much larger than they are: read up to a limit, and never beyond."""

from __future__ import annotations

import gzip
import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest
import zstandard
from kafka.record.util import encode_varint
from test_batches import batch, read, sealed

from sotto.kafka import client_internals
from sotto.kafka.client_internals import MOST_BYTES, MOST_HEADERS, MOST_HEADERS_EACH, MOST_RECORDS

_ATTRIBUTES_AT, _LENGTH_AT, _RECORDS_AT, _COUNT_AT = 22, 8, 61, 57

Packs = Callable[[bytes], bytes]


def zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)


def zstd_without_size(body: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return packer.compress(body) + packer.flush()


def zstd_frames(body: bytes) -> bytes:
    half = len(body) // 2
    return zstd(body[:half]) + zstd(body[half:])


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=6)


PACKS = pytest.mark.parametrize("pack", [zstd, zstd_without_size, zstd_frames, gzipped])


def packed(raw: bytes, pack: Packs, offset: int) -> bytes:
    """Return a batch with its records compressed."""
    raw = raw[:_RECORDS_AT] + pack(raw[_RECORDS_AT:])
    codec = 4 if "zstd" in pack.__name__ else 1
    raw = raw[:_ATTRIBUTES_AT] + bytes([codec]) + raw[_ATTRIBUTES_AT + 1 :]
    raw = raw[:_LENGTH_AT] + struct.pack(">i", len(raw) - 12) + raw[_LENGTH_AT + 4 :]
    return sealed(raw, offset)


def values(raw: bytes, start: int = 0) -> list[bytes]:
    return [value for _, value, _ in read(raw, start)[1]]


@PACKS
def test_what_is_compressed_is_read(pack: Packs) -> None:
    sent = [b"one" * 40_000, b"two" * 300_000, b""]
    log = packed(batch(0, *sent), pack, 0) + batch(3, b"four")
    assert values(log) == [*sent, b"four"]
    assert values(log, start=1) == [*sent[1:], b"four"]


@PACKS
def test_what_becomes_too_large_is_damage_and_what_follows_is_read(pack: Packs) -> None:

    def blown(body: bytes) -> bytes:
        return pack(body + bytes(8 * MOST_BYTES))

    blown.__name__ = pack.__name__
    bomb = packed(batch(1, b"two"), blown, 1)
    assert len(bomb) < MOST_BYTES // 20
    log = packed(batch(0, b"one"), pack, 0) + bomb + batch(2, b"three")
    tracemalloc.start()
    try:
        found, records = read(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert records == [(0, b"one", 0), (1, bomb, 0), (2, b"three", 0)]
    assert found.next_fetch_offset == 3
    assert peak < 4 * MOST_BYTES


@PACKS
def test_the_limit_itself_is_read(pack: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = batch(0, b"one" * 1_000)
    for limit, found in ((len(raw) - _RECORDS_AT, True), (len(raw) - _RECORDS_AT - 1, False)):
        monkeypatch.setattr(client_internals, "MOST_BYTES", limit)
        assert (values(packed(raw, pack, 0)) == [b"one" * 1_000]) is found


def with_headers(count: int, said: int | None = None) -> bytes:
    """Return a batch of one record with so many empty headers, packed."""
    said = count if said is None else said
    body = b"\0" + b"".join(map(varint, (0, 0, -1, -1, said))) + b"\0\0" * count

    def pack(_: bytes) -> bytes:
        return zstd(varint(len(body)) + body)

    pack.__name__ = "zstd"
    return packed(batch(0, b"one"), pack, 0)


def varint(value: int) -> bytes:
    packed = bytearray()
    encode_varint(value, packed.append)
    return bytes(packed)


def test_more_headers_than_there_may_be_are_damage() -> None:
    most = MOST_HEADERS + MOST_HEADERS_EACH
    assert read(with_headers(most))[1] == [(0, None, 0)]
    for bomb in (
        with_headers(most + 1),
        with_headers(MOST_BYTES // 4),
        with_headers(900, 2**31 - 1),
        with_headers(900, -1),
    ):
        assert len(bomb) < 2_000
        began = time.process_time()
        assert read(bomb)[1] == [(0, bomb, 0)]
        # As many headers take kafka-python ten seconds.
        assert time.process_time() - began < 2


def test_records_that_are_cut_off_are_damage() -> None:
    for body in (b"", b"\0", bytes(200), b"\x7f" * 200, b"\xff" * 200):

        def pack(_: bytes, body: bytes = body) -> bytes:
            return zstd(body)

        pack.__name__ = "zstd"
        poison = packed(batch(0, b"one"), pack, 0)
        assert read(poison)[1] == [(0, poison, 0)]


def test_more_records_than_there_may_be_are_damage() -> None:
    raw = batch(0, b"one")
    raw = raw[:_COUNT_AT] + struct.pack(">i", MOST_RECORDS + 1) + raw[_COUNT_AT + 4 :]
    poison = sealed(raw, 0)
    assert read(poison)[1] == [(0, poison, 0)]


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_RECORDS"])
def test_of_one_request_only_so_much_is_read_at_once(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is asked for again, from where it was left."""
    monkeypatch.setattr(client_internals, limit, {"MOST_BYTES": 2_500, "MOST_RECORDS": 3}[limit])
    log = [packed(batch(at, bytes([at]) * 1_000), zstd, at) for at in range(8)]
    taken, at = [], 0
    while at < 8:
        found, records = read(b"".join(log[at:]), start=at)
        assert len(records) == min(3, 8 - at)
        taken += records
        at = found.next_fetch_offset
    assert taken == [(at, bytes([at]) * 1_000, 0) for at in range(8)]


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:-3], lambda raw: raw + gzipped(b"more"), lambda raw: raw[:1]]
)
def test_what_is_not_one_member_of_gzip_is_damage(spoil: Packs) -> None:
    def spoilt(body: bytes) -> bytes:
        return spoil(gzipped(body))

    poison = packed(batch(0, b"one"), spoilt, 0)
    assert read(poison)[1] == [(0, poison, 0)]
