"""Plans aggregation runs: freezes the ends of a source, and cuts records to runs and work items.

The ends of all partitions are frozen once. Runs then take records in the order of append times over
all partitions, so that the committed clock, at which state expires, never runs ahead of a partition
that has not been read. Append times only rise in a partition, and never lie before the committed
clock. A cut always lies after a whole record: a record's body comes from strangers, so reading must
never start within one.

Blocks that were read to plan a run may be kept, within bounds, until its job in the same process
takes them. A job in another process, or after a crash, reads the same ranges again.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.rows import opens
from pipelines.sources import source_of
from pipelines.sources.base import LATEST, BoundedSource, Partition, Range
from pipelines.storage.intent import Intent, LastRecord, WorkItem
from pipelines.storage.manifest import Manifest
from sotto.clocks import minute
from sotto.errors import AggregationError
from sotto.log.reader import BLOCK_BYTES, EARLIEST, Block
from sotto.wire.format import GROUP, HEADER, ROW

#: The most positions of a work item, unless one record and the damage before it have more.
ITEM_BYTES = BLOCK_BYTES

#: The most bytes of blocks that are kept.
KEPT_BYTES = 256 << 20

_SMALLEST_ROW = ROW.size + 1
#: The offset in a message of its number of groups, u16.
_GROUPS_AT = 6


#: Columns over records of one partition, in its order. ``partition``: its number. ``end``: the
#: position after the record. ``begin``: the record's position, -1 for damage that no record
#: follows. ``append``: monotone append time, ms. ``rows``: the most reports that the record, and
#: the damage before it, may have.
_RECORD = np.dtype([(name, np.int64) for name in ("partition", "end", "begin", "append", "rows")])
_Records: TypeAlias = NDArray[np.void]


class _Kept(NamedTuple):
    """A block that was read to plan a run: the records between two positions of a partition."""

    start: int
    end: int
    block: Block


class _KeptBlocks:
    """Blocks that were read to plan a run, until its job takes them; ``room`` is in bytes."""

    def __init__(self, room: int) -> None:
        self._room = room
        #: By partition, of which there may be thousands.
        self._kept: dict[str, list[_Kept]] = {}

    def keep(self, partition: str, kept: _Kept) -> None:
        """Keep a block, which follows those of its partition, if there is room."""
        if kept.block.size <= self._room:
            self._room -= kept.block.size
            self._kept.setdefault(partition, []).append(kept)

    def between(self, partition: str, start: int, end: int) -> list[_Kept]:
        """Return the kept blocks that hold a range from its start on, up to the first gap."""
        found = []
        for each in self._kept.get(partition, []):
            if each.start <= start < min(each.end, end):
                found.append(each)
                start = each.end
        return found

    def let_go(self, partition: str, end: int) -> None:
        """Forget the blocks that end at or before a position of a partition."""
        kept = self._kept.pop(partition, [])
        self._room += sum(each.block.size for each in kept if each.end <= end)
        self._kept[partition] = [each for each in kept if each.end > end]


class _Frozen:
    """One partition from the position up to which it was taken to its frozen end.

    ``taken`` and ``floor`` are position and clock up to which work items were cut. ``start`` is
    None for a partition of which nothing has been taken. ``trusted``: records that were appended
    later, ms, are from the future. ``kept``: the kept blocks of all partitions.
    """

    def __init__(
        self,
        number: int,
        partition: Partition,
        start: int | None,
        clock: int,
        trusted: int,
        kept: _KeptBlocks,
    ) -> None:
        self.number = number
        self.name = partition.name
        first, end = partition.bounds(start or 0, rough=True)
        self.taken = first if start is None else start
        self.floor = clock
        self._reader = partition
        self._end = max(end, self.taken)
        self._rough = True
        self._looked = self.taken
        self.latest = clock
        self._trusted = trusted
        self._kept = kept
        self._future: set[int] = set()
        # A partition that has no entry in the manifest gets one if it does not begin at 0.
        self._unwritten = start is None and self.taken > 0

    @property
    def left(self) -> int:
        return self._end - self.taken

    @property
    def done(self) -> bool:
        """Whether all records up to the frozen end have been looked at."""
        return self._looked >= self._end

    @property
    def future(self) -> int:
        """How many records from the future were taken."""
        return sum(position < self.taken for position in self._future)

    def look(self) -> _Records:
        """Return the next records, as many as one read gives.

        Damage counts with the record that follows it.
        """
        damaged, damage = False, 0
        start = self._looked
        blocks = self._reader.blocks(start, self._end, self.latest, self._trusted)
        for number, block in enumerate(blocks):
            damaged = damaged or bool(block.corrupt)
            # A set, since bytes behind the last record are seen again.
            self._future.update(each.position for each in block.corrupt if each.future)
            damage += sum(len(stretch.body) for stretch in block.corrupt)
            if len(block.append):
                rows = _most_rows(block)
                rows[0] += damage // _SMALLEST_ROW
                records = self._looked_at(block.ends, block.begins, block.append, rows)
                if number == 0:
                    self._kept.keep(self.name, _Kept(start, self._looked, block))
                return records
        if self._rough:
            self._rough = False
            _, sound = self._reader.bounds(start, self._end)
            if sound != self._end:
                # Bytes after the last record are being written, or were torn, and are no damage.
                # Records appended since the freeze are left out: other partitions' may be earlier.
                self._end = max(sound, start)
                return self.look()
        if not damaged:
            # Only the header of a segment is there, and no records.
            self._looked = self._end
            return np.zeros(0, _RECORD)
        rest = np.array([damage // _SMALLEST_ROW])
        end, none = np.array([self._end]), np.array([-1])
        return self._looked_at(end, none, np.array([self.latest]), rest)

    def begin_at(self, since: int) -> None:
        """Leave out, for ever, the records that were appended before ``since``, ms."""
        while not self.done:
            records = self.look()
            before = int(np.searchsorted(records["append"], since))
            if before:
                self.taken = int(records["end"][before - 1])
            if before < len(records):
                break
        self._looked, self.latest = self.taken, self.floor
        self._future = set()
        self._kept.let_go(self.name, self._end)
        self._unwritten = self.taken > 0

    def _looked_at(
        self,
        ends: NDArray[np.int64],
        begins: NDArray[np.int64],
        appends: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> _Records:
        self._looked, self.latest = int(ends[-1]), int(appends[-1])
        records = np.zeros(len(ends), _RECORD)
        columns = (self.number, ends, begins, appends, rows)
        for name, column in zip(_RECORD.names or (), columns, strict=True):
            records[name] = column
        return records

    def last_record(self, records: _Records) -> LastRecord | None:
        """Return the last of some records; None if there is only damage."""
        begins = records["begin"][records["begin"] >= 0]
        if not len(begins):
            return None
        at = int(begins[-1])
        kept = self._kept.between(self.name, at, at + 1)
        header = kept[0].block.header(at) if kept else self._reader.header(at)
        return LastRecord(at, header or b"")

    def blocks(self, start: int, end: int, clock: int, trusted: int = LATEST) -> Iterator[Block]:
        """Yield the records of a range, from kept blocks as far as there are; see ``Range``."""
        for each in self._kept.between(self.name, start, end):
            yield each.block.between(start, min(end, each.end), clock)
            start, clock = each.end, int(each.block.append[-1])
        if start < end:
            yield from self._reader.blocks(start, end, clock, trusted)
        # A range is read at most twice, so its blocks are not needed any more.
        self._kept.let_go(self.name, end)

    def items(self, records: _Records, clock: int) -> Iterator[WorkItem]:
        """Cut the next records into work items, and note them as taken."""
        last = len(records) - 1
        at = -1
        self.floor = max(self.floor, clock)
        if last < 0 and self._unwritten:
            yield WorkItem(self.name, self.taken, self.taken, self.floor)
        self._unwritten = False
        while at < last:
            fits = int(np.searchsorted(records["end"], self.taken + ITEM_BYTES, side="right")) - 1
            at = max(fits, at + 1)
            end = int(records["end"][at])
            yield WorkItem(self.name, self.taken, end, self.floor)
            self.taken, self.floor = end, int(records["append"][at])


class FrozenLog:
    """The records of a source from what is committed to its present ends.

    ``log``: a source; a path is an embedded log's directory. ``manifest``: says up to where its
    partitions were taken. ``as_of``: only records appended up to then, ms, are taken. ``since``:
    only records appended from then on, ms, are taken of a partition that is new. ``trusted``:
    records that claim to have been appended later, ms, are from the future: they are taken and
    rejected, and no other record gets their time. ``now``: when the ends were frozen, ms: the time
    up to which the log is known once all is taken. ``keep``: whether blocks are kept for a job in
    this process. When this is pickled, other processes get the source alone.
    ``period``: length of a budget period, ms.

    Raises AggregationError if a partition is not the one that was taken before, or if ``as_of`` or
    ``trusted`` lies before the committed clock.
    """

    def __init__(
        self,
        log: str | os.PathLike[str] | BoundedSource,
        manifest: Manifest,
        as_of: int | None = None,
        trusted: int = LATEST,
        now: int = EARLIEST,
        since: int | None = None,
        keep: bool = False,
        period: int = LATEST,
    ) -> None:
        clock = EARLIEST if manifest.clock is None else manifest.clock
        if trusted < clock:
            raise AggregationError(
                f"records up to {minute(clock)} have been counted, but by this machine's clock "
                f"none can be from after {minute(trusted)}: set the clock"
            )
        if as_of is not None and as_of < clock:
            raise AggregationError(
                f"as of {minute(as_of)} is before {minute(clock)}, up to which records have been "
                "counted: a new state directory counts a range of time again"
            )
        self.source = source = source_of(log)
        starts = manifest.positions
        source.check(starts, manifest.last)
        self._generation, self._clock = manifest.generation, clock
        self._last = LATEST if as_of is None else as_of
        self._trusted = trusted
        kept = _KeptBlocks(KEPT_BYTES if keep else 0)
        self._partitions = [
            _Frozen(number, partition, starts.get(partition.name), clock, trusted, kept)
            for number, partition in enumerate(source.partitions(starts))
        ]
        self._by_name = {each.name: each for each in self._partitions}
        for each in self._partitions:
            if since is not None and each.name not in starts:
                each.begin_at(since)
        self._ahead = np.zeros(0, _RECORD)
        self._now, self._period = now, period

    def __reduce__(self) -> tuple[Callable[[BoundedSource], BoundedSource], tuple[BoundedSource]]:
        return source_of, (self.source,)

    def partition(self, name: str) -> Range:
        """Return a partition, which reads its kept blocks without the source."""
        return self._by_name.get(name) or self.source.partition(name)

    @property
    def size(self) -> int:
        return sum(each.left for each in self._partitions)

    @property
    def future(self) -> dict[str, int]:
        """How many records from the future were taken, by partition that had any."""
        return {each.name: each.future for each in self._partitions if each.future}

    def take(self, limit: int) -> Intent | None:
        """Return the intent of the next run: the earliest records, of at most ``limit`` reports.

        None if there are no more.
        """
        records, horizon = self._known(limit)
        # Sorting is stable: a partition's records stay in their order.
        records = records.take(np.lexsort((records["partition"], records["append"])))
        wanted = np.cumsum(records["rows"]) <= limit
        wanted[:1] = True
        wanted &= records["append"] <= horizon
        number = int(np.count_nonzero(wanted))
        all_taken = horizon == self._last and not (records["append"][number:] <= horizon).any()
        taken, self._ahead = records[:number], records[number:]
        if not number:
            return None
        parts = [taken.compress(taken["partition"] == each.number) for each in self._partitions]
        items = tuple(
            item
            for partition, records in zip(self._partitions, parts, strict=True)
            for item in partition.items(records, self._clock)
        )
        last = {
            partition.name: found
            for partition, records in zip(self._partitions, parts, strict=True)
            if (found := partition.last_record(records)) is not None
        }
        self._generation, self._clock = self._generation + 1, int(taken["append"][-1])
        # If there is only damage so far, there is no time yet.
        clock = None if self._clock == EARLIEST else self._clock
        periods = np.flatnonzero(opens(taken["append"] // self._period))
        reports = int(np.add.reduceat(taken["rows"], periods).max())
        time = max(self._clock, self._now) if all_taken else clock
        trusted = self._trusted if self.future else None
        return Intent(
            self._generation, clock, items, last, reports=reports, time=time, trusted=trusted
        )

    def _known(self, limit: int) -> tuple[_Records, int]:
        """Return records, and the append time up to which they are complete and may be taken."""
        last = self._last
        parts, number = [self._ahead], int(self._ahead["rows"].sum())
        waiting = [(each.latest, at) for at, each in enumerate(self._partitions) if not each.done]
        heapq.heapify(waiting)
        while waiting:
            # No partition can have an unseen record from before the latest of the one behind.
            behind = self._partitions[waiting[0][1]]
            if behind.latest > last:
                break
            if number >= limit:
                sure = (part["rows"].sum(where=part["append"] < behind.latest) for part in parts)
                if sum(sure) >= limit:
                    return np.concatenate(parts), behind.latest - 1
            parts.append(behind.look())
            number += int(parts[-1]["rows"].sum())
            _, at = heapq.heappop(waiting)
            if not behind.done:
                heapq.heappush(waiting, (behind.latest, at))
        return np.concatenate(parts), last


def _most_rows(block: Block) -> NDArray[np.int64]:
    """Return how many reports each message of a block has at most, at least one."""
    data = np.frombuffer(block.buffer, dtype=np.uint8)
    long = block.lengths >= HEADER.size
    at = np.where(long, block.offsets + _GROUPS_AT, 0)
    groups = np.where(long, data[at] + data[at + 1] * np.int64(256), 0)
    room = block.lengths - HEADER.size - GROUP.size * groups
    most: NDArray[np.int64] = np.maximum(room // _SMALLEST_ROW, 1)
    return most
