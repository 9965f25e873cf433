"""The contract of publishers, as protocols for type checkers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Publisher(Protocol):
    """Takes messages to the collector. Several clients may share one; it belongs to the app."""

    def publish(self, shard: int, message: bytes) -> None:
        """Take a message of that shard, of at most ``sotto.wire.format.MAX_MESSAGE`` bytes.

        After a PublishError the client keeps its reports and sends the same bytes again, where its
        ``retry_after`` says so not before so many seconds are over: what a server has asked for
        (``Retry-After`` of HTTP, say) belongs there. Any other exception is taken for this one, and
        nothing of it is logged but the name of its type.
        """

    def close(self) -> None:
        """Close files and connections."""


@runtime_checkable
class Buffered(Protocol):
    """A publisher that may hold messages back: what it took is safe once ``sync`` returns."""

    def sync(self) -> None:
        """Wait until everything published is safe; after a PublishError all of it is sent again."""


@runtime_checkable
class Revocable(Buffered, Protocol):
    """A buffered publisher whose messages have not left before ``sync``, and can be dropped.

    Messages that any other one holds when consent is withdrawn may still leave, in their own time.
    """

    def discard(self) -> None:
        """Drop what was published since the last ``sync``: consent for it was withdrawn.

        Called instead of ``sync``. If messages of another client are dropped with it, that client's
        next ``sync`` must raise PublishError, so that they come again.
        """
