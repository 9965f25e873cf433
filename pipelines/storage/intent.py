"""The intent: the input that a commit takes.

It is made durable before a job begins, so that a restart after a crash takes exactly the same input
again, however far the log has grown since. The input is ranges of the log, messages of quarantine
(``sotto requeue``), or pseudonyms to forget (``sotto forget``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipelines.storage.files import dump_document, load_document

FORMAT = 3


class WorkItem(NamedTuple):
    """A range of one partition, which one read takes."""

    partition: str
    #: Positions before the first record and behind the last one.
    start: int
    end: int
    #: The partition's clock at ``start``, ms: no append time in the range counts as earlier.
    floor: int


class LastRecord(NamedTuple):
    """The last record taken of a partition: if it is still there, the partition is the same."""

    position: int
    header: bytes


class Requeue(NamedTuple):
    """Entries that are taken again from one quarantine file."""

    generation: int  #: the generation that rejected them, and wrote the file
    reason: str  #: label of the reason for which they were rejected
    plan: str  #: fingerprint, in hexadecimal, of the plan that the messages name
    rows: int  #: how many reports they have, as quarantine counts them


@dataclass(frozen=True, slots=True)
class Intent:
    """The input of one generation: ranges of the log, a requeue, or pseudonyms to forget."""

    generation: int  #: the generation that the run will commit
    #: The latest append time, ms, in the ranges; None if no record has ever been taken.
    clock: int | None
    items: tuple[WorkItem, ...]  #: those of a partition are contiguous and in order
    #: Partition to the last record taken of it; none if the ranges have only damage of it.
    last: Mapping[str, LastRecord] = field(default_factory=dict)
    #: The entries to requeue. If there are any, no ranges are taken, and the clock stays.
    requeue: tuple[Requeue, ...] = ()
    #: The pseudonyms to forget, in hexadecimal. If there are any, nothing is taken.
    forget: tuple[str, ...] = ()
    #: The last budget period in which these may have reports; None if none are forgotten.
    last_period: int | None = None
    #: At least as many as the reports taken of any one budget period, by append time: the most of
    #: one period in a run, all of a requeue, and all of a run of release 0.4.0. It decides into how
    #: many parts (:mod:`pipelines.aggregation.decode`) a period is cut when its first reports come.
    reports: int = 0
    #: The time, ms, up to which the log is known after the run: ``clock``, or, if the run takes all
    #: that the log has, when it began. Windows are complete by it. Release 0.4.0 wrote none.
    time: int | None = None
    #: Records appended after this time, ms, are from the future; None if the ranges have none.
    trusted: int | None = None

    @property
    def kind(self) -> Literal["run", "requeue", "forget"]:
        """The command that began the run."""
        return "requeue" if self.requeue else "forget" if self.forget else "run"

    @property
    def size(self) -> int:
        return sum(item.end - item.start for item in self.items)

    @property
    def ends(self) -> dict[str, int]:
        """The position behind the last range of each partition."""
        return {item.partition: item.end for item in self.items}

    def to_json(self) -> bytes:
        value: dict[str, object] = {
            "format": FORMAT,
            "generation": self.generation,
            "clock": self.clock,
            "items": [list(item) for item in self.items],
            "marks": dump_records(self.last),
            "reports": self.reports,
            "time": self.time,
        }
        if self.trusted is not None:
            value["trusted"] = self.trusted
        if self.requeue:
            value["requeue"] = self.requeue
        if self.forget:
            value["forget"] = self.forget
            value["last_period"] = self.last_period
        return dump_document(value)

    @classmethod
    def from_json(cls, content: bytes) -> Intent:
        """Return the stored intent.

        >>> intent = Intent(1, 5, (WorkItem("a", 0, 42, 5),))
        >>> Intent.from_json(intent.to_json()) == intent
        True
        """
        value = load_document(content, "intent.json", FORMAT)
        del value["format"]
        value["items"] = tuple(WorkItem(*item) for item in value["items"])
        value["last"] = load_records(value.pop("marks"))
        value["requeue"] = tuple(Requeue(*each) for each in value.get("requeue", ()))
        value["forget"] = tuple(value.get("forget", ()))
        return cls(**value)


def dump_records(records: Mapping[str, LastRecord]) -> dict[str, tuple[int, str]]:
    """Return records as JSON has them."""
    return {name: (last.position, last.header.hex()) for name, last in records.items()}


def load_records(value: Mapping[str, tuple[int, str]]) -> dict[str, LastRecord]:
    """Return the records that :func:`dump_records` made JSON of."""
    return {name: LastRecord(at, bytes.fromhex(header)) for name, (at, header) in value.items()}
