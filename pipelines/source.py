"""What a drain takes from the embedded log: frozen ends, merged by append time, cut to size.

The ends of all lanes are frozen once. Drains then take their records in the order of append
times over all lanes, so that the committed clock, at which state expires, never runs ahead of a
lane that has not been read. Append times only rise in a lane and never lie before the committed
clock. A cut always lies behind a whole record: bodies come from strangers, so that nobody may
start to read in the middle of bytes that are no records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines import files
from pipelines.intent import Intent, Mark, WorkItem
from pipelines.manifest import Manifest
from sotto.errors import DrainError
from sotto.frames import FRAME
from sotto.logreader import BLOCK_BYTES, EARLIEST, Block, LogReader, lanes, segments
from sotto.wire import HEADER, ROW, RUN

#: A work item spans at most so many bytes, unless a single record and the damage before it do.
ITEM_BYTES = BLOCK_BYTES

#: After every append time.
LATEST = 2**63 - 1

_SMALLEST_ROW = ROW.size + 1
#: Where a message says how many runs it has, u16.
_RUNS_AT = 6


@dataclass(eq=False)
class _Records:
    """Columns over records of one lane, in its order.

    Parameters
    ----------
    lane : (n,) int64
        Number of the lane.
    end : (n,) int64
        The position after each record; what lies between two ends is no record.
    begin : (n,) int64
        The position of each record; -1 for damage that no record follows.
    append : (n,) int64
        Monotone append time, ms.
    rows : (n,) int64
        Upper bound of the reports in the record and in the damage before it.
    """

    lane: NDArray[np.int64]
    end: NDArray[np.int64]
    begin: NDArray[np.int64]
    append: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.end)

    def select(self, at: NDArray[np.intp] | slice) -> _Records:
        return _Records(self.lane[at], self.end[at], self.begin[at], self.append[at], self.rows[at])

    @staticmethod
    def concat(parts: list[_Records]) -> _Records:
        names = ("lane", "end", "begin", "append", "rows")
        none = np.zeros(0, dtype=np.int64)
        columns = [np.concatenate([none, *(getattr(p, name) for p in parts)]) for name in names]
        return _Records(*columns)


class _Lane:
    """One lane between where it is taken up to and its frozen end, looked at bit by bit.

    ``taken`` and ``floor`` are position and clock up to which work items were cut.
    """

    def __init__(self, number: int, path: Path, start: int, clock: int) -> None:
        self.number = number
        self.name = path.name
        self.taken = start
        self.floor = clock
        self._reader = LogReader(path)
        self._end = max(self._reader.end(start), start)
        self._looked = start
        self.latest = clock

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return self._end - self.taken

    @property
    def done(self) -> bool:
        """Whether all of it has been looked at."""
        return self._looked >= self._end

    def look(self) -> _Records:
        """Return the next records, as many as one read gives; damage counts with what follows."""
        damaged, damage = False, 0
        for block in self._reader.blocks(self._looked, self._end, self.latest):
            damaged = damaged or bool(block.corrupt)
            damage += sum(len(stretch.body) for stretch in block.corrupt)
            if len(block.append):
                ends = block.position + block.offsets + block.lengths
                rows = _most_rows(block)
                rows[0] += damage // _SMALLEST_ROW
                begins = block.position + block.offsets - FRAME.size
                return self._looked_at(ends, begins, block.append, rows)
        if not damaged:
            # The header of a segment without records.
            self._looked = self._end
            return _Records.concat([])
        rest = np.array([damage // _SMALLEST_ROW])
        end, none = np.array([self._end]), np.array([-1])
        return self._looked_at(end, none, np.array([self.latest]), rest)

    def _looked_at(
        self,
        ends: NDArray[np.int64],
        begins: NDArray[np.int64],
        appends: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> _Records:
        self._looked, self.latest = int(ends[-1]), int(appends[-1])
        return _Records(np.full(len(ends), self.number), ends, begins, appends, rows)

    def mark(self, records: _Records) -> Mark | None:
        """Return the last of some records as a mark; None if there is only damage."""
        begins = records.begin[records.begin >= 0]
        if not len(begins):
            return None
        at = int(begins[-1])
        return Mark(at, _header(self._reader.path, at) or b"")

    def items(self, records: _Records, clock: int) -> Iterator[WorkItem]:
        """Cut records that follow what was taken into work items, and take them.

        ``clock`` is the committed one.
        """
        last = len(records) - 1
        at = -1
        self.floor = max(self.floor, clock)
        while at < last:
            fits = int(np.searchsorted(records.end, self.taken + ITEM_BYTES, side="right")) - 1
            at = max(fits, at + 1)
            end = int(records.end[at])
            yield WorkItem(self.name, self.taken, end, self.floor)
            self.taken, self.floor = end, int(records.append[at])


class FrozenLog:
    """The embedded log between what is committed and its ends of now.

    Parameters
    ----------
    log : path
        The log's directory.
    manifest : Manifest
        Where its lanes are taken up to.
    as_of : int, optional
        Only records appended up to then, ms, are taken.
    trusted : int, optional
        Records that claim to have been appended later are left as well. No error if it lies
        before what is committed.

    Raises
    ------
    DrainError
        A lane is not the one that it was when it was taken, or ``as_of`` lies before
        that.
    """

    def __init__(
        self,
        log: str | os.PathLike[str],
        manifest: Manifest,
        as_of: int | None = None,
        trusted: int | None = None,
    ) -> None:
        clock = EARLIEST if manifest.clock is None else manifest.clock
        if as_of is not None and as_of < clock:
            raise DrainError(
                f"as of {as_of} ms is before {clock} ms, up to which records have been counted"
            )
        check_lanes(log, manifest.lanes, manifest.marks)
        self._generation, self._clock = manifest.generation, clock
        self._last = LATEST if as_of is None else as_of
        if trusted is not None:
            self._last = min(self._last, max(trusted, clock))
        self._lanes = [
            _Lane(number, path, manifest.lanes.get(path.name, 0), clock)
            for number, path in enumerate(lanes(log))
        ]
        self._ahead = _Records.concat([])

    @property
    def size(self) -> int:
        """Bytes between where the lanes are taken up to and their ends."""
        return sum(lane.left for lane in self._lanes)

    @property
    def ahead(self) -> tuple[str, ...]:
        """Lanes seen to hold records from after what may be taken."""
        return tuple(lane.name for lane in self._lanes if lane.latest > self._last)

    def take(self, limit: int) -> Intent | None:
        """Return what the next drain takes: the earliest records, of at most ``limit`` reports.

        Parameters
        ----------
        limit : int, at least 1
            A single record is taken whatever its size.

        Returns
        -------
        Intent or None
            None if nothing is left.
        """
        records, horizon = self._known(limit)
        # Sorting is stable: a lane's records stay in their order.
        records = records.select(np.lexsort((records.lane, records.append)))
        wanted = np.cumsum(records.rows) <= limit
        wanted[:1] = True
        wanted &= records.append <= horizon
        number = int(np.count_nonzero(wanted))
        taken, self._ahead = records.select(slice(number)), records.select(slice(number, None))
        if not number:
            return None
        by_lane = [taken.select(np.flatnonzero(taken.lane == lane.number)) for lane in self._lanes]
        items = tuple(
            item
            for lane, records in zip(self._lanes, by_lane, strict=True)
            for item in lane.items(records, self._clock)
        )
        marks = {
            lane.name: mark
            for lane, records in zip(self._lanes, by_lane, strict=True)
            if (mark := lane.mark(records)) is not None
        }
        self._generation, self._clock = self._generation + 1, int(taken.append[-1])
        # Damage before any record has no time.
        clock = None if self._clock == EARLIEST else self._clock
        return Intent(self._generation, clock, items, marks)

    def _known(self, limit: int) -> tuple[_Records, int]:
        """Return records, and up to which append time they are complete and may be taken.

        Among them are the earliest ``limit`` reports, or all that may be taken.
        """
        last = self._last
        parts, number = [self._ahead], int(self._ahead.rows.sum())
        while waiting := [lane for lane in self._lanes if not lane.done]:
            # No lane can still show a record from before the latest of the one furthest behind.
            behind = min(waiting, key=lambda lane: lane.latest)
            if behind.latest > last:
                break
            if number >= limit:
                records = _Records.concat(parts)
                if int(records.rows[records.append < behind.latest].sum()) >= limit:
                    return records, behind.latest - 1
            parts.append(behind.look())
            number += int(parts[-1].rows.sum())
        return _Records.concat(parts), last


def _most_rows(block: Block) -> NDArray[np.int64]:
    """Return how many reports each message of a block has at most, at least one.

    A message that says a wrong number of runs has none.
    """
    data = np.frombuffer(block.buffer, dtype=np.uint8)
    long = block.lengths >= HEADER.size
    at = np.where(long, block.offsets + _RUNS_AT, 0)
    runs = np.where(long, data[at] + data[at + 1] * np.int64(256), 0)
    room = block.lengths - HEADER.size - RUN.size * runs
    most: NDArray[np.int64] = np.maximum(room // _SMALLEST_ROW, 1)
    return most


def make_durable(log: str | os.PathLike[str], intent: Intent) -> None:
    """Force to disk the bytes of the log that an intent takes, so that they stay what they are."""
    for lane in intent.ends:
        found = segments(Path(log) / lane)
        taken = [(item.start, item.end) for item in intent.items if item.lane == lane]
        first, last = taken[0][0], taken[-1][1]
        bases = [segment.base for segment in found[1:]] + [LATEST]
        files.sync(
            segment.path
            for segment, following in zip(found, bases, strict=True)
            if segment.base < last and first < following
        )
    files.sync_directory(Path(log))


def check_lanes(
    log: str | os.PathLike[str], ends: Mapping[str, int], marks: Mapping[str, Mark]
) -> None:
    """Refuse a log that cannot be the one of which lanes were taken, or are to be, up to ``ends``.

    Old segments may be removed, the first ones first, but neither a lane nor its last segment.

    Raises
    ------
    DrainError
        A lane is missing, or shorter than that, or has another record where its mark is.
    """
    for lane, end in ends.items():
        found = segments(Path(log) / lane)
        there = found[-1].base + found[-1].path.stat().st_size if found else 0
        if there < end:
            raise DrainError(
                f"lane {lane!r} ends at {there}, but {end} bytes of it have been taken: "
                "this is another log, or it was cut"
            )
        mark = marks.get(lane)
        if mark is not None and _header(Path(log) / lane, mark.position) not in (None, mark.header):
            raise DrainError(
                f"lane {lane!r} has another record at {mark.position} than the one that was taken: "
                "this is another log, or it was cut and written again"
            )


def _header(lane: Path, position: int) -> bytes | None:
    """Return the frame header at a position; None if its segment has been removed."""
    found = [segment for segment in segments(lane) if segment.base <= position]
    if not found:
        return None
    with open(found[-1].path, "rb") as segment:
        segment.seek(position - found[-1].base)
        return segment.read(FRAME.size)
