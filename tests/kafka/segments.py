"""What a broker has stored: its segment files, read byte by byte (record batches of version 2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

from sotto.kafka.topics import ReportTopic

_HEADER = struct.Struct(">qiibIhiqqqhii")
_ZSTD = 4


class Stored(NamedTuple):
    """One record of a batch."""

    key: bytes | None
    value: bytes
    headers: int


class Batch(NamedTuple):
    """One batch: what its header says beside sizes and offsets, and its records.

    Attributes
    ----------
    base_timestamp, max_timestamp : int
        As the sender wrote it and as the broker did, ms.
    """

    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer: int
    epoch: int
    sequence: int
    deltas: tuple[int, ...]
    records: tuple[Stored, ...]


def stored(folder: Path, topic: ReportTopic) -> list[Batch]:
    """Return all batches of a topic, as they are in a broker's folder."""
    found = []
    for partition in range(topic.partitions):
        for path in sorted((folder / "data" / f"{topic}-{partition}").glob("*.log")):
            found += list(_batches(path.read_bytes()))
    return found


def _batches(data: bytes) -> Iterator[Batch]:
    at = 0
    while at < len(data):
        (_, length, _, magic, _, attributes, _, base, newest, producer, epoch, sequence, count) = (
            _HEADER.unpack_from(data, at)
        )
        assert magic == 2
        end = at + 12 + length
        body = data[at + _HEADER.size : end]
        if attributes & 7 == _ZSTD:
            body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        else:
            assert attributes & 7 == 0
        deltas, records = _records(body, count)
        yield Batch(attributes, base, newest, producer, epoch, sequence, deltas, records)
        at = end


def _records(body: bytes, count: int) -> tuple[tuple[int, ...], tuple[Stored, ...]]:
    deltas, records, at = [], [], 0
    for _ in range(count):
        length, at = _varint(body, at)
        end, at = at + length, at + 1
        delta, at = _varint(body, at)
        _, at = _varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        headers, at = _varint(body, at)
        assert value is not None
        assert headers or at == end
        deltas.append(delta)
        records.append(Stored(key, value, headers))
        at = end
    assert at == len(body)
    return tuple(deltas), tuple(records)


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(body, at)
    return (None, at) if length < 0 else (body[at : at + length], at + length)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
