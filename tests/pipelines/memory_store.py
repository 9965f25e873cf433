"""A store of messages in memory."""

from __future__ import annotations


class MemoryStore:
    """Keeps the groups that it was given, and how often it was given some."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.groups: list[list[tuple[int, bytes]]] = []
        self.failure = failure
        self.tried = 0
        self.closed = False

    def write(self, messages) -> None:
        self.tried += 1
        if self.failure is not None:
            raise self.failure
        self.groups.append(list(messages))

    def close(self) -> None:
        self.closed = True
