"""Writes messages that come in any order as lanes of the log, each sorted by append time."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from types import TracebackType

from sotto.log.writer import LogWriter

BUFFER_BYTES = 64 << 20
#: What a buffered message costs beside its bytes: a tuple, an integer and an object header.
_OVERHEAD = 160


class SortedLanes:
    """Collects messages and writes them out sorted: the first half of an external merge sort.

    A full buffer becomes a lane of its own; the reader merges lanes by append time.

    Parameters
    ----------
    directory : Path
        The log.
    prefix : str
        Lanes are named ``<prefix>-0000``, ``<prefix>-0001`` and so on.
    buffer_bytes : int
        Memory that messages may take before they are written.

    Attributes
    ----------
    messages, written : int
        Messages taken, and their bytes.

    Examples
    --------
    >>> import tempfile
    >>> from sotto.log.writer import LogReader, partitions
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with SortedLanes(Path(directory), "devices") as log:
    ...         log.add(9, b"later")
    ...         log.add(5, b"sooner")
    ...     reader = LogReader(partitions(directory)[0])
    ...     print([(r.append, r.body) for r in reader.records(0, reader.end())])
    [(5, b'sooner'), (9, b'later')]
    """

    def __init__(self, directory: Path, prefix: str, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.messages = 0
        self.written = 0
        self._directory = directory
        self._prefix = prefix
        self._limit = buffer_bytes
        self._buffer: list[tuple[int, bytes]] = []
        self._held = 0
        self._lanes = 0

    def add(self, append: int, message: bytes) -> None:
        """Take one message with its append time in milliseconds."""
        self._buffer.append((append, message))
        self._held += len(message) + _OVERHEAD
        self.messages += 1
        self.written += len(message)
        if self._held > self._limit:
            self.spill()

    def spill(self) -> None:
        """Write what is buffered as a lane.

        Raises
        ------
        PublishError
            The log takes nothing: the disk is full, for example.
        """
        if not self._buffer:
            return
        self._buffer.sort(key=itemgetter(0))
        name = f"{self._prefix}-{self._lanes:04d}"
        with LogWriter(self._directory, name) as writer:
            for append, message in self._buffer:
                writer.append(message, append)
        self._lanes += 1
        self._held = 0
        self._buffer.clear()

    def close(self) -> None:
        """Write the rest."""
        self.spill()

    def __enter__(self) -> SortedLanes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
