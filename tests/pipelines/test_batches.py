"""Batches that kafka-python cannot read, though a broker would take them."""

from __future__ import annotations

import struct

import pytest
from kafka import TopicPartition
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from pipelines.batches import _Records

NAME = "a header's name"
_CHECKSUM_AT, _CHECKED_FROM = 17, 21


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
    found = _Records(start, TopicPartition("topic", 0), MemoryRecords(raw), check_crcs=False)
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
