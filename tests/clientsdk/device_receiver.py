"""Ends of a device in a scenario: a publisher that fails as told, and a log that is kept."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable

from clientsdk import MemoryPublisher, Outcome
from sotto.errors import PublishError


class Receiver(MemoryPublisher):
    """Takes messages, or some of them, and then fails in the way that a scenario names."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = "takes"
        self.left = 0
        self.meanwhile: dict[str, Callable[[], None]] = {}
        self.before_each: Callable[[int, bytes], None] = lambda shard, message: None

    def publish(self, shard: int, message: bytes) -> None:
        self.before_each(shard, message)
        self._go_on("before")
        self.left -= 1
        fails = self.left < 0
        if fails and self.mode == "refuses":
            raise PublishError("refused")
        if fails and self.mode == "is busy":
            raise PublishError("come again in two hours", retry_after=7200.0)
        if fails and self.mode == "breaks":
            raise RuntimeError(f"a bug at {message!r}")
        super().publish(shard, message)
        self._go_on("after")
        if fails and self.mode == "loses answers":
            raise PublishError("no answer")
        if fails and self.mode == "crashes":
            raise KeyboardInterrupt

    def _go_on(self, when: str) -> None:
        step = self.meanwhile.pop(when, None)
        if step is not None:
            step()


class Tally:
    """The results of one client's calls."""

    def __init__(self) -> None:
        self.outcomes = defaultdict[Outcome, Counter[str]](Counter)
        self.sent = self.lapsed = 0


class LogLines(logging.Handler):
    """All lines that are logged, each after its level, with what tracebacks would say."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        #: Those since the last look, and all.
        self.lines: list[str] = []
        self.all: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.add(self.format(record))

    def add(self, line: str) -> None:
        """Take a line, or what an error says."""
        self.lines.append(line)
        self.all.append(line)
