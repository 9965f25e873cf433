"""The quarantine files of a state directory: what waits in them, and how a job takes it again.

A message is requeued from the file in which it was committed, with the append time by which it was
judged first. It does not become a record of a log: so no partition's clock moves, and only those
who may write the state directory can say when a report arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.aggregation import quarantine
from pipelines.sinks.quarantine import is_curable, plan_of
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory, StateFiles
from pipelines.storage.intent import Requeue, WorkItem
from pipelines.storage.manifest import Manifest, Quarantined
from sotto.errors import AggregationError
from sotto.log.reader import BLOCK_BYTES, EARLIEST, LATEST, Block, Corrupt
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason

#: Padding, since decoding looks at the first bytes of a message even if it has none.
_PADDING = bytes(8)


def waiting(
    directory: StateDirectory, manifest: Manifest, reasons: Collection[Reason], now: int
) -> Iterator[Requeue]:
    """Yield entries that are in quarantine for some reasons and were not requeued, oldest first.

    ``now``: the time, ms. Records that are still from the future then are not counted; entries that
    have no others are left out.
    """
    labels = {reason.label for reason in reasons}
    for entry in manifest.quarantine:
        if not labels & entry.rows.keys():
            continue
        found: Counter[tuple[str, str]] = Counter()
        for reject, plan in _rejects(directory.files, entry):
            if plan and is_curable(reject, reasons, now):
                found[reject.reason.label, plan] += max(reject.rows, 1)
        taken = {(reason, plan) for reason, plan, _ in entry.requeued}
        for (reason, plan), rows in sorted(found.items()):
            if (reason, plan) not in taken:
                yield Requeue(entry.generation, reason, plan, rows)


def held(directory: StateDirectory, manifest: Manifest) -> Iterator[tuple[str, Reject, bool]]:
    """Yield every reject in quarantine, oldest first, with its place and whether it was requeued.

    The place is the generation that rejected it and the number in its file, such as ``7.0``.
    """
    for entry in manifest.quarantine:
        taken = {(reason, plan) for reason, plan, _ in entry.requeued}
        for number, (reject, plan) in enumerate(_rejects(directory.files, entry)):
            again = is_curable(reject, [reject.reason], LATEST)
            done = again and (reject.reason.label, plan) in taken
            yield f"{entry.generation}.{number}", reject, done


def _rejects(state: StateFiles, entry: Quarantined) -> Iterator[tuple[Reject, str]]:
    """Yield the messages in a file, each with its plan's fingerprint; empty if it names no plan."""
    try:
        content = files.load(state.quarantine(entry), quarantine.KIND)
    except FileNotFoundError as error:
        raise AggregationError(
            f"the quarantine of generation {entry.generation} is gone: a run has removed it "
            "meanwhile, as its retention is over; try again"
        ) from error
    for reject in quarantine.unpack(content):
        yield reject, (plan_of(reject.message) or b"").hex()


@dataclass(frozen=True)
class QuarantineFiles:
    """The source of a requeue: a job reads every quarantine file as one range of a partition."""

    files: StateFiles  #: the files of the state directory
    requeue: tuple[Requeue, ...]  #: the entries to take
    kept: tuple[Quarantined, ...]  #: the quarantine files of the manifest

    @property
    def items(self) -> tuple[WorkItem, ...]:
        generations = sorted({each.generation for each in self.requeue})
        return tuple(WorkItem(str(generation), 0, 1, EARLIEST) for generation in generations)

    def partition(self, name: str) -> _File:
        generation = int(name)
        chosen = {(r.reason, r.plan) for r in self.requeue if r.generation == generation}
        (entry,) = (each for each in self.kept if each.generation == generation)
        return _File(self.files, entry, chosen)


@dataclass(frozen=True)
class _File:
    """A quarantine file of which some messages are requeued."""

    files: StateFiles
    entry: Quarantined
    chosen: Collection[tuple[str, str]]

    def blocks(self, start: int, end: int, clock: int, trusted: int = LATEST) -> Iterator[Block]:
        """Yield the messages, each with the append time by which it was judged."""
        held: list[Reject] = []
        size = 0
        for reject, plan in _rejects(self.files, self.entry):
            chosen = (reject.reason.label, plan) in self.chosen
            if not chosen or not is_curable(reject, [reject.reason], LATEST):
                continue
            held.append(reject)
            size += len(reject.message)
            if size >= BLOCK_BYTES:
                yield _block(held, trusted)
                held, size = [], 0
        if held:
            yield _block(held, trusted)


def _block(held: list[Reject], trusted: int) -> Block:
    """Return messages as a block; those from after ``trusted``, ms, are again from the future."""
    rejects = [each for each in held if is_curable(each, [each.reason], trusted)]
    ahead = [each for each in held if not is_curable(each, [each.reason], trusted)]
    lengths = np.array([len(reject.message) for reject in rejects], dtype=np.int64)
    append = np.array([reject.append for reject in rejects], dtype=np.int64)
    return Block(
        position=0,
        buffer=b"".join(reject.message for reject in rejects) + _PADDING,
        offsets=np.cumsum(lengths) - lengths,
        lengths=lengths,
        append=append,
        corrupt=tuple(Corrupt(0, each.append, each.message, True) for each in ahead),
        end=1,
        clock=EARLIEST,
    )
