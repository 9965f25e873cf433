"""Publishers: the contract of what takes messages to the collector, and one that keeps them."""

from __future__ import annotations

from sotto.errors import FormatError, PublishError, wrong_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

    from clientsdk.publishers.contract import Buffered, Publisher, Revocable

#: Publishers that a URL stands for, by its scheme: a module, and the class in it whose ``from_url``
#: makes one. A new scheme is a line here.
PUBLISHERS = {
    "https": ("clientsdk.publishers.http", "HttpPublisher"),
    "http": ("clientsdk.publishers.http", "HttpPublisher"),
    "file": ("clientsdk.publishers.log", "EmbeddedLogPublisher"),
    "kafka": ("clientsdk.publishers.kafka", "KafkaPublisher"),
}

__all__ = ["Buffered", "MemoryPublisher", "Publisher", "Revocable"]


# These stand for ``isinstance`` of the protocols, which imports ``inspect`` from Python 3.12 on.


def is_buffered(publisher: object) -> TypeGuard[Buffered]:
    return hasattr(publisher, "sync")


def is_revocable(publisher: object) -> TypeGuard[Revocable]:
    return is_buffered(publisher) and hasattr(publisher, "discard")


def pseudonym_in(message: bytes) -> bytes:
    """Return the pseudonym of a message; PublishError if it is not a message of one device."""
    if not isinstance(message, bytes):
        raise wrong_type("message", "bytes", message)
    # Whoever publishes nothing reads no messages.
    from sotto.wire.format import pseudonym_of

    try:
        return pseudonym_of(message)
    except FormatError as error:
        raise PublishError(f"these bytes are not a message of one device: {error}") from None


def publisher_of(url: str) -> Publisher:
    """Return the publisher that a URL stands for; one without a known scheme is a collector's.

    Raises
    ------
    ParameterError
        The URL is not such as its publisher takes.
    ModuleNotFoundError
        The publisher needs a package that is not installed.
    """
    module, name = PUBLISHERS.get(url.partition(":")[0].lower(), PUBLISHERS["https"])
    made: Publisher = getattr(__import__(module, fromlist=[name]), name).from_url(url)
    return made


class MemoryPublisher:
    """Keeps ``messages``, pairs of shard and bytes in their order, for tests and previews."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes]] = []

    def publish(self, shard: int, message: bytes) -> None:
        self.messages.append((shard, message))

    def close(self) -> None:
        """Do nothing; the messages stay."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Protocols are typing's, which publishing by itself has no use for.
    from clientsdk.publishers import contract

    return getattr(contract, name)
