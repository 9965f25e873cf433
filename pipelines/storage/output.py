"""What a job has written and counted: partial results that add up.

Every bundle of a job reports what it did as one of these; their sum is all that comes back from
a job to its driver.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from pipelines.aggregation.audit import Totals
from pipelines.aggregation.step import Tally

#: The numbers of an audit, in the order of its fields.
numbers_of = attrgetter(*Totals.__dataclass_fields__)


class Piece(NamedTuple):
    """A file of a state: the generation that wrote it, and its bytes."""

    generation: int
    size: int


class Held(NamedTuple):
    """What a part of a budget period's state is kept in.

    Attributes
    ----------
    totals : Totals
        Its audit.
    snapshot : Piece or None
        None where all is in the logs.
    logs : tuple of Piece
        Rows taken since the snapshot, oldest first.
    """

    totals: Totals
    snapshot: Piece | None
    logs: tuple[Piece, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(piece.size for piece in (*filter(None, [self.snapshot]), *self.logs))

    def to_list(self) -> list[Any]:
        """Return this as JSON has it."""
        return [self.snapshot, self.logs, *numbers_of(self.totals)]

    @classmethod
    def of(cls, snapshot: Sequence[int] | None, logs: Iterable[Sequence[int]], *t: int) -> Held:
        """Return what :meth:`to_list` made JSON of."""
        pieces = tuple(Piece(*each) for each in logs)
        return cls(Totals(*t), None if snapshot is None else Piece(*snapshot), pieces)


@dataclass(frozen=True, slots=True)
class Written:
    """What a job, or a part of one, has written.

    Parameters
    ----------
    states : mapping
        (period, part) to what the state written for it is kept in.
    pages : frozenset of int
        The pages of counts written.
    rejects : mapping
        Reason to entries in the generation's quarantine file; there is none where this is empty.
    tally : Tally
        What became of the reports read.
    files : mapping
        Folder and name at which a file is to count, to its name in the attempt's folder. Of a
        part of a job that ran twice, either file is whole and says the same.
    failed : str
        Why a part of the job could not do its work, if so, and never can.
    """

    states: Mapping[tuple[int, int], Held] = field(default_factory=dict)
    pages: frozenset[int] = frozenset()
    rejects: Mapping[str, int] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    files: Mapping[str, str] = field(default_factory=dict)
    failed: str = ""

    def to_json(self) -> bytes:
        """Return this as bytes: equal values, equal bytes."""
        value = {
            "states": [[*key, *held.to_list()] for key, held in sorted(self.states.items())],
            "pages": sorted(self.pages),
            "rejects": dict(self.rejects),
            "tally": self.tally,
            "files": dict(self.files),
            "failed": self.failed,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Written:
        """Return what :meth:`to_json` stored."""
        value = json.loads(content)
        return cls(
            states={(period, part): Held.of(*rest) for period, part, *rest in value["states"]},
            pages=frozenset(value["pages"]),
            rejects=value["rejects"],
            tally=Tally(*value["tally"]),
            files=value["files"],
            failed=value["failed"],
        )

    @staticmethod
    def sum(parts: Iterable[Written]) -> Written:
        """Return what several parts of a job have written; no state is written by two of them.

        Examples
        --------
        >>> part = Written(rejects={"late": 2}, tally=Tally(reports=5))
        >>> whole = Written.sum([part, part])
        >>> whole.rejects, whole.tally.reports
        ({'late': 4}, 10)
        """
        states: dict[tuple[int, int], Held] = {}
        pages: set[int] = set()
        rejects: Counter[str] = Counter()
        tally = Tally()
        found: dict[str, str] = {}
        failed: set[str] = set()
        for part in parts:
            found.update(part.files)
            failed.add(part.failed)
            states.update(part.states)
            pages |= part.pages
            rejects.update(part.rejects)
            tally = tally.plus(part.tally)
        return Written(
            states,
            frozenset(pages),
            dict(sorted(rejects.items())),
            tally,
            found,
            max(failed, default=""),
        )
