"""The output of a job of an aggregation run: partial results that add up.

Every bundle of a job reports the files that it wrote, and what it counted, as one
:class:`JobOutput`. The sum of these is all that a job returns to its driver.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipelines.aggregation.audit import Totals
from pipelines.aggregation.step import Tally


class StoredFile(NamedTuple):
    """A file of a state: the generation that wrote it, and its bytes."""

    generation: int
    size: int


class StoredState(NamedTuple):
    """The files that keep a part of a budget period's state."""

    totals: Totals  #: the audit of the state
    snapshot: StoredFile | None  #: None if all rows are in the logs
    logs: tuple[StoredFile, ...] = ()  #: rows taken since the snapshot, oldest first

    @property
    def size(self) -> int:
        return sum(file.size for file in (*filter(None, [self.snapshot]), *self.logs))

    def to_list(self) -> list[Any]:
        """Return this as JSON has it."""
        return [self.snapshot, self.logs, *self.totals.numbers]

    @classmethod
    def of(
        cls, snapshot: Sequence[int] | None, logs: Iterable[Sequence[int]], *totals: int
    ) -> StoredState:
        """Return what :meth:`to_list` made JSON of."""
        files = tuple(StoredFile(*each) for each in logs)
        return cls(Totals(*totals), None if snapshot is None else StoredFile(*snapshot), files)


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The output of a job, or of a part of one."""

    #: (period, part) to the files that keep the state written for it.
    states: Mapping[tuple[int, int], StoredState] = field(default_factory=dict)
    pages: frozenset[int] = frozenset()  #: the pages of counts written
    #: Reason to the number of reports in the generation's quarantine file. There is no file if this
    #: is empty.
    rejects: Mapping[str, int] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)  #: the outcomes of the reports read
    #: Folder and name at which a file is to count, to its name in the attempt's folder. If a part
    #: of a job ran twice, either file can be used: both are whole and have the same content.
    files: Mapping[str, str] = field(default_factory=dict)
    #: Generations whose quarantine file was written again.
    rewritten: frozenset[int] = frozenset()
    #: Why a part of the job failed in a way that a retry cannot mend; empty if none did.
    failed: str = ""

    def to_json(self) -> bytes:
        value = {
            "states": [[*key, *state.to_list()] for key, state in sorted(self.states.items())],
            "pages": sorted(self.pages),
            "rejects": dict(self.rejects),
            "tally": self.tally,
            "files": dict(self.files),
            "failed": self.failed,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> JobOutput:
        value = json.loads(content)
        return cls(
            states={(at, part): StoredState.of(*rest) for at, part, *rest in value["states"]},
            pages=frozenset(value["pages"]),
            rejects=value["rejects"],
            tally=Tally(*value["tally"]),
            files=value["files"],
            failed=value["failed"],
        )

    @staticmethod
    def sum(parts: Iterable[JobOutput]) -> JobOutput:
        """Return the output of several parts of a job together; no two of them write one state.

        >>> part = JobOutput(rejects={"late": 2}, tally=Tally(reports=5))
        >>> whole = JobOutput.sum([part, part])
        >>> whole.rejects, whole.tally.reports
        ({'late': 4}, 10)
        """
        states: dict[tuple[int, int], StoredState] = {}
        pages: set[int] = set()
        rejects: Counter[str] = Counter()
        tally, failed = Tally(), ""
        files: dict[str, str] = {}
        rewritten: set[int] = set()
        for part in parts:
            states.update(part.states)
            pages |= part.pages
            rejects.update(part.rejects)
            tally = tally.plus(part.tally)
            files.update(part.files)
            rewritten |= part.rewritten
            failed = max(failed, part.failed)
        ordered = dict(sorted(rejects.items()))
        return JobOutput(
            states, frozenset(pages), ordered, tally, files, frozenset(rewritten), failed
        )
