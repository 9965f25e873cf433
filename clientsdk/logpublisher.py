"""Sends messages to the embedded log."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from sotto.clocks import now_ms
from sotto.errors import FormatError, PublishError
from sotto.log import LogWriter
from sotto.wire import pseudonym_of

#: How many pseudonyms have an open lane at one time.
LIMIT = 8


class EmbeddedLogPublisher:
    """Appends messages to an embedded log (:mod:`sotto.log`), in a new lane for each pseudonym.

    Lanes have random names, and none takes messages of two pseudonyms or of two processes. Nothing
    but messages is in them, and closing them changes no time of a file or directory: what is in
    the log joins nothing that its messages and their times do not. At most eight lanes are open;
    beyond them the least recently used one is closed, and its pseudonym gets another if it comes
    back. Tools that write for many devices use :class:`sotto.log.LogWriter`.

    Parameters
    ----------
    directory : path
        The log. Nothing is made there before the first message.
    fsync : {"batch", "always", "never"}
        Whether bytes are forced to disk at the end of each flush, at every message, or by the
        operating system in its own time. A process that dies loses nothing in any case.
    clock : callable
        Returns the append time, in milliseconds since the epoch.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fsync: Literal["batch", "always", "never"] = "batch",
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._directory = directory
        self._fsync = fsync
        self._clock = clock
        self._process = os.getpid()
        self._lock = threading.Lock()
        #: By pseudonym, the least recently used first.
        self._open: OrderedDict[bytes, LogWriter] = OrderedDict()
        #: Those of them that took messages since the last sync.
        self._unsynced: set[bytes] = set()
        # Messages were taken that no sync will vouch for: the next one fails, and they come again.
        self._doubtful = False

    def publish(self, shard: int, message: bytes) -> None:
        """Append a message to the lane of its pseudonym.

        Raises
        ------
        PublishError
            It was not written, or these are not the bytes of a message of one pseudonym.
        """
        self._check_process()
        try:
            pseudonym = pseudonym_of(message)
        except FormatError as error:
            raise PublishError(f"these bytes are no message of a device: {error}") from None
        with self._lock:
            writer = self._writer(pseudonym)
            self._unsynced.add(pseudonym)
            try:
                writer.append(message)
            except PublishError:
                self._drop_if_broken(pseudonym)
                raise

    def sync(self) -> None:
        """Force to disk what was published, unless ``fsync`` is ``"never"``."""
        self._check_process()
        with self._lock:
            if self._doubtful:
                self._doubtful = False
                raise PublishError("messages before a fault of the log may not have reached it")
            for pseudonym in tuple(self._unsynced):
                try:
                    self._open[pseudonym].sync()
                except PublishError:
                    self._drop(pseudonym)
                    raise
                self._unsynced.discard(pseudonym)

    def close(self) -> None:
        """Force to disk what was published and let the lanes go."""
        self._check_process()
        with self._lock:
            failed: PublishError | None = None
            while self._open:
                try:
                    self._retire(next(iter(self._open)))
                except PublishError as error:
                    failed = failed or error
            if failed is not None:
                raise failed

    def _writer(self, pseudonym: bytes) -> LogWriter:
        """Return the open lane of a pseudonym."""
        if pseudonym not in self._open:
            while len(self._open) >= LIMIT:
                try:
                    self._retire(next(iter(self._open)))
                except PublishError:
                    self._doubtful = True
            name = os.urandom(8).hex()
            self._open[pseudonym] = LogWriter(
                self._directory, name, clock=self._clock, fsync=self._fsync, locked=False
            )
        self._open.move_to_end(pseudonym)
        return self._open[pseudonym]

    def _retire(self, pseudonym: bytes) -> None:
        """Close a lane, with what it has been given."""
        self._unsynced.discard(pseudonym)
        self._open.pop(pseudonym).retire()

    def _drop_if_broken(self, pseudonym: bytes) -> None:
        """After a failure: keep a writer that may be used again, as one on a full disk may."""
        try:
            self._open[pseudonym].sync()
        except PublishError:
            self._doubtful = True
            self._drop(pseudonym)

    def _drop(self, pseudonym: bytes) -> None:
        """Let go of a writer that takes nothing more; the next message opens a new lane."""
        with suppress(PublishError):
            self._retire(pseudonym)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._lock = threading.Lock()
            writers, self._open = self._open, OrderedDict()
            self._unsynced = set()
            self._doubtful = False
            self._process = os.getpid()
            for writer in writers.values():
                # Without touching the lanes: they are the parent's.
                writer.close()
