"""Batches that kafka-python cannot read, though a broker would take them."""

from __future__ import annotations

import gzip
import struct

import pytest
from kafka import TopicPartition
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from sotto.kafka import client_internals
from sotto.kafka.client_internals import TolerantRecords

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


def lz4(raw: bytes) -> bytes:
    return raw[: _CHECKED_FROM + 1] + b"\x03" + raw[_CHECKED_FROM + 2 :]


def zstd(raw: bytes) -> bytes:
    return raw[: _CHECKED_FROM + 1] + b"\x04" + raw[_CHECKED_FROM + 2 :]


def read(raw: bytes, start: int = 0):
    found = TolerantRecords(start, TopicPartition("topic", 0), MemoryRecords(raw), check_crcs=False)
    return found, [(one.offset, one.value, one.timestamp_type) for one in found.take()]


@pytest.mark.parametrize("spoilt", [no_utf8, lz4, zstd])
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
    length = struct.pack(">i", len(codec) + len(body) - 12)
    return codec[:8] + length + codec[12:] + body


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


@pytest.mark.parametrize("spoilt", [no_utf8, lz4, zstd])
def test_one_that_is_not_understood_never_has_the_brokers_time(spoilt):
    poison = sealed(appended(spoilt(batch(0, b"two")), 5000), 1)
    assert read(poison)[1] == [(1, poison, 0)]
