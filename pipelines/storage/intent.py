"""The input of a commit: ranges of the log, messages of quarantine, or pseudonyms to forget.

The intent is made durable before a job begins, so that a restart after a crash takes exactly the
same again, however far the log has grown since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipelines.storage.files import dump_document, load_document

FORMAT = 3


class WorkItem(NamedTuple):
    """A range of one partition: what one read takes."""

    partition: str
    #: Positions between records.
    start: int
    end: int
    #: The partition's clock at ``start``, ms: no append time in the range counts as earlier.
    floor: int


class LastRecord(NamedTuple):
    """The last record taken of a partition, by which that is known again: position and header."""

    position: int
    header: bytes


class Requeue(NamedTuple):
    """Entries that are taken again from one quarantine file."""

    generation: int  #: the one that rejected it
    reason: str  #: for which, as people read it
    plan: str  #: fingerprint, in hexadecimal, of the plan that the messages name
    rows: int  #: reports in them, as quarantine counts them


@dataclass(frozen=True, slots=True)
class Intent:
    """The ranges of the log that one generation takes, or what it takes from quarantine."""

    generation: int  #: the one that the run will commit
    #: The latest append time, ms, in the ranges; None if no record has ever been taken.
    clock: int | None
    items: tuple[WorkItem, ...]  #: those of a partition are contiguous and in order
    #: Partition to the last record taken of it; none for one of which only damage is.
    last: Mapping[str, LastRecord] = field(default_factory=dict)
    #: If there is any, no ranges are taken, and the clock stays what it is.
    requeue: tuple[Requeue, ...] = ()
    #: Pseudonyms, in hexadecimal, that are forgotten; if there are any, nothing is taken.
    forget: tuple[str, ...] = ()
    #: The last budget period of which these may be; None where none are forgotten.
    last_period: int | None = None
    #: A number that is not less than the reports taken of any one budget period, by append time: a
    #: run's most, all of a requeue, and all of a run of release 0.4.0. It decides into how many
    #: parts (:mod:`pipelines.aggregation.decode`) periods are cut of which reports come for the
    #: first time.
    reports: int = 0
    #: The time, ms, up to which the log is known then: ``clock``, or where nothing is left of the
    #: log, when the run began. Windows are complete by it. Release 0.4.0 wrote none.
    time: int | None = None
    #: Records appended after that, ms, are from the future; None where the ranges have none.
    trusted: int | None = None

    @property
    def kind(self) -> Literal["run", "requeue", "forget"]:
        """The command that began it."""
        return "requeue" if self.requeue else "forget" if self.forget else "run"

    @property
    def size(self) -> int:
        return sum(item.end - item.start for item in self.items)

    @property
    def ends(self) -> dict[str, int]:
        """Positions at which the ranges leave each partition."""
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
