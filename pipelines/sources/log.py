"""The embedded log (:mod:`sotto.log.writer`) as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.sources.base import LATEST, MissingError, Partition
from pipelines.storage import files
from pipelines.storage.intent import Intent, LastRecord
from sotto.errors import AggregationError
from sotto.files import path_of
from sotto.log.frames import FRAME
from sotto.log.reader import Block, LogReader, partitions, segments
from sotto.plan.registry import Registry


class _LogPartition:
    """A partition of the embedded log."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._reader = LogReader(path)

    def bounds(self, taken: int = 0, limit: int = LATEST, rough: bool = False) -> tuple[int, int]:
        return 0, self._reader.end(taken, limit, rough=rough)

    def blocks(self, start: int, end: int, clock: int, trusted: int = LATEST) -> Iterator[Block]:
        return self._reader.blocks(start, end, clock, trusted)

    def poll(self, start: int, stop: int, clock: int, trusted: int = LATEST) -> Block | None:
        end = min(self._reader.end(start), stop)
        return next(self.blocks(start, end, clock, trusted), None) if end > start else None

    def header(self, position: int) -> bytes | None:
        """Return the frame header at a position; None if its segment has been removed."""
        found = [segment for segment in segments(self._reader.path) if segment.base <= position]
        if not found:
            return None
        with open(found[-1].path, "rb") as segment:
            segment.seek(position - found[-1].base)
            return segment.read(FRAME.size)

    def close(self) -> None: ...


@dataclass(frozen=True)
class EmbeddedLog:
    """The embedded log as a source; see :class:`pipelines.sources.base.BoundedSource`."""

    path: Path  #: the log's directory, which all workers reach
    unit = "bytes"
    label = "log"
    requeued = False

    @classmethod
    def from_url(cls, url: str) -> EmbeddedLog:
        """Return the log in a folder; see :func:`sotto.files.path_of` for errors."""
        return cls(Path(path_of(url)))

    def __reduce__(self) -> tuple[type[EmbeddedLog], tuple[Path]]:
        """Pickle with an absolute path, since workers may be started in another folder."""
        return EmbeddedLog, (self.path.absolute(),)

    def open(self, registry: Registry | None) -> None:
        empty = not any(map(segments, partitions(self.path)))
        if not self.path.is_dir() or (empty and any(map(Path.is_file, self.path.iterdir()))):
            raise MissingError(f"there is no log in {self.path}: expected a folder of partitions")

    def names(self) -> Sequence[str]:
        self.open(None)
        return [path.name for path in partitions(self.path)]

    def partitions(self, taken: Mapping[str, int]) -> Sequence[Partition]:
        return [self.partition(path.name) for path in partitions(self.path)]

    def partition(self, name: str) -> Partition:
        return _LogPartition(self.path / name)

    def check(self, ends: Mapping[str, int], last: Mapping[str, LastRecord]) -> None:
        """Raise AggregationError if this is another log, or one that was cut.

        Old segments may have been removed, oldest first, but no partition and no last segment.
        """
        for name, end in ends.items():
            size = LogReader(self.path / name).end(rough=True)
            if size < end:
                raise AggregationError(
                    f"partition {name!r} ends at {size}, but {end} bytes of it have been read: "
                    "this is another log, or it was cut"
                )
            known = last.get(name)
            if known and self.partition(name).header(known.position) not in (None, known.header):
                raise AggregationError(
                    f"partition {name!r} has another record at {known.position} than the one that "
                    "was read: this is another log, or it was cut and written again"
                )

    def make_durable(self, intent: Intent) -> None:
        """Sync the segments that an intent reads to disk."""
        starts: dict[str, int] = {}
        for item in intent.items:
            starts.setdefault(item.partition, item.start)
        for name, end in intent.ends.items():
            found = segments(self.path / name)
            bases = [segment.base for segment in found[1:]] + [LATEST]
            files.sync(
                segment.path
                for segment, following in zip(found, bases, strict=True)
                if segment.base < end and starts[name] < following
            )
        files.sync_directory(self.path)

    def close(self) -> None: ...
