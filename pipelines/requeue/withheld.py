"""What quarantine files hold of messages that can be cured, and their way back into a job.

A message is taken again from the file in which it was committed, with the append time by which it
was judged first. No record of a log is made of it: the clock of no lane moves, and nobody but who
may write the state directory can say when a report arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.sinks.quarantine import plan_of
from pipelines.storage import files, quarantine
from pipelines.storage.directory import StateDirectory, StateFiles
from pipelines.storage.intent import Requeue, WorkItem
from pipelines.storage.manifest import Manifest
from sotto.errors import DrainError
from sotto.log.reader import BLOCK_BYTES, EARLIEST, Block
from sotto.wire.columns import Reject
from sotto.wire.reasons import Reason

#: Decoding looks at the first bytes of a message even if it has none.
_PADDING = bytes(8)


def waiting(
    directory: StateDirectory, manifest: Manifest, reasons: Collection[Reason]
) -> Iterator[Requeue]:
    """Yield what is in quarantine for some reasons and has not been taken again, oldest first.

    Parameters
    ----------
    directory : StateDirectory
    manifest : Manifest
    reasons : collection of Reason

    Raises
    ------
    DrainError
        A file is missing.
    FormatError
        A file is damaged.
    """
    labels = {reason.label for reason in reasons}
    for entry in manifest.quarantine:
        if not labels & entry.rows.keys():
            continue
        marks = {(reason, plan) for reason, plan, _ in entry.requeued}
        found: Counter[tuple[str, str]] = Counter()
        for reject in _rejects(directory.files, entry.generation):
            plan = _plan(reject)
            if reject.reason.label in labels and plan is not None:
                found[reject.reason.label, plan] += max(reject.rows, 1)
        for (reason, plan), rows in sorted(found.items()):
            if (reason, plan) not in marks:
                yield Requeue(entry.generation, reason, plan, rows)


def _plan(reject: Reject) -> str | None:
    """Return the plan that a rejected message names, if it names one."""
    plan = plan_of(reject.message)
    return None if plan is None else plan.hex()


def _rejects(state: StateFiles, generation: int) -> Iterator[Reject]:
    try:
        content = files.load(state.quarantine(generation), quarantine.KIND)
    except FileNotFoundError as error:
        raise DrainError(
            f"the quarantine of generation {generation} is gone: a drain has removed it meanwhile, "
            "as its retention is over; try again"
        ) from error
    return quarantine.unpack(content)


@dataclass(frozen=True)
class Withheld:
    """What a requeue takes, as a job reads it: every quarantine file is a range.

    Parameters
    ----------
    files : StateFiles
        Where the state has them.
    requeue : tuple of Requeue
    """

    files: StateFiles
    requeue: tuple[Requeue, ...]

    @property
    def items(self) -> tuple[WorkItem, ...]:
        """The files."""
        generations = sorted({each.generation for each in self.requeue})
        return tuple(WorkItem(str(generation), 0, 1, EARLIEST) for generation in generations)

    def partition(self, name: str) -> _File:
        """Return the file of a work item."""
        generation = int(name)
        chosen = {(r.reason, r.plan) for r in self.requeue if r.generation == generation}
        return _File(self.files, generation, chosen)


class _File:
    """A quarantine file of which some messages are taken."""

    def __init__(self, state: StateFiles, generation: int, chosen: set[tuple[str, str]]) -> None:
        self._files = state
        self._generation = generation
        self._chosen = chosen

    def blocks(self, start: int, end: int, clock: int) -> Iterator[Block]:
        """Yield the messages, each with the append time by which it was judged."""
        held: list[Reject] = []
        size = 0
        for reject in _rejects(self._files, self._generation):
            if (reject.reason.label, _plan(reject)) not in self._chosen:
                continue
            held.append(reject)
            size += len(reject.message)
            if size >= BLOCK_BYTES:
                yield _block(held)
                held, size = [], 0
        if held:
            yield _block(held)


def _block(rejects: list[Reject]) -> Block:
    lengths = np.array([len(reject.message) for reject in rejects], dtype=np.int64)
    append = np.array([reject.append for reject in rejects], dtype=np.int64)
    buffer = b"".join(reject.message for reject in rejects) + _PADDING
    return Block(
        position=0,
        buffer=buffer,
        offsets=np.cumsum(lengths) - lengths,
        lengths=lengths,
        append=append,
        corrupt=(),
        end=1,
        clock=int(append[-1]),
    )
