"""Reading the embedded log: any range of a partition, while it is written, whatever state it is in.

Positions count the bytes of a partition from its beginning. A reader never raises for what a file
holds: stretches that are no records are yielded as :class:`Corrupt`, bytes included, so that
nothing vanishes. Append times come out monotone: a record is given the highest time up to it. A
record whose own time is beyond what its reader *trusts* gives its time to no other record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from sotto.files import open_file, read_at
from sotto.log.frames import FRAME, HEADER, Scan, record, scan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bytes read at once.
BLOCK_BYTES = 8 << 20
#: Before every append time, and after.
EARLIEST, LATEST = -(2**63), 2**63 - 1


class LogRecord(NamedTuple):
    """A record: its position, its append time (ms, monotone in a partition) and its bytes."""

    position: int
    append: int
    body: bytes


class Corrupt(NamedTuple):
    """Bytes that are no record, at most ``BLOCK_BYTES`` of them, in the shape of a record.

    The append time is that of the record before. The body is empty where a segment is missing. A
    record whose append time is from the ``future`` is here too, with its own body and time.
    """

    position: int
    append: int
    body: bytes
    future: bool = False


class LogSegment(NamedTuple):
    """A segment file and the position of its first byte."""

    base: int
    path: Path


@dataclass(frozen=True)
class Block:
    """Neighbouring records of one segment, as :func:`sotto.wire.decode.decode` takes them."""

    #: The position of the buffer's first byte.
    position: int
    buffer: bytes
    #: Places of the n bodies in the buffer.
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    #: Monotone append times (ms), one a record.
    append: NDArray[np.int64]
    corrupt: tuple[Corrupt, ...]
    #: The position after this block, and the append time to go on from there.
    end: int
    clock: int
    #: Attributes that have one entry a record.
    columns: ClassVar[tuple[str, ...]] = ("offsets", "lengths", "append")

    @property
    def begins(self) -> NDArray[np.int64]:
        """The position of each record."""
        return self.position + self.offsets - FRAME.size

    @property
    def ends(self) -> NDArray[np.int64]:
        """The position after each record."""
        return self.position + self.offsets + self.lengths

    @property
    def size(self) -> int:
        """Bytes of memory."""
        columns: list[NDArray[np.int64]] = [getattr(self, name) for name in self.columns]
        damage = sum(len(stretch.body) for stretch in self.corrupt)
        return len(self.buffer) + damage + sum(column.nbytes for column in columns)

    def header(self, position: int) -> bytes:
        """Return bytes that identify the record at a position."""
        at = position - self.position
        return self.buffer[at : at + FRAME.size]

    def between(self, start: int, end: int, clock: int) -> Block:
        """Return the part between two positions; ``clock``: as of :meth:`LogReader.blocks`."""
        part = slice(*self.begins.searchsorted((start, end)).tolist())
        columns = {name: getattr(self, name)[part] for name in self.columns}
        corrupt = tuple(
            each if each.future else each._replace(append=max(each.append, clock))
            for each in self.corrupt
            if start <= each.position < end
        )
        return replace(self, **columns, corrupt=corrupt, end=end)


def partitions(directory: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the partitions of a log, sorted by name; none if there is no such directory."""
    try:
        return tuple(sorted(path for path in Path(directory).iterdir() if path.is_dir()))
    except FileNotFoundError:
        return ()


def segments(partition: Path) -> list[LogSegment]:
    """Return the segments of a partition, first to last."""
    try:
        names = [name for name in os.listdir(partition) if name.endswith(".seg")]
    except FileNotFoundError:
        return []
    digits = [name for name in names if len(name) == 24 and name[:20].isdecimal()]
    return [LogSegment(int(name[:20]), partition / name) for name in sorted(digits)]


def first_append(segment: LogSegment) -> int | None:
    """Return the earliest append time of the records near a segment's start, ms; None for none."""
    with _opened(segment.path) as descriptor:
        buffer = read_at(descriptor, BLOCK_BYTES, len(HEADER))
    found = scan(buffer, 0, len(buffer))
    return min((record(buffer, offset)[0] for offset in found.offsets), default=None)


def last_append(segment: LogSegment) -> int | None:
    """Return when the last sound record of a segment was appended, ms; None if it has none."""
    last = None
    for _, buffer, found in LogReader(segment.path.parent)._pieces(segment.base, None):
        if found.offsets:
            last = record(buffer, found.offsets[-1])[0]
    return last


def sound_size(segment: int, start: int, size: int) -> int:
    """Return where, in an open segment of this size, the last whole record ends.

    That is 0 for a segment without a header, and ``start`` if no whole record follows it: the end
    of a record, or anything up to the end of the segment's header.
    """
    if read_at(segment, len(HEADER), 0) != HEADER:
        return 0
    sound = at = max(start, len(HEADER))
    while at < size:
        buffer = read_at(segment, min(BLOCK_BYTES, size - at), at)
        found = scan(buffer, 0, len(buffer), verify=False)
        # Only the last frames may be torn: CRCs are verified from the end to the first right one.
        for offset in reversed(found.offsets):
            after = offset + record(buffer, offset)[1]
            if scan(buffer, offset - FRAME.size, after).offsets:
                sound = at + after
                break
        if found.lost or found.end == 0:
            break
        at += found.end
    return sound


class LogReader:
    """Reads one partition, of a directory that :func:`partitions` returns.

    It keeps no file open and takes no lock.
    """

    def __init__(self, partition: str | os.PathLike[str]) -> None:
        self.path: Path = Path(partition)

    def begin(self) -> int:
        """Return the position of the first byte that is still there, 0 if there is none."""
        found = segments(self.path)
        return found[0].base if found else 0

    def end(self, start: int = 0, limit: int = LATEST, *, rough: bool = False) -> int:
        """Return the position after the last whole record, of those that end by ``limit``.

        Bytes beyond it are being written, or were torn, and may still be cut off. A ``start`` that
        an earlier call returned spares reading what lies before it. The ``rough`` end, after the
        last byte, takes no reading at all.
        """
        found = [segment for segment in segments(self.path) if segment.base <= limit]
        if not found:
            return 0
        last = found[-1]
        with suppress(FileNotFoundError), _opened(last.path) as segment:
            size = min(os.fstat(segment).st_size, limit - last.base)
            if not rough:
                size = sound_size(segment, max(start - last.base, 0), size)
            return last.base + size
        # A partition without records was removed meanwhile.
        return 0

    def records(
        self, start: int = 0, end: int | None = None, clock: int = EARLIEST
    ) -> Iterator[LogRecord | Corrupt]:
        """Yield the records of a range, and in their places the stretches that are none.

        The range lies between positions such as :meth:`end` returns, and goes to the end if none is
        given. No append time is below ``clock`` (ms), that of the last record before the range.
        """
        for position, buffer, found in self._pieces(start, end):
            damage = iter([*found.corrupt, (len(buffer) + 1, 0)])
            first, last = next(damage)
            for offset in found.offsets:
                while first < offset:
                    yield Corrupt(position + first, clock, buffer[first:last])
                    first, last = next(damage)
                append, length = record(buffer, offset)
                clock = max(clock, append)
                yield LogRecord(position + offset - 16, clock, buffer[offset : offset + length])
            while first <= len(buffer):
                yield Corrupt(position + first, clock, buffer[first:last])
                first, last = next(damage)

    def blocks(
        self, start: int = 0, end: int | None = None, clock: int = EARLIEST, trusted: int = LATEST
    ) -> Iterator[Block]:
        """Yield the same as :meth:`records`, as arrays for :func:`sotto.wire.decode.decode`.

        Records appended after ``trusted``, ms, are among the corrupt, as from the future.
        """
        import numpy as np

        for position, buffer, found in self._pieces(start, end):
            columns = _Columns(buffer, found)
            future = columns.append > trusted
            append = np.where(future, EARLIEST, columns.append)
            if len(append):
                append[0] = max(clock, append[0])
                np.maximum.accumulate(append, out=append)
            corrupt = []
            for first, last in found.corrupt:
                before = int(np.searchsorted(columns.offset, first))
                time = int(append[before - 1]) if before else clock
                corrupt.append(Corrupt(position + first, time, buffer[first:last]))
            for at in np.flatnonzero(future).tolist():
                first, length = int(columns.offset[at]), int(columns.length[at])
                body, time = buffer[first : first + length], int(columns.append[at])
                corrupt.append(Corrupt(position + first - FRAME.size, time, body, True))
            clock = int(append[-1]) if len(append) else clock
            yield Block(
                position=position,
                buffer=buffer,
                offsets=columns.offset[~future],
                lengths=columns.length[~future],
                append=append[~future],
                corrupt=tuple(sorted(corrupt)),
                end=position + found.end,
                clock=clock,
            )

    def _pieces(self, start: int, end: int | None) -> Iterator[_Piece]:
        """Yield scanned stretches; damage that ends a scan is part of the last one's corrupt."""
        end = self.end(start) if end is None else end
        found = segments(self.path)
        # The last segment has none that follows. A partition whose writer died at once has none.
        bases = [segment.base for segment in found[1:]]
        at = start
        for segment, following in zip_longest(found, bases):
            if segment.base >= end:
                break
            # One that was removed meanwhile is missing.
            with suppress(FileNotFoundError), _opened(segment.path) as descriptor:
                size = os.fstat(descriptor).st_size
                stop = end if following is None else min(end, following)
                if at >= stop:
                    continue
                if at < segment.base:
                    yield _damaged(at)
                limit = min(stop - segment.base, size)
                begin = max(at - segment.base, 0)
                yield from _segment_pieces(descriptor, segment.base, begin, limit)
                if segment.base + limit < stop:
                    yield _damaged(segment.base + limit)
                at = stop
        # A partition that is removed while it has nothing but its header has lost no record.
        if at < end and end > len(HEADER):
            yield _damaged(at)


class _Columns:
    """The frame headers of records as columns."""

    def __init__(self, buffer: bytes, found: Scan) -> None:
        import numpy as np

        from sotto.wire.groups import records_at

        self.offset = np.array(found.offsets, dtype=np.int64)
        layout = np.dtype([("length", "<u4"), ("crc", "<u4"), ("append", "<i8")])
        headers = records_at(np.frombuffer(buffer, np.uint8), self.offset - layout.itemsize, layout)
        self.length = headers["length"].astype(np.int64)
        self.append = headers["append"].astype(np.int64)


class _Piece(NamedTuple):
    position: int
    buffer: bytes
    scan: Scan


def _damaged(position: int, buffer: bytes = b"") -> _Piece:
    """Return a stretch that holds no records; one of no bytes stands for what is missing."""
    return _Piece(position, buffer, Scan([], [(0, len(buffer))], len(buffer), True))


def _segment_pieces(segment: int, base: int, start: int, limit: int) -> Iterator[_Piece]:
    lost = read_at(segment, len(HEADER), 0) != HEADER
    at = start if lost else max(start, len(HEADER))
    while at < limit:
        buffer = read_at(segment, min(BLOCK_BYTES, limit - at), at)
        if not buffer:
            yield _damaged(base + at)
            return
        found = scan(buffer, 0, 0 if lost else len(buffer))
        if found.end:
            yield _Piece(base + at, buffer, found)
        else:
            # Bytes that do not fit the rest of the range, or a whole read, are no frame.
            lost = True
            yield _damaged(base + at, buffer)
            at += len(buffer)
        at += found.end


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = open_file(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
