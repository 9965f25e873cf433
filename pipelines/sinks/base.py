"""The contract of sinks, which take the documents of results.

A new sink is a module of this folder with a subclass of :class:`Sink`, and a line in
:mod:`pipelines.sinks.registry`; ``tests/contract/test_sinks.py`` then holds it to what is
said here. ``docs/guides/extending.md`` has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, Protocol, Self

from pipelines.results.documents import Document
from sotto.errors import AggregationError


class SinkError(AggregationError):
    """A sink could not take documents now; it can be given them again later."""


class Applied(NamedTuple):
    """How many documents were written and not."""

    written: int = 0
    stale: int = 0  #: documents that are no newer than what the sink has
    others: int = 0  #: documents of another job
    refused: int = 0  #: documents that the sink can never store

    def plus(self, other: Applied) -> Applied:
        return Applied(*map(add, self, other))


class Advance(NamedTuple):
    """Records that were read of a partition: the offsets from ``start`` up to ``end``."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class ReadTopic:
    """How far a topic has been read with the documents that are written."""

    topic: str  #: its name
    id: str  #: its id
    read: Sequence[Advance] = ()
    #: Whether its results replace a collector's from another topic, and another job's.
    replace: bool = False


class Sink(ABC):
    """A place to which the documents of results go.

    *At least once.* Every document is written, and may be written again: after an error, a crash or
    a rollback the same ones come once more, whole batches or parts of them, in another order and
    cut otherwise. So writing is idempotent by key: of each key (:attr:`Document.key`) a sink holds
    what the document of the highest revision says, whatever came before or comes after. A document
    replaces all rows with its key; one without rows removes them, and they do not come back.

    *One job.* A sink that can be read by key holds, for each collector, the results of one job: the
    first whose documents came. Those of others are counted and left.

    *All kinds.* A sink takes every kind of document: of windows, budget periods, rejects and health
    (:mod:`pipelines.results.documents`). ``Document.record`` raises FormatError for one that no
    database can store; a document that was read from a topic never does.

    *Crossing processes.* A sink is pickled before it is used, and connects when it first writes.
    Several workers may write to one place at the same time, each with a sink of its own.

    A document has no report of a person; a sink still logs none of its content, since texts in it
    are from plans and from what devices made of their values.
    """

    @classmethod
    @abstractmethod
    def open(cls, url: str, job: str = "") -> Self:
        """Return the sink of a URL.

        Parameters
        ----------
        url : str
            Its scheme is one of :data:`pipelines.sinks.registry.SINKS`.
        job : str
            Random name of the job that writes; empty where documents are read from a topic.

        Raises
        ------
        AggregationError
            The URL cannot be used, or a package is missing.
        """

    @abstractmethod
    def write(self, documents: Sequence[Document], progress: ReadTopic | None = None) -> Applied:
        """Write documents; return once those that are not left out are durable.

        A document that the sink can never store is left out and counted as ``refused``: after an
        error the caller would bring it again for ever.

        Parameters
        ----------
        documents : sequence of Document
            In any order; several may have one key.
        progress : ReadTopic, optional
            How far a topic is read with them. A sink that keeps it, in the same transaction,
            returns it from :meth:`offsets`; others ignore it.

        Raises
        ------
        SinkError
            Documents could not be written now; some may have been. The caller tries again.
        AggregationError
            They can never be written as the sink is: what it holds belongs to somebody else, or
            has other columns. The error says why.
        """

    def offsets(self, topic: str, id: str, *, replace: bool = False) -> dict[int, int]:
        """Return the next offset of each partition of a topic; empty to read it from its beginning.

        ``replace``: as in :class:`ReadTopic`; if results are replaced, none are left.
        """
        return {}

    def close(self) -> None:  # noqa: B027
        """Close connections; they are opened again when needed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RejectsSink(Protocol):
    """A place for packed rejects, which are written at least once.

    A reject that comes again has the same key or name. It crosses processes as a :class:`Sink`
    does.
    """

    def write(self, items: Sequence[bytes]) -> None:
        """Return once all items are durable; after an error all of them are written again."""

    def close(self) -> None:
        """Close connections; they are opened again when needed."""
