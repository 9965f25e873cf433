"""What of a log, or of topics, no drain has taken; found without a lock, and without taking it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pipelines.exporter.sources import MissingError
from pipelines.lanes import Lane, Source
from sotto.logreader import EARLIEST, LogReader, lanes
from sotto.registry import Registry

#: So many bytes are looked at, over all lanes; the number of records beyond is extrapolated.
LOOK_BYTES = 32 << 20
_LEAST_LOOK = 256 << 10
#: The same of topics, whose records take longer to read than a log's index.
TOPIC_LOOK_BYTES = 4 << 20


@dataclass(frozen=True)
class Lag:
    """What is not taken.

    Parameters
    ----------
    size : int or None
        Bytes; None where nobody counts them.
    records : int
        Extrapolated where a lane has too many to look at.
    lanes : int
        Lanes that have any of it.
    oldest : int or None
        Append time of the oldest record, ms; None for none.
    newest : mapping
        Partition, ``TOPIC/NUMBER``, to the append time of its last record, taken or not, ms; 0 for
        none. Of streaming jobs alone, where time passes in each partition apart.
    """

    size: int | None = 0
    records: int = 0
    lanes: int = 0
    oldest: int | None = None
    newest: Mapping[str, int] = field(default_factory=dict)


class Watched(Protocol):
    """What a job drains, as it looks from outside."""

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return what is beyond the positions up to which lanes are taken.

        Parameters
        ----------
        taken : mapping
            Lane to position.
        registry : Registry or None
            The plans of the job's last drain.

        Raises
        ------
        MissingError
            There is nothing to look at yet.
        DrainError, BrokerError
            It cannot be known.
        """
        ...


class WatchedLog:
    """A log whose lag is read again and again.

    Parameters
    ----------
    path : path
        The log's directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: dict[str, int] = {}

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return what is beyond the positions up to which lanes are taken."""
        if not self.path.is_dir():
            raise MissingError(f"there is no log in {self.path}")
        found = lanes(self.path)
        look = max(LOOK_BYTES // max(len(found), 1), _LEAST_LOOK)
        return total([self._of_lane(lane, taken.get(lane.name, 0), look) for lane in found])

    def _of_lane(self, lane: Path, taken: int, look: int) -> Lag:
        reader = LogReader(lane)
        end = reader.end(max(taken, self._ends.get(lane.name, 0)))
        self._ends[lane.name] = end
        start = max(taken, reader.begin())
        if end <= start:
            return Lag()
        looked = min(end, start + look)
        index = reader.index(start, looked)
        records = len(index.position)
        if not records and not len(index.corrupt):
            # The header of a segment without records.
            return Lag()
        if looked < end:
            records = round(records * (end - start) / (looked - start))
        oldest = int(index.append[0]) if len(index.append) else None
        return Lag(end - start, records, 1, oldest)


class WatchedTopics:
    """Topics whose lag is read again and again; their records are counted, not their bytes.

    Offsets are not records: where a transaction ended, was aborted, or a topic was compacted,
    there are offsets without any, which no drain ever takes. So records are read to be counted,
    up to a limit.

    Parameters
    ----------
    source : Source
        The topics, for this alone.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._opened: Registry | None = None

    def lag(self, taken: Mapping[str, int], registry: Registry | None) -> Lag:
        """Return what is beyond the positions up to which lanes are taken."""
        if registry is None:
            raise MissingError("nothing has been drained, so that the plans are not known")
        try:
            if self._opened is not registry:
                self._source.open(registry)
                self._opened = registry
            found = self._source.lanes(taken)
            look = TOPIC_LOOK_BYTES // max(len(found), 1)
            return total([self._of_lane(lane, taken, look) for lane in found])
        finally:
            # A connection that idles between two scrapes would outlive what it leads to.
            self._source.close()

    def _of_lane(self, lane: Lane, taken: Mapping[str, int], look: int) -> Lag:
        start = taken.get(lane.name, lane.first())
        end = lane.end(start)
        at, records, size, oldest = start, 0, 0, None
        # What a frozen lane has read is kept for a job that reads it again, and there is none.
        for block in self._source.lane(lane.name).blocks(start, end, EARLIEST):
            at = block.end
            records += len(block.append) + len(block.corrupt)
            size += len(block.buffer)
            if oldest is None and len(block.append):
                oldest = int(block.append[0])
            if records and size >= look:
                break
        if not records:
            return Lag(None)
        if at < end:
            records = round(records * (end - start) / (at - start))
        return Lag(None, records, 1, oldest)


def total(behind: Sequence[Lag]) -> Lag:
    """Return what is not taken of several lanes together."""
    sizes = [one.size for one in behind if one.size is not None]
    times = [one.oldest for one in behind if one.oldest is not None]
    return Lag(
        size=sum(sizes) if len(sizes) == len(behind) else None,
        records=sum(one.records for one in behind),
        lanes=sum(one.lanes for one in behind),
        oldest=min(times, default=None),
    )
