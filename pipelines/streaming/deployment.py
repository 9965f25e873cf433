"""What a streaming job is told when it is deployed, the same for all its keepers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pipelines.estimates import Candidates
from pipelines.manifest import Terms
from sotto.errors import ParameterError
from sotto.registry import Registry
from sotto.topics import ReportTopic


class Lane(NamedTuple):
    """A partition of a topic that the job reads, in order."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, eq=False)
class Deployment:
    """What all keepers of a job know.

    Parameters
    ----------
    job : str
        Random name of the deployment: documents carry it.
    registry : Registry
        The plans. A job that is restored must be given all that it had, and may be given more.
    topics : tuple of ReportTopic
        The topics of reports; several are epochs of one name, the newest last. A shard's time
        passes as in the slowest of them: an old epoch is left out once it is drained.
    requeue : str or None
        The topic of what is given back, of which timestamps are the original append times.
    requeue_partitions : int
        Of that topic.
    candidates : mapping
        The strings to look for, by fingerprint and metric.
    slots : int
        Over so many keys windows are spread; never changed for a job that has state.
    rows : int
        So many waiting rows are taken at once.
    linger : int
        No longer do rows wait, ms.
    quiet : int
        After a restore a lane that gives nothing for so long is read to its end, ms.
    every : int
        A window, a period or the job's health is told of at most so often, ms.
    documents : int
        A tick makes at most so many documents a slot; the others wait for the next.
    cache : int
        Bytes of live states that an operator holds; they can always be made again.
    """

    job: str
    registry: Registry
    topics: tuple[ReportTopic, ...]
    requeue: str | None = None
    requeue_partitions: int = 1
    candidates: Candidates = field(default_factory=dict)
    slots: int = 32
    rows: int = 2_000
    linger: int = 1_000
    quiet: int = 5_000
    every: int = 30_000
    documents: int = 8
    cache: int = 1 << 30

    def __post_init__(self) -> None:
        if not self.topics or len({topic.name for topic in self.topics}) != 1:
            raise ParameterError("topics must be at least one, and epochs of one name")
        for name in (
            "requeue_partitions",
            "slots",
            "rows",
            "linger",
            "quiet",
            "every",
            "documents",
        ):
            if not getattr(self, name) >= 1:
                raise ParameterError(f"{name} {getattr(self, name)} must be at least 1")

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """All partitions that are read; each of them must be ticked."""
        of_reports = [Lane(str(t), number) for t in self.topics for number in range(t.partitions)]
        given_back = range(self.requeue_partitions if self.requeue else 0)
        return (*of_reports, *(Lane(str(self.requeue), number) for number in given_back))

    @cached_property
    def terms(self) -> Terms:
        """What the plans say about time."""
        return Terms.of(self.registry)

    def lanes_of(self, shard: int) -> tuple[Lane, ...]:
        """Return the lanes that messages of a shard belong in, one an epoch."""
        return tuple(Lane(str(topic), topic.partition(shard)) for topic in self.topics)

    def shards_of(self, lane: Lane) -> tuple[int, ...]:
        """Return the shards whose messages belong in a lane; of what is given back all."""
        everything = range(self.registry.shards)
        if lane.topic == self.requeue:
            return tuple(everything)
        (topic,) = (topic for topic in self.topics if str(topic) == lane.topic)
        return tuple(s for s in everything if topic.partition(s) == lane.partition)

    def slots_of(self, lane: Lane) -> range:
        """Return the slots that a lane ticks: each is ticked by one lane of the last topic."""
        topic = self.topics[-1]
        if lane.topic != str(topic):
            return range(0)
        return range(lane.partition, self.slots, topic.partitions)

    def slot_of(self, window: bytes) -> int:
        """Return the slot of a window's 42 bytes; the same in every process."""
        return zlib.crc32(window) % self.slots
