"""What of a log no drain has taken, found without the lock of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.exporter.sources import MissingError
from sotto.logreader import LogReader, lanes

#: So many bytes are looked at, over all lanes; the number of records beyond is extrapolated.
LOOK_BYTES = 32 << 20
_LEAST_LOOK = 256 << 10


@dataclass(frozen=True)
class Lag:
    """What is not taken.

    Parameters
    ----------
    size : int
        Bytes.
    records : int
        Extrapolated where a lane has too many to look at.
    lanes : int
        Lanes that have any of it.
    oldest : int or None
        Append time of the oldest record, ms; None for none.
    """

    size: int = 0
    records: int = 0
    lanes: int = 0
    oldest: int | None = None


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

    def lag(self, taken: Mapping[str, int]) -> Lag:
        """Return what is beyond the positions up to which lanes are taken.

        Raises
        ------
        MissingError
            There is no log.
        """
        if not self.path.is_dir():
            raise MissingError(f"there is no log in {self.path}")
        found = lanes(self.path)
        look = max(LOOK_BYTES // max(len(found), 1), _LEAST_LOOK)
        behind = [self._of_lane(lane, taken.get(lane.name, 0), look) for lane in found]
        times = [one.oldest for one in behind if one.oldest is not None]
        return Lag(
            size=sum(one.size for one in behind),
            records=sum(one.records for one in behind),
            lanes=sum(one.lanes for one in behind),
            oldest=min(times, default=None),
        )

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
