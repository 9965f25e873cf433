"""The contract of sources: partitions of records, each in an order that never changes.

A partition is one of a Kafka topic, or one stream of segments of the embedded log. Its positions,
bytes or offsets, only rise. A streaming job lists the partitions of its sources again and again
and polls each of them. An aggregation run takes a :class:`BoundedSource`: it freezes the ends of
all partitions, merges them by append time (:mod:`pipelines.sources.frozen`), and reads ranges of
them inside its job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pipelines.storage.intent import Intent, LastRecord
from sotto.errors import AggregationError, BrokerError
from sotto.log.reader import LATEST as LATEST
from sotto.log.reader import Block
from sotto.plan.registry import Registry

#: How far, in ms, the right clocks of two machines may be apart.
SKEW = 60_000
#: Seconds between two warnings of the same.
WARN_SECONDS = 60.0

_LOGGER = logging.getLogger(__name__)


def trusted_until(now: int, registry: Registry) -> int:
    """Return the latest append time, ms, that is believed at ``now``, ms.

    A record with a later one is rejected as from the future. If it counted, its time would make all
    other records late; and waiting for its time could take for ever.
    """
    return now + max(SKEW, *(plan.grace for plan in registry.plans))


class MissingError(AggregationError):
    """The source does not exist, or not yet."""


class LostError(AggregationError):
    """Records that were to be read next do not exist any more: no attempt will find them."""


class GoneError(LostError):
    """A partition that has been read does not exist any more."""


class Outage:
    """Warns, now and then, that a broker cannot be used, and says when it answers again."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._warned = 0.0

    def begin(self, what: str, error: BrokerError) -> None:
        """Note a failure: ``what`` waits for the broker."""
        now = time.monotonic()
        if self._began is None or now - self._warned > WARN_SECONDS:
            self._warned = now
            _LOGGER.warning("%s waits for the broker: %s", what, error)
        self._began = now if self._began is None else self._began

    def end(self) -> None:
        """Note a success."""
        if self._began is not None:
            seconds = time.monotonic() - self._began
            _LOGGER.warning("the broker answers again, after %.0f s", seconds)
        self._began = None


class Range(Protocol):
    """Records that a job can read."""

    def blocks(self, start: int, end: int, clock: int, trusted: int = LATEST) -> Iterator[Block]:
        """Yield the records of a range, none with an append time before ``clock``, ms.

        Records that were appended after ``trusted``, ms, are among the blocks' ``corrupt``.
        """


class Ranges(Protocol):
    """Named ranges that a job reads; crosses Beam pickled."""

    def partition(self, name: str) -> Range:
        """Return the range of a name that a work item has."""


class Partition(Range, Protocol):
    """Records in one order, with the connection to read them."""

    @property
    def name(self) -> str:
        """The name of the partition, for ever; partitions of a topic created again have others."""

    def bounds(self, taken: int = 0, limit: int = LATEST, rough: bool = False) -> tuple[int, int]:
        """Return the position of the first record, and the position after the last one.

        The end is looked for from ``taken`` on, the position up to which records were taken. If
        ``rough``, the end may lie behind the last record, and nothing is read to find it. An
        earlier rough end, given as ``limit``, returns the exact end as of that time: records that
        were added later are left out.
        """

    def poll(self, start: int, stop: int, clock: int, trusted: int = LATEST) -> Block | None:
        """Return records from ``start`` on, as many as one request gives; None if there are none.

        Records from ``stop`` on are left out; ``clock`` and ``trusted`` are as for :meth:`blocks`.
        """

    def header(self, position: int) -> bytes | None:
        """Return bytes that identify the record at a position; None if it does not exist."""

    def close(self) -> None:
        """Close the connection."""


class ReportSource(Protocol):
    """Partitions, of which more may be created; crosses Beam pickled."""

    @property
    def label(self) -> str:
        """The source's name in a job graph."""

    @property
    def requeued(self) -> bool:
        """Whether the records are requeued: they have the append time of when they first came."""

    def names(self) -> Sequence[str]:
        """Return the names of the partitions that exist now."""

    def partition(self, name: str) -> Partition:
        """Return a partition, to be read by one thread at a time."""


class BoundedSource(ReportSource, Protocol):
    """A source that an aggregation run takes up to its present ends."""

    @property
    def unit(self) -> str:
        """The unit of positions: ``bytes`` or ``messages``."""

    def open(self, registry: Registry | None) -> None:
        """Check that the source exists and can be used for reports of these plans.

        Raises MissingError if it does not exist, or if ``registry`` is None and it cannot be
        checked without plans; AggregationError or BrokerError, which say what to do, if it cannot
        be used.
        """

    def partitions(self, taken: Mapping[str, int]) -> Sequence[Partition]:
        """Return all partitions, frozen; ``taken`` says up to where some have been read."""

    def check(self, ends: Mapping[str, int], last: Mapping[str, LastRecord]) -> None:
        """Check that the source can be the one whose partitions were read up to ``ends``.

        ``last``: the last record that was taken of each partition. Raises AggregationError, which
        says what is missing or different, if the source cannot be that one.
        """

    def make_durable(self, intent: Intent) -> None:
        """Ensure that the records of an intent survive a crash."""

    def close(self) -> None:
        """Close connections; they are opened again when needed."""
