"""A state as bytes: the format in which runs and streaming jobs store it.

State, little-endian. Header of 56 B: magic ``SOTTOSTA``, u16 version, u16 shard, u32
number of metrics, i64 period, u32 pseudonyms, u32 entries, u32 conflicts, u32 tags an entry, 16 B
hash key. For each metric that occurs, ascending: 32 B plan fingerprint, u16 index in the plan, u16
levels, u32 payload bytes; columns refer to a metric by its place in this table. Then column after
column, in the order of ``LAYOUT``; version 1 is without the last two, the cells, which are 0
everywhere. Then the payloads that count and are wider than four bytes, width after width,
ascending, entries of one width in their order; then the CRC-32 of all before. Which level counts is
not stored: it is the newest countable one, unless the pseudonym is revoked.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.rows import NEWEST
from pipelines.aggregation.table import EXACT_BYTES
from sotto.errors import FormatError
from sotto.wire.reasons import Reason

_MAGIC = b"SOTTOSTA"
_VERSION, _WITH_CELLS = 1, 2
_HEADER = struct.Struct("<8sHHIqIIII16s")
_METRIC = struct.Struct("<32sHHI")
_CRC = struct.Struct("<I")

#: The columns in their order: table, name, type on disk. ``tags`` has several values an entry.
LAYOUT = (
    ("pseudonyms", "low", "<u8"),
    ("pseudonyms", "high", "<u8"),
    ("entries", "low", "<u8"),
    ("entries", "high", "<u8"),
    ("entries", "event", "<i8"),
    ("entries", "append", "<i8"),
    ("conflicts", "event", "<i8"),
    ("entries", "pseudonym", "<u4"),
    ("entries", "tags", "<u4"),
    ("conflicts", "entry", "<u4"),
    ("conflicts", "tag", "<u4"),
    ("entries", "metric", "<u2"),
    ("conflicts", "metric", "<u2"),
    ("pseudonyms", "reason", "u1"),
    ("entries", "seen", "u1"),
    ("entries", "countable", "u1"),
    ("conflicts", "level", "u1"),
    ("conflicts", "countable", "?"),
    ("entries", "cell", "u1"),
    ("conflicts", "cell", "u1"),
)
#: The columns by version: version 1 is for states in which every cell is 0.
_STORED = {_VERSION: LAYOUT[:-2], _WITH_CELLS: LAYOUT}


class StoredMetric(NamedTuple):
    """A metric as a snapshot names it, independent of its id in a registry."""

    fingerprint: bytes
    position: int
    levels: int
    width: int


@dataclass(frozen=True, eq=False)
class StateSnapshot:
    """The content of a state in columns; metrics by their place in ``metrics``."""

    shard: int
    period: int
    key: bytes  #: 16 bytes
    metrics: tuple[StoredMetric, ...]  #: those that occur, ascending
    columns: dict[tuple[str, str], NDArray[Any]]  #: by table and name, as in ``LAYOUT``
    #: (k, width) uint8 by width, for widths above 4: the payloads that count, in
    #: the order of their entries.
    payloads: dict[int, NDArray[np.uint8]]

    def __getitem__(self, column: tuple[str, str]) -> NDArray[Any]:
        return self.columns[column]

    @cached_property
    def counted(self) -> NDArray[np.uint8]:
        """The level of each entry that counts, from one; 0 for none."""
        revoked = self["pseudonyms", "reason"] != 0
        newest: NDArray[np.uint8] = NEWEST[self["entries", "countable"]]
        newest[revoked[self["entries", "pseudonym"]]] = 0
        return newest

    def pooled(self) -> dict[int, NDArray[np.intp]]:
        """Return, by width, the entries whose counted payload is in ``payloads``."""
        widths = np.array([metric.width for metric in self.metrics], dtype=np.int64)
        of_entry = np.where(self.counted > 0, widths[self["entries", "metric"]], 0)
        wide = sorted({metric.width for metric in self.metrics if metric.width > EXACT_BYTES})
        return {width: np.flatnonzero(of_entry == width) for width in wide}

    def to_bytes(self) -> bytes:
        """Return the bytes, of the format that the module describes."""
        sizes = [len(self[table, column]) for table, column in _SIZED]
        tags = self["entries", "tags"]
        bare = not (self["entries", "cell"].any() or self["conflicts", "cell"].any())
        version = _VERSION if bare else _WITH_CELLS
        parts: list[bytes | memoryview] = [
            _HEADER.pack(
                _MAGIC,
                version,
                self.shard,
                len(self.metrics),
                self.period,
                *sizes,
                tags.shape[1],
                self.key,
            ),
            *(_METRIC.pack(*metric) for metric in self.metrics),
            *(_view(self[table, name], kind) for table, name, kind in _STORED[version]),
            *(_view(self.payloads[width], "u1") for width in sorted(self.payloads)),
        ]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        return b"".join([*parts, _CRC.pack(checksum)])

    @classmethod
    def from_bytes(cls, data: bytes) -> StateSnapshot:
        """Read what :meth:`to_bytes` wrote; the columns are views of ``data``."""
        if len(data) < _HEADER.size + _CRC.size:
            raise FormatError(f"{len(data)} bytes are too few for a state")
        magic, version, shard, metrics, period, *sizes, levels, key = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise FormatError("the bytes do not begin as a state does")
        if version not in _STORED:
            raise FormatError(f"a state of version {version}; known are 1 and 2")
        end = len(data) - _CRC.size
        if _CRC.unpack_from(data, end) != (zlib.crc32(memoryview(data)[:end]),):
            raise FormatError("the checksum of a state is wrong")
        reader = _Reader(data, _HEADER.size)
        table = tuple(
            StoredMetric(*fields)
            for fields in _METRIC.iter_unpack(reader.take("u1", metrics * _METRIC.size).tobytes())
        )
        size_of = dict(zip((name for name, _ in _SIZED), sizes, strict=True))
        columns: dict[tuple[str, str], NDArray[Any]] = {
            (owner, "cell"): np.zeros(size_of[owner], dtype=np.uint8)
            for owner in ("entries", "conflicts")
        }
        for owner, name, kind in _STORED[version]:
            shape = (size_of[owner], levels) if name == "tags" else (size_of[owner],)
            columns[owner, name] = reader.take(kind, *shape)
        snapshot = cls(shard, period, key, table, columns, {})
        snapshot._check()
        for width, entries in snapshot.pooled().items():
            snapshot.payloads[width] = reader.take("u1", entries.size, width)
        if reader.at != end:
            raise FormatError(f"{end - reader.at} bytes after the last column of a state")
        return snapshot

    def _check(self) -> None:
        """Raise FormatError if a column refers to something that is not there.

        A checksum shows damage, but not bytes that another program made.
        """
        entries, pseudonyms = self["entries", "low"].size, self["pseudonyms", "low"].size
        for place, size in (
            (("entries", "pseudonym"), pseudonyms),
            (("conflicts", "entry"), entries),
            (("entries", "metric"), len(self.metrics)),
            (("conflicts", "metric"), len(self.metrics)),
        ):
            if self[place].size and int(self[place].max()) >= size:
                raise FormatError(f"{' '.join(place)} of a state must be below {size}")
        levels = np.array([metric.levels for metric in self.metrics], dtype=np.int64)
        if not ((levels >= 1) & (levels <= NEWEST[-1])).all():
            raise FormatError(f"a metric of a state must have 1 to {NEWEST[-1]} levels")
        if self["entries", "tags"].shape[1] != levels.max(initial=0):
            raise FormatError("a state must have as many tags an entry as a metric has levels")
        seen, countable = self["entries", "seen"], self["entries", "countable"]
        if (seen >> levels[self["entries", "metric"]]).any() or (countable & ~seen).any():
            raise FormatError("an entry of a state has levels that its metric or it does not have")
        if (self["conflicts", "level"] >= levels[self["conflicts", "metric"]]).any():
            raise FormatError("a conflict of a state has a level that its metric does not have")
        if not np.isin(self["pseudonyms", "reason"], _REASONS).all():
            raise FormatError("a pseudonym of a state is revoked for no known reason")


#: Why a pseudonym is revoked; 0 if it is not.
_REASONS = (0, Reason.OVER_BUDGET, Reason.EQUIVOCATION)

#: A column of each table whose length is the table's, in the order of the header.
_SIZED = (("pseudonyms", "low"), ("entries", "low"), ("conflicts", "entry"))


class _Reader:
    """Takes arrays one after another from bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, kind: str, *shape: int) -> NDArray[Any]:
        size = math.prod(shape)
        if self.at + size * np.dtype(kind).itemsize > len(self.data):
            raise FormatError("a state ends within a column")
        array = np.frombuffer(self.data, kind, size, self.at).reshape(shape)
        self.at += array.nbytes
        return array


def _view(column: NDArray[Any], kind: str) -> memoryview:
    """Return a column's bytes in its type on disk, without a copy if it has that type already."""
    return column.astype(kind, order="C", copy=False).reshape(-1).view(np.uint8).data
