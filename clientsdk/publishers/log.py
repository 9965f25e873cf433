"""Publishes messages to the embedded log."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from clientsdk.lifecycle import Unshared
from clientsdk.publishers import pseudonym_in
from clientsdk.settings import checked_clock
from sotto.errors import ParameterError, PublishError, wrong_type
from sotto.files import log_folder, path_of
from sotto.log.writer import LogWriter

#: How many partitions are open at one time, and how many closed ones are remembered.
LIMIT = 64
REMEMBERED = 4096


class EmbeddedLogPublisher(Unshared):
    """Appends messages to an embedded log, in a new partition for each pseudonym.

    Partitions have random names, and none takes messages of two pseudonyms or of two processes.
    They hold messages alone, and closing them changes no time of a file or directory: the log joins
    nothing that its messages and their times do not. At most 64 partitions are open; beyond them
    the least recently used one is closed, and opened again when its pseudonym comes back, unless
    4096 others have been closed since. Tools that write for many devices use
    :class:`sotto.log.writer.LogWriter`.

    ``fsync`` says whether bytes are forced to disk at the end of each flush, at every message, or
    by the operating system in its own time; a process that dies loses nothing in any case.
    ``clock`` returns the append time, in seconds since the epoch.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fsync: Literal["batch", "always", "never"] = "batch",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(directory, str | os.PathLike):
            raise wrong_type("directory", "the path of a log", directory)
        if fsync not in ("batch", "always", "never"):
            raise ParameterError("fsync must be 'batch', 'always' or 'never'")
        self._directory = log_folder(os.fspath(directory))
        self._fsync = fsync
        self._clock = checked_clock(clock)
        self._process = os.getpid()
        self._lock = threading.Lock()
        #: By pseudonym, the least recently used first.
        self._open: OrderedDict[bytes, LogWriter] = OrderedDict()
        #: By pseudonym, the one closed first before the others: name, and where its records end.
        self._closed: OrderedDict[bytes, tuple[str, int]] = OrderedDict()
        #: By pseudonym, the threads that published since its partition was last forced to disk.
        self._unsynced: dict[bytes, set[int]] = {}
        # Threads with messages that no sync can confirm, and why: their next one fails, and they
        # send again.
        self._lost: dict[int, str] = {}

    @classmethod
    def from_url(cls, url: str) -> EmbeddedLogPublisher:
        """Return the publisher to a log's folder; see :func:`sotto.files.path_of` for errors."""
        return cls(path_of(url))

    def publish(self, shard: int, message: bytes) -> None:
        """Append a message to the partition of its pseudonym, or raise PublishError."""
        self._check_process()
        pseudonym = pseudonym_in(message)
        with self._lock:
            writer = self._writer(pseudonym)
            try:
                writer.append(message)
            except PublishError:
                # One on a full disk may be used again.
                self._sync_or_drop(pseudonym)
                raise
            self._unsynced.setdefault(pseudonym, set()).add(threading.get_ident())

    def sync(self) -> None:
        """Force to disk what was published, unless ``fsync`` is ``"never"``.

        Raises PublishError if something that this thread published may not have reached the disk.
        """
        self._check_process()
        with self._lock:
            for pseudonym in tuple(self._unsynced):
                self._sync_or_drop(pseudonym)
                self._unsynced.pop(pseudonym, None)
            self._raise_loss()

    def close(self) -> None:
        """Do what :meth:`sync` does and let the partitions go, also where that raises."""
        self._check_process()
        with self._lock:
            while self._open:
                self._retire(next(iter(self._open)))
            self._raise_loss()

    def _report_loss(self, pseudonym: bytes, error: PublishError) -> None:
        """Note for each thread that published to a partition that what is unsynced may be lost."""
        threads = self._unsynced.pop(pseudonym, set())
        self._lost.update(dict.fromkeys(threads, str(error)))

    def _raise_loss(self) -> None:
        why = self._lost.pop(threading.get_ident(), None)
        if why is not None:
            raise PublishError(f"messages before a fault of the log may not have reached it: {why}")

    def _writer(self, pseudonym: bytes) -> LogWriter:
        if pseudonym not in self._open:
            while len(self._open) >= LIMIT:
                self._retire(next(iter(self._open)))
            writer = self._reopened(pseudonym) or self._partition(os.urandom(8).hex())
            self._open[pseudonym] = writer
        self._open.move_to_end(pseudonym)
        return self._open[pseudonym]

    def _reopened(self, pseudonym: bytes) -> LogWriter | None:
        closed = self._closed.pop(pseudonym, None)
        if closed is None:
            return None
        name, position = closed
        writer = self._partition(name)
        if writer.position == position:
            return writer
        # Somebody has removed it, or cut it: positions of a partition never count anything twice.
        with suppress(PublishError):
            writer.retire()
        return None

    def _partition(self, name: str) -> LogWriter:
        return LogWriter(self._directory, name, clock=self._clock, fsync=self._fsync, locked=False)

    def _retire(self, pseudonym: bytes) -> None:
        writer = self._open.pop(pseudonym)
        try:
            writer.retire()
        except PublishError as error:
            self._report_loss(pseudonym, error)
            return
        self._unsynced.pop(pseudonym, None)
        self._closed[pseudonym] = writer.path.name, writer.position
        while len(self._closed) > REMEMBERED:
            self._closed.popitem(last=False)

    def _sync_or_drop(self, pseudonym: bytes) -> None:
        """Force a partition to disk, or let go of its writer: the next message opens a new one."""
        try:
            self._open[pseudonym].sync()
        except PublishError as error:
            self._report_loss(pseudonym, error)
            with suppress(PublishError):
                self._open.pop(pseudonym).retire()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._lock = threading.Lock()
            writers, self._open = self._open, OrderedDict()
            self._closed, self._unsynced, self._lost = OrderedDict(), {}, {}
            self._process = os.getpid()
            for writer in writers.values():
                # Without touching the partitions: they are the parent's.
                writer.close()
