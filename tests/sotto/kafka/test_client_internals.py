"""Batches that kafka-python cannot read or should not, and the private parts that are relied on."""

from __future__ import annotations

import gzip
import inspect
import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest
import zstandard
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.producer.sender import Sender
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c, decode_varint, encode_varint

from sotto.kafka import client_internals
from sotto.kafka.client_internals import (
    MOST_BYTES,
    MOST_HEADERS,
    MOST_HEADERS_EACH,
    MOST_RECORDS,
    TolerantRecords,
)

NAME = "a header's name"
_CHECKSUM_AT, _CHECKED_FROM, _MAX_TIME_AT = 17, 21, 35
_GZIP, _APPEND_TIME = 1, 8


def sealed(raw: bytes, offset: int) -> bytes:
    """A batch with the right checksum, at an offset."""
    checksum = calc_crc32c(raw[_CHECKED_FROM:])
    raw = struct.pack(">q", offset) + raw[8:]
    return raw[:_CHECKSUM_AT] + struct.pack(">I", checksum) + raw[_CHECKED_FROM:]


def batch(offset: int, *values: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for at, value in enumerate(values):
        builder.append(at, 1000 + at, None, value, [(NAME, b"")])
    return sealed(bytes(builder.build()), offset)


def no_utf8(raw: bytes) -> bytes:
    return raw.replace(NAME.encode(), b"\xff" * len(NAME))


def as_lz4(raw: bytes) -> bytes:
    return raw[: _CHECKED_FROM + 1] + b"\x03" + raw[_CHECKED_FROM + 2 :]


def as_zstd(raw: bytes) -> bytes:
    return raw[: _CHECKED_FROM + 1] + b"\x04" + raw[_CHECKED_FROM + 2 :]


def read(raw: bytes, start: int = 0):
    found = TolerantRecords(start, TopicPartition("topic", 0), MemoryRecords(raw), check_crcs=False)
    return found, [(one.offset, one.value, one.timestamp_type) for one in found.take()]


@pytest.mark.parametrize("spoilt", [no_utf8, as_lz4, as_zstd])
def test_one_that_cannot_be_read_is_one_record_and_what_follows_is_read(spoilt):
    poison = sealed(spoilt(batch(0, b"two", b"three")), 1)
    log = batch(0, b"one") + poison + batch(3, b"four")
    found, records = read(log)
    assert records == [(0, b"one", 0), (1, poison, 0), (3, b"four", 0)]
    assert found.next_fetch_offset == 4
    assert read(log, start=2)[1] == [(3, b"four", 0)]


def test_with_a_wrong_checksum_it_is_the_brokers_fault_and_nothing_of_it_is_told():
    poison = no_utf8(batch(1, b"two"))
    _, before = read(batch(0, b"one") + poison)
    assert before == [(0, b"one", 0)]
    with pytest.raises(CorruptRecordError) as caught:
        read(poison)
    assert "xff" not in str(caught.value)
    assert caught.value.__suppress_context__


def too_large(raw: bytes) -> bytes:
    """The batch with as many zeros in it, compressed, as are never unpacked."""
    head = raw[: struct.calcsize(">qiibIhiqqqhii")]
    codec = head[: _CHECKED_FROM + 1] + bytes([_GZIP]) + head[_CHECKED_FROM + 2 :]
    body = gzip.compress(bytes(client_internals.MOST_BYTES + 1))
    return codec[:8] + struct.pack(">i", len(codec) + len(body) - 12) + codec[12:] + body


def appended(raw: bytes, time: int) -> bytes:
    """The batch as a broker stores it that sets times."""
    attributes = raw[_CHECKED_FROM + 1] | _APPEND_TIME
    raw = raw[: _CHECKED_FROM + 1] + bytes([attributes]) + raw[_CHECKED_FROM + 2 :]
    return raw[:_MAX_TIME_AT] + struct.pack(">q", time) + raw[_MAX_TIME_AT + 8 :]


def test_one_that_is_too_large_has_the_brokers_time_where_there_is_one():
    poison = too_large(batch(0, b"two"))
    assert [(at, kind) for at, _, kind in read(sealed(poison, 1))[1]] == [(1, 0)]
    stored = sealed(appended(poison, 5000), 1)
    found = TolerantRecords(0, TopicPartition("topic", 0), MemoryRecords(stored), check_crcs=False)
    (record,) = found.take()
    assert (record.value, record.timestamp, record.timestamp_type) == (stored, 5000, 1)


@pytest.mark.parametrize("spoilt", [no_utf8, as_lz4, as_zstd])
def test_one_that_is_not_understood_never_has_the_brokers_time(spoilt):
    poison = sealed(appended(spoilt(batch(0, b"two")), 5000), 1)
    assert read(poison)[1] == [(1, poison, 0)]


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
    sent = [b"one" * 10_000, b"two" * 50_000, b""]
    log = packed(batch(0, *sent), pack, 0) + batch(3, b"four")
    assert values(log) == [*sent, b"four"]
    assert values(log, start=1) == [*sent[1:], b"four"]


@PACKS
def test_what_becomes_too_large_is_damage_and_what_follows_is_read(pack: Packs) -> None:

    def blown(body: bytes) -> bytes:
        return pack(body + bytes(2 * MOST_BYTES))

    blown.__name__ = pack.__name__
    bomb = packed(batch(1, b"two"), blown, 1)
    assert len(bomb) < MOST_BYTES // 100
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


def test_the_fetcher_makes_records_of_the_class_that_it_has() -> None:
    """And asks them for one batch after another."""
    source = inspect.getsource(Fetcher)
    assert "self.PartitionRecords(" in source
    given = inspect.signature(Fetcher.PartitionRecords._unpack_records).parameters
    assert list(given)[:3] == ["self", "tp", "records"]
    assert "records.next_batch()" in inspect.getsource(Fetcher.PartitionRecords._unpack_records)
    assert issubclass(TolerantRecords, Fetcher.PartitionRecords)


def test_clients_have_the_parts_that_are_used() -> None:
    assert "self._fetcher = Fetcher(" in inspect.getsource(KafkaConsumer.__init__)
    made = inspect.getsource(KafkaProducer.__init__)
    for assigned in ("self._sender = Sender(", "self._closed = False"):
        assert assigned in made
    assert callable(KafkaProducer._unregister_cleanup)
    assert callable(Sender.force_close)
    # This flag is set when a producer is closed: closing again does nothing.
    assert "self._closed" in inspect.getsource(KafkaProducer.close)


def test_batches_keep_their_bytes_where_they_are_replaced() -> None:
    found = DefaultRecordBatch(batch(0, b"value"))
    raw = found._buffer
    assert not found._decompressed
    assert bytes(raw[found._pos :])
    assert client_internals.unpack(found) == len(raw)
    assert found._decompressed
    assert [record.value for record in found] == [b"value"]
    assert decode_varint(bytearray(b"\x02"), 0) == (1, 1)
