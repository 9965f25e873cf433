"""Sends messages to the embedded log."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from sotto.clocks import now_ms
from sotto.errors import PublishError
from sotto.log import LogWriter


class EmbeddedLogPublisher:
    """Appends messages to an embedded log (:mod:`sotto.log`), in a lane of this process alone.

    Parameters
    ----------
    directory : path
        The log. Nothing is made there before the first message.
    lane : str, optional
        The lane to write; by default one that is new and unique. A process forked from this one
        always writes a new lane of its own.
    fsync : {"batch", "always", "never"}
        Whether bytes are forced to disk at the end of each flush, at every message, or by the
        operating system in its own time. A process that dies loses nothing in any case.
    clock : callable
        Returns the append time, in milliseconds since the epoch.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        lane: str | None = None,
        fsync: Literal["batch", "always", "never"] = "batch",
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._directory = directory
        self._lane = lane
        self._fsync = fsync
        self._clock = clock
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._writer: LogWriter | None = None
        # Messages were taken that no sync will vouch for: the next one fails, and they come again.
        self._doubtful = False

    def publish(self, shard: int, message: bytes) -> None:
        """Append a message to the log."""
        self._check_process()
        with self._lock:
            if self._writer is None:
                self._writer = self._open()
            try:
                self._writer.append(message)
            except PublishError:
                self._replace_if_broken(self._writer)
                raise

    def sync(self) -> None:
        """Force to disk what was published, unless ``fsync`` is ``"never"``."""
        self._check_process()
        with self._lock:
            if self._doubtful:
                self._doubtful = False
                raise PublishError("messages before a fault of the log may not have reached it")
            if self._writer is not None:
                try:
                    self._writer.sync()
                except PublishError:
                    self._drop(self._writer)
                    raise

    def close(self) -> None:
        """Force to disk what was published and let the lane go."""
        self._check_process()
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    def _replace_if_broken(self, writer: LogWriter) -> None:
        """After a failure: keep a writer that may be used again, as one on a full disk may."""
        try:
            writer.sync()
        except PublishError:
            self._doubtful = True
            self._drop(writer)

    def _drop(self, writer: LogWriter) -> None:
        """Let go of a writer that takes nothing more; the next message opens a new lane."""
        self._writer, self._lane = None, None
        with suppress(PublishError):
            writer.close()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._lock = threading.Lock()
            writer, self._writer = self._writer, None
            self._lane, self._doubtful = None, False
            self._process = os.getpid()
            if writer is not None:
                writer.close()

    def _open(self) -> LogWriter:
        lane = self._lane or f"{os.getpid()}-{os.urandom(6).hex()}"
        return LogWriter(self._directory, lane, clock=self._clock, fsync=self._fsync)
