"""One partition of a topic as a lane: its records with monotone times, and its damage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.sources.records import Partition, Piece, Reader
from sotto.errors import AggregationError
from sotto.kafka.topics import ReportTopic
from sotto.log.reader import Block, Corrupt

_LANE = re.compile(r"(?P<topic>[^/@]+)@(?P<id>[^/@]+)/(?P<number>\d+)")
#: Decoding looks at the first bytes of a message even if it has none.
PADDING = bytes(8)


class LaneName(NamedTuple):
    """What the name of a lane says: the topic, its id, the partition's number."""

    topic: ReportTopic
    id: str
    number: int

    @classmethod
    def parse(cls, name: str) -> LaneName:
        """Return what a name says.

        Raises
        ------
        AggregationError
            It is not the name of a partition.
        """
        match = _LANE.fullmatch(name)
        if match is None:
            raise AggregationError(
                f"lane {name!r} is not of a topic: this state is of an embedded log"
            )
        return cls(ReportTopic.parse(match["topic"]), match["id"], int(match["number"]))

    @property
    def partition(self) -> Partition:
        """The partition, as its reader knows it."""
        return Partition(str(self.topic), self.number)

    def __str__(self) -> str:
        return f"{self.topic}@{self.id}/{self.number}"


@dataclass(frozen=True, eq=False)
class TopicBlock(Block):
    """Records of a partition; between two of them offsets may be missing.

    Attributes
    ----------
    positions : ndarray, shape (n,), int64
        The records' offsets.
    """

    positions: NDArray[np.int64]

    @property
    def begins(self) -> NDArray[np.int64]:
        """The offset of each record."""
        return self.positions

    @property
    def ends(self) -> NDArray[np.int64]:
        """The offset after each record."""
        return self.positions + 1


class PartitionLane:
    """A partition.

    Parameters
    ----------
    name : LaneName
    reader : Reader
    accept_loss : bool
        Whether to go on where records have been deleted that were never taken.
    bounds : (int, int), optional
        Those at which it was frozen, if it was.
    """

    def __init__(
        self,
        name: LaneName,
        reader: Reader,
        accept_loss: bool,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        self.name = str(name)
        self._partition = name.partition
        self._reader = reader
        self._accept_loss = accept_loss
        self._bounds = bounds

    def first(self) -> int:
        """Return where the partition began when it was frozen."""
        return self._frozen()[0]

    def end(self, start: int) -> int:
        """Return where it ended then."""
        return self._frozen()[1]

    def blocks(self, start: int, end: int, clock: int) -> Iterator[Block]:
        """Yield the records of a range; what a frozen lane yields is going to be read again."""
        at = start
        while at < end:
            for piece in self._reader.pieces(
                self._partition, at, end, keep=self._bounds is not None
            ):
                block = self._gap(at, end, clock) if piece is None else timed_block(piece, clock)
                yield block
                at, clock = block.end, block.clock

    def header(self, position: int) -> bytes | None:
        """Return what tells the record at an offset from others; None if there is none."""
        pieces = self._reader.pieces(self._partition, position, position + 1, keep=True)
        piece = next(pieces, None)
        return None if piece is None else piece.header(position)

    def _frozen(self) -> tuple[int, int]:
        if self._bounds is None:
            raise AggregationError(f"lane {self.name!r} is not frozen")
        return self._bounds

    def _gap(self, start: int, end: int, clock: int) -> Block:
        """Return what stands for records that have been deleted, if that is accepted."""
        first, _ = self._reader.bounds([self._partition])[self._partition]
        if not self._accept_loss or first <= start:
            raise AggregationError(lost(self.name, start, first))
        none = np.zeros(0, dtype=np.int64)
        gone = (Corrupt(start, clock, b""),)
        return TopicBlock(start, b"", none, none, none, gone, min(first, end), clock, none)


def timed_block(piece: Piece, clock: int) -> Block:
    """Return a piece with monotone times; records without the broker's time are damage."""
    times = np.where(piece.appended, piece.times, clock)
    if len(times):
        times[0] = max(clock, int(times[0]))
        times = np.maximum.accumulate(times)
    corrupt = tuple(
        Corrupt(
            int(piece.offsets[at]),
            int(times[at]),
            piece.data[piece.at[at] : piece.at[at + 1]],
        )
        for at in np.flatnonzero(~piece.appended).tolist()
    )
    sound = piece.appended
    return TopicBlock(
        position=piece.start,
        buffer=piece.data + PADDING,
        offsets=piece.at[:-1][sound],
        lengths=np.diff(piece.at)[sound],
        append=times[sound],
        corrupt=corrupt,
        end=piece.end,
        clock=int(times[-1]) if len(times) else clock,
        positions=piece.offsets[sound],
    )


def lost(lane: str, taken: int, first: int) -> str:
    """Say that records have been deleted before they were taken, and what to do."""
    return (
        f"{lane} begins at offset {first}, and {taken} is the next to be counted: records have "
        "been deleted uncounted, because retention is too short or nothing was aggregated for too "
        "long; restore them if you can, or go on without them with --accept-loss"
    )
