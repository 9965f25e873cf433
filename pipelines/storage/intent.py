"""What a commit takes: ranges of the log, or messages of quarantine.

The intent is made durable before a job begins, so that a restart after a crash takes exactly the
same again, however far the log has grown since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipelines.storage.files import dump_document, load_document

FORMAT = 3


class WorkItem(NamedTuple):
    """A range of one lane: what one read takes.

    Attributes
    ----------
    lane : str
    start, end : int
        Positions between records.
    floor : int
        The lane's clock at ``start``, ms: no append time in the range counts as earlier.
    """

    lane: str
    start: int
    end: int
    floor: int


class Mark(NamedTuple):
    """A record by which a lane is known again: its position and its frame header."""

    position: int
    header: bytes


class Requeue(NamedTuple):
    """What is taken again from one quarantine file.

    Attributes
    ----------
    generation : int
        The one that rejected it.
    reason : str
        For which, as people read it.
    plan : str
        Fingerprint, in hexadecimal, of the plan that the messages name.
    rows : int
        Reports in them, as quarantine counts them.
    """

    generation: int
    reason: str
    plan: str
    rows: int


@dataclass(frozen=True, slots=True)
class Intent:
    """The ranges of the log that one generation takes, or what it takes from quarantine.

    Parameters
    ----------
    generation : int
        The one that the run will commit.
    clock : int or None
        The latest append time, ms, in the ranges; None if no record has ever been taken.
    items : tuple of WorkItem
        Those of a lane are contiguous and in order.
    marks : mapping
        Lane to the last record taken of it; none for a lane of which only damage is.
    requeue : tuple of Requeue
        If there is any, no ranges are taken, and the clock stays what it is.
    reports : int
        At most so many are taken, but for a single message that has more; it decides into how many
        parts (:mod:`pipelines.aggregation.decode`) periods are cut of which reports come for the
        first time.
    """

    generation: int
    clock: int | None
    items: tuple[WorkItem, ...]
    marks: Mapping[str, Mark] = field(default_factory=dict)
    requeue: tuple[Requeue, ...] = ()
    reports: int = 0

    @property
    def size(self) -> int:
        """The bytes that the ranges span."""
        return sum(item.end - item.start for item in self.items)

    @property
    def ends(self) -> dict[str, int]:
        """Where the ranges leave each lane."""
        return {item.lane: item.end for item in self.items}

    def to_json(self) -> bytes:
        """Return the intent as it is stored."""
        value: dict[str, object] = {
            "format": FORMAT,
            "generation": self.generation,
            "clock": self.clock,
            "items": [list(item) for item in self.items],
            "marks": dump_marks(self.marks),
            "reports": self.reports,
        }
        if self.requeue:
            value["requeue"] = self.requeue
        return dump_document(value)

    @classmethod
    def from_json(cls, content: bytes) -> Intent:
        """Return the stored intent.

        Raises
        ------
        AggregationError
            It is not one, or of an unknown format.

        Examples
        --------
        >>> intent = Intent(1, 5, (WorkItem("a", 0, 42, 5),))
        >>> Intent.from_json(intent.to_json()) == intent
        True
        """
        value = load_document(content, "intent.json", FORMAT)
        items = tuple(WorkItem(*item) for item in value["items"])
        requeue = tuple(Requeue(*each) for each in value.get("requeue", ()))
        marks, reports = load_marks(value["marks"]), value["reports"]
        return cls(value["generation"], value["clock"], items, marks, requeue, reports)


def dump_marks(marks: Mapping[str, Mark]) -> dict[str, tuple[int, str]]:
    """Return marks as JSON has them."""
    return {lane: (mark.position, mark.header.hex()) for lane, mark in marks.items()}


def load_marks(value: Mapping[str, tuple[int, str]]) -> dict[str, Mark]:
    """Return the marks that :func:`dump_marks` made JSON of."""
    return {lane: Mark(at, bytes.fromhex(header)) for lane, (at, header) in value.items()}
