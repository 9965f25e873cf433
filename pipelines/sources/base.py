"""Where reports are read from: lanes of records, each in an order that never changes.

The embedded log has lanes of its own; of a Kafka topic every partition is one. A run knows
nothing else of either: it freezes the ends of all lanes, merges them by append time
(:mod:`pipelines.sources.frozen`), and reads ranges of them inside its job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipelines.storage import files
from pipelines.storage.intent import Intent, Mark
from sotto.errors import AggregationError
from sotto.log.frames import FRAME
from sotto.log.reader import Block, LogReader, partitions, segments
from sotto.plan.registry import Registry

#: After every append time and every position.
LATEST = 2**63 - 1
#: How far, in ms, the clock of a log's writer may run ahead of the reader's. A record from later
#: than that would make all other lanes late: it is left where it is.
TRUST = 3_600_000


class Range(Protocol):
    """What a job reads records of."""

    def blocks(self, start: int, end: int, clock: int) -> Iterator[Block]:
        """Yield the records of a range."""
        ...


class Ranges(Protocol):
    """All that a job reads; crosses Beam pickled."""

    def lane(self, name: str) -> Range:
        """Return what has this name in work items."""
        ...


class Lane(Protocol):
    """Records in one order; positions between them only rise, by bytes, numbers or whatever."""

    @property
    def name(self) -> str:
        """By which the lane is known for ever."""
        ...

    def first(self) -> int:
        """Return where to begin if nothing has ever been taken."""
        ...

    def end(self, start: int) -> int:
        """Return the position after the last whole record; ``start`` is one that was taken."""
        ...

    def blocks(self, start: int, end: int, clock: int) -> Iterator[Block]:
        """Yield the records of a range, none of them with a time before ``clock``, ms."""
        ...

    def header(self, position: int) -> bytes | None:
        """Return what tells the record at a position from others; None if it is not there."""
        ...


class Source(Protocol):
    """Lanes, and what is to be known of them before they are taken; crosses Beam pickled."""

    @property
    def unit(self) -> str:
        """What positions count: ``bytes`` or ``messages``."""
        ...

    def open(self, registry: Registry) -> None:
        """Return if there is a source that can be used for reports of these plans.

        Raises
        ------
        AggregationError, BrokerError
            What keeps it from being used, and what to do.
        """
        ...

    def lanes(self, taken: Mapping[str, int]) -> Sequence[Lane]:
        """Return all lanes to take from; ``taken`` says up to where lanes have been."""
        ...

    def lane(self, name: str) -> Lane:
        """Return a lane to read a range of."""
        ...

    def check(self, ends: Mapping[str, int], marks: Mapping[str, Mark]) -> None:
        """Refuse what cannot be the source of which lanes were taken, or are to be, up to ends.

        Raises
        ------
        AggregationError
            What is missing or different.
        """
        ...

    def make_durable(self, intent: Intent) -> None:
        """Make sure that what an intent takes stays what it is."""
        ...

    def close(self) -> None:
        """Let go of connections; they are made again when they are needed."""
        ...


class _LogLane:
    """A lane of the embedded log."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._reader = LogReader(path)

    def first(self) -> int:
        return 0

    def end(self, start: int) -> int:
        return self._reader.end(start)

    def blocks(self, start: int, end: int, clock: int) -> Iterator[Block]:
        return self._reader.blocks(start, end, clock)

    def header(self, position: int) -> bytes | None:
        """Return the frame header at a position; None if its segment has been removed."""
        found = [segment for segment in segments(self._reader.path) if segment.base <= position]
        if not found:
            return None
        with open(found[-1].path, "rb") as segment:
            segment.seek(position - found[-1].base)
            return segment.read(FRAME.size)


@dataclass(frozen=True)
class EmbeddedLog:
    """The embedded log (:mod:`sotto.log.writer`) as a source.

    Parameters
    ----------
    path : Path
        The log's directory.
    """

    path: Path
    unit = "bytes"

    def __reduce__(self) -> tuple[type[EmbeddedLog], tuple[Path]]:
        """Cross Beam with a path that does not depend on where a process was started."""
        return EmbeddedLog, (self.path.absolute(),)

    def open(self, registry: Registry) -> None:
        """Return if there is a log.

        Raises
        ------
        AggregationError
            There is none.
        """
        if not self.path.is_dir():
            raise AggregationError(f"there is no log in {self.path}")

    def lanes(self, taken: Mapping[str, int]) -> Sequence[Lane]:
        """Return all lanes, sorted by name."""
        return [_LogLane(path) for path in partitions(self.path)]

    def lane(self, name: str) -> Lane:
        """Return the lane of a name."""
        return _LogLane(self.path / name)

    def check(self, ends: Mapping[str, int], marks: Mapping[str, Mark]) -> None:
        """Refuse another log, or one that was cut.

        Old segments may be removed, the first ones first, but neither a lane nor its last segment.

        Raises
        ------
        AggregationError
            A lane is missing, or shorter than that, or has another record where its mark is.
        """
        for name, end in ends.items():
            found = segments(self.path / name)
            there = found[-1].base + found[-1].path.stat().st_size if found else 0
            if there < end:
                raise AggregationError(
                    f"lane {name!r} ends at {there}, but {end} bytes of it have been taken: "
                    "this is another log, or it was cut"
                )
            mark = marks.get(name)
            if mark and self.lane(name).header(mark.position) not in (None, mark.header):
                raise AggregationError(
                    f"lane {name!r} has another record at {mark.position} than the one that was "
                    "taken: this is another log, or it was cut and written again"
                )

    def make_durable(self, intent: Intent) -> None:
        """Force to disk the bytes of the log that an intent takes."""
        firsts: dict[str, int] = {}
        for item in intent.items:
            firsts.setdefault(item.lane, item.start)
        for lane, last in intent.ends.items():
            found, first = segments(self.path / lane), firsts[lane]
            bases = [segment.base for segment in found[1:]] + [LATEST]
            files.sync(
                segment.path
                for segment, following in zip(found, bases, strict=True)
                if segment.base < last and first < following
            )
        files.sync_directory(self.path)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def source_of(log: str | os.PathLike[str] | Source) -> Source:
    """Return a source; a path is an embedded log's."""
    return EmbeddedLog(Path(log)) if isinstance(log, str | os.PathLike) else log
