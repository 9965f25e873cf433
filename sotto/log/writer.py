"""The embedded log: an append-only directory of partitions, each with one writer and many readers.

A partition is a directory of segments named by the position of their first byte; a *position*
counts the bytes of the partition, segment headers included. Positions only grow, and never mean
anything else. The format is in ``docs/spec/formats.md`` and :mod:`sotto.log.frames`;
:mod:`sotto.log.reader` reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from sotto.clocks import now_ms
from sotto.errors import ParameterError, PublishError
from sotto.files import force, force_folder, open_file, read_at, try_lock, write_at
from sotto.log.frames import HEADER, MAX_BODY, frame, is_torn
from sotto.log.reader import segments, sound_size

SEGMENT_BYTES = 64 << 20
#: Reports are for their owner and its group alone.
_FOLDER, _FILE = 0o750, 0o640
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}")


class LogWriter:
    """The one writer of a partition.

    Opening cuts off the torn record that a writer that died may have left; damage of any other
    kind stays in place for readers to report, and writing goes on in a new segment. Raises
    PublishError if another writer holds the partition, or the directory cannot be used.

    Parameters
    ----------
    directory : path
        The log. Made if it is not there, as is the partition.
    partition : str
        A name of at most 64 letters, digits, ``_``, ``.`` and ``-``.
    clock : callable
        Returns the append time (ms) of a record for which none is given.
    segment_bytes : int
        A segment is closed before it would grow beyond this.
    fsync : {"batch", "always", "never"}
        When bytes are forced to disk: at :meth:`sync`, at the end of a segment and at
        :meth:`close`; at every record too; or not at all. A process that dies loses nothing that
        was appended; a machine that loses power loses what was not forced to disk.
    locked : bool
        Whether to hold the file ``lock`` in the partition, which keeps other writers out. Without
        it nothing but segments is ever in the partition, and closing it changes none of its times:
        for a partition under a random name that the caller has drawn.
    new_segment : bool
        Whether to leave the last segment as it is: what a system that failed at forcing it to disk
        has kept of it is unknown, and damage within it may hide all that follows there.

    Examples
    --------
    >>> import tempfile
    >>> from sotto.log.reader import LogReader, partitions
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with LogWriter(directory, "a") as log:
    ...         position = log.append(b"hello", append_time=5)
    ...     reader = LogReader(partitions(directory)[0])
    ...     print(position, reader.end(), list(reader.records(0, reader.end())))
    16 37 [LogRecord(position=16, append=5, body=b'hello')]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        partition: str,
        clock: Callable[[], int] = now_ms,
        segment_bytes: int = SEGMENT_BYTES,
        fsync: Literal["batch", "always", "never"] = "batch",
        locked: bool = True,
        new_segment: bool = False,
    ) -> None:
        if not _PARTITION.fullmatch(partition):
            raise ParameterError(
                f"partition {partition!r} must be 1 to 64 letters, digits, '_', '.' and '-', "
                "a letter or digit first"
            )
        if fsync not in ("batch", "always", "never"):
            raise ParameterError(f"fsync {fsync!r} must be 'batch', 'always' or 'never'")
        if not segment_bytes > len(HEADER):
            raise ParameterError(f"segment_bytes {segment_bytes} must be above {len(HEADER)}")
        self.path: Path = Path(directory) / partition
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._process = os.getpid()
        self._fault: str | None = None
        self._segment = self._lock = -1
        self._base = self._size = 0
        made = False
        try:
            made = self._make_partition()
            if locked:
                self._lock = self._take_lock()
            self._open_last()
            if new_segment and self._size > len(HEADER):
                self._roll()
        except BaseException as error:
            self._release()
            if made:
                self._remove()
            if isinstance(error, OSError):
                a_file = self.path.parent.is_file()
                why = "a log must be a folder; got a file" if a_file else error.strerror
                raise PublishError(f"partition {partition!r} cannot be opened: {why}") from error
            raise

    @property
    def position(self) -> int:
        """The position after the last record."""
        return self._base + self._size

    @property
    def usable(self) -> bool:
        """Whether it takes records; else the partition must be opened again."""
        return self._segment >= 0 and self._process == os.getpid() and self._fault is None

    def append(self, body: bytes, append_time: int | None = None) -> int:
        """Write one record of 1 to ``MAX_BODY`` bytes and return its position.

        The append time, in milliseconds since the epoch, is the clock's if not given.

        Raises
        ------
        FormatError
            The body or the time cannot be framed.
        PublishError
            The record was not written: the disk is full, for example. Nothing of it remains, and
            the writer may be used again, unless the system failed at forcing it to disk.
        """
        self._check_usable()
        record = frame(body, self._clock() if append_time is None else append_time)
        try:
            # A segment is closed before it would grow too large, but has one record at least.
            if len(HEADER) < self._size and self._size + len(record) > self._segment_bytes:
                self._roll()
            position = self.position
            self._write(record)
            if self._fsync == "always":
                self._force(self._segment)
        except OSError as error:
            raise PublishError(f"a record was not written: {error.strerror}") from error
        return position

    def sync(self) -> None:
        """Force to disk what was appended, unless ``fsync`` is ``"never"``.

        Raises PublishError if the system could not: what reached the disk is unknown, and the
        writer is closed to further records.
        """
        self._check_usable()
        if self._fsync != "never":
            try:
                self._force(self._segment)
            except OSError as error:
                raise PublishError(f"the log was not forced to disk: {error.strerror}") from error

    def close(self) -> None:
        """Force to disk what was appended and let the partition go. May be called again."""
        if self._segment < 0:
            return
        try:
            if self._process == os.getpid() and self._fault is None:
                self.sync()
        finally:
            self._release()

    def retire(self) -> None:
        """Close the partition, and remove it if it has no records.

        To be called by whoever has made the partition, under a name that nobody else will use.
        """
        mine = self._segment >= 0 and self._process == os.getpid()
        empty = mine and self.position == len(HEADER)
        try:
            self.close()
        finally:
            if empty:
                self._remove()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_usable(self) -> None:
        if self._segment < 0:
            raise PublishError(f"the writer of partition {self.path.name!r} is closed")
        if self._process != os.getpid():
            raise PublishError(f"partition {self.path.name!r} was opened by the parent process")
        if self._fault is not None:
            raise PublishError(f"partition {self.path.name!r} must be opened again: {self._fault}")

    def _make_partition(self) -> bool:
        """Make the directory; return whether it was not there."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER)
        try:
            self.path.mkdir(mode=_FOLDER)
        except FileExistsError:
            return False
        return True

    def _remove(self) -> None:
        """Remove a partition without records, as far as that goes."""
        with suppress(OSError):
            for path in (*(segment.path for segment in segments(self.path)), self.path / "lock"):
                path.unlink(missing_ok=True)
            self.path.rmdir()

    def _take_lock(self) -> int:
        lock = open_file(self.path / "lock", os.O_RDWR | os.O_CREAT, _FILE)
        try:
            if not try_lock(lock):
                raise PublishError(f"partition {self.path.name!r} is in use: give another name")
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _release(self) -> None:
        for descriptor in (self._segment, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._segment = self._lock = -1

    def _open_last(self) -> None:
        found = segments(self.path)
        if not found:
            self._segment = self._create(0)
            self._base, self._size = 0, len(HEADER)
            return
        last = found[-1]
        self._segment = open_file(last.path, os.O_RDWR)
        self._base, self._size = last.base, os.fstat(self._segment).st_size
        if self._size < len(HEADER):
            os.close(self._segment)
            self._segment = self._create(self._base)
            self._size = len(HEADER)
            return
        sound = sound_size(self._segment, 0, self._size)
        if sound == self._size:
            return
        tail = read_at(self._segment, min(self._size - sound, 2 * MAX_BODY), sound)
        if sound + len(tail) == self._size and sound >= len(HEADER) and is_torn(tail):
            os.ftruncate(self._segment, sound)
            self._size = sound
            if self._fsync != "never":
                force(self._segment)
        else:
            self._roll()

    def _create(self, base: int) -> int:
        path = self.path / f"{base:020d}.seg"
        segment = open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, _FILE)
        try:
            _write_all(segment, HEADER, 0)
            if self._fsync != "never":
                force(segment)
                for folder in (self.path, self.path.parent):
                    force_folder(folder)
        except BaseException:
            os.close(segment)
            with suppress(OSError):
                path.unlink()
            raise
        return segment

    def _roll(self) -> None:
        if self._fsync != "never":
            self._force(self._segment)
        following = self._create(self.position)
        os.close(self._segment)
        self._segment = following
        self._base, self._size = self.position, len(HEADER)

    def _write(self, data: bytes) -> None:
        try:
            _write_all(self._segment, data, self._size)
        except BaseException:
            # Whatever happened, nothing but whole records stays behind.
            try:
                os.ftruncate(self._segment, self._size)
            except OSError:
                self._fault = "a torn record could not be cut off"
            raise
        self._size += len(data)

    def _force(self, segment: int) -> None:
        try:
            force(segment)
        except OSError:
            # The kernel may have dropped the pages: a second attempt would prove nothing.
            self._fault = "the system could not force records to disk"
            raise


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = write_at(descriptor, view, offset)
        view = view[written:]
        offset += written
