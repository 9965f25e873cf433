"""The states of a state directory, each kept as a snapshot and logs of the rows taken since.

A state is a function of the set of rows seen, so stepping the rows of its logs after its snapshot
restores it. A run writes the rows that it took as one log. The new log takes over those before it
that are less than twice as large, as a binary counter carries: so a state has few logs, and a row
is written again only each time sizes double. Once the logs together are a quarter as large as the
snapshot, a new snapshot replaces all of them. So the bytes written are in proportion to the bytes
that came.

A pseudonym that was revoked stays revoked, even if a later plan raises the budget: a log keeps the
budget under which its rows were taken, and they are stepped again under that one.

Log, little-endian: i64 budget, u32 number of plans, u32 number of blocks; the plans' fingerprints;
the blocks' lengths, u64; the blocks (:mod:`pipelines.aggregation.rows`).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.audit import totals
from pipelines.aggregation.forgotten import forget
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import Stepped, in_order, joined, step, step_rows
from pipelines.storage import files
from pipelines.storage.directory import StateFiles
from pipelines.storage.files import Buffer
from pipelines.storage.output import StoredFile, StoredState
from sotto.errors import FormatError, PlanError
from sotto.plan.registry import Registry

KIND = b"rowlog"
#: Logs of fewer bytes in all are never folded into a snapshot.
SHORT = 1 << 16
#: Longer logs are, once they have more than one of so many parts of the snapshot's bytes.
PART = 4

_HEAD = struct.Struct("<qII")
_FINGERPRINT = 32
_LENGTH = struct.Struct("<Q")


class Taken(NamedTuple):
    """The result of a step of a stored state, and the new file that is to be written."""

    stepped: Stepped
    stored: StoredState  #: the files that keep the state from then on
    target: str  #: folder and name of the new file
    content: Sequence[Buffer]  #: the content of the new file


@dataclass(frozen=True)
class StoredStates:
    """The states of a state directory."""

    files: StateFiles  #: the files of the state directory
    registry: Registry
    key: bytes  #: key of the hashes inside new states

    def read(self, period: int, part: int, stored: StoredState | None) -> State:
        """Return a state; a new one if nothing is stored."""
        return self._read(period, part, stored)[0]

    def step(
        self, period: int, part: int, stored: StoredState | None, parts: Iterable[Rows], made: int
    ) -> Taken:
        """Take rows, in any order, into a state, for the generation ``made``."""
        state, logs = self._read(period, part, stored)
        rows = tuple(joined(in_order(parts)))
        stepped = step_rows(state, rows)
        audited = totals(stepped.state)
        snapshot, kept = (None, []) if stored is None else (stored.snapshot, [*stored.logs])
        name = f"{period}.{part}.{made}"
        logged = sum(log.size for log in kept) + sum(part.packed_bytes for part in rows)
        if logged > max(SHORT, 0 if snapshot is None else snapshot.size // PART):
            content = stepped.state.to_bytes()
            stored = StoredState(audited, StoredFile(made, len(content)))
            return Taken(stepped, stored, f"states/{name}", [content])
        content = _Log(self.registry.budget, rows).to_bytes(self.registry)
        while kept and kept[-1].size < 2 * len(content) and logs[-1].budget == self.registry.budget:
            rows = logs.pop().rows + rows
            kept.pop()
            content = _Log(self.registry.budget, rows).to_bytes(self.registry)
        stored = StoredState(audited, snapshot, (*kept, StoredFile(made, len(content))))
        return Taken(stepped, stored, f"logs/{name}", files.with_checksum(KIND, content))

    def forget(
        self,
        period: int,
        part: int,
        stored: StoredState,
        pseudonyms: Collection[bytes],
        made: int,
        append: int,
    ) -> Taken | None:
        """Take pseudonyms out of a state, for the generation ``made``; None if it has none of them.

        A snapshot replaces all files of the state, so that no log of rows has them any more.
        """
        stepped = forget(self.read(period, part, stored), pseudonyms, append)
        if stepped is None:
            return None
        content = stepped.state.to_bytes()
        kept = StoredState(totals(stepped.state), StoredFile(made, len(content)))
        return Taken(stepped, kept, f"states/{period}.{part}.{made}", [content])

    def _read(self, period: int, part: int, stored: StoredState | None) -> tuple[State, list[_Log]]:
        if stored is None or stored.snapshot is None:
            state = State(self.registry, part, period, self.key)
        else:
            state = self._snapshot(period, part, stored.snapshot)
        logs = [] if stored is None else [self._log(period, part, log) for log in stored.logs]
        for budget, alike in itertools.groupby(logs, lambda log: log.budget):
            state.budget = budget
            for rows in joined(rows for log in alike for rows in log.rows):
                step(state, rows, counted=True)
        state.budget = self.registry.budget
        return state, logs

    def _snapshot(self, period: int, part: int, stored: StoredFile) -> State:
        path = self.files.snapshot(period, part, stored.generation)
        with files.committed(path):
            content = path.read_bytes()
            _check_size(content, stored)
            state = State.from_bytes(content, self.registry)
            _check_place(state, period, part)
        return state

    def _log(self, period: int, part: int, stored: StoredFile) -> _Log:
        path = self.files.log(period, part, stored.generation)
        with files.committed(path):
            content = files.load(path, KIND)
            _check_size(content, stored)
            log = _Log.from_bytes(content, self.registry)
            for rows in log.rows:
                _check_place(rows, period, part)
        return log


@dataclass(frozen=True, eq=False)
class _Log:
    """Rows, and the budget under which they were taken."""

    budget: int
    rows: tuple[Rows, ...]

    def to_bytes(self, registry: Registry) -> bytes:
        """Return the log as bytes: equal rows in equal order give equal bytes."""
        blocks = [rows.to_bytes() for rows in joined(self.rows)]
        parts = [_HEAD.pack(self.budget, len(registry.plans), len(blocks))]
        parts += [plan.fingerprint for plan in registry.plans]
        parts += [_LENGTH.pack(len(block)) for block in blocks]
        return b"".join([*parts, *blocks])

    @classmethod
    def from_bytes(cls, data: memoryview, registry: Registry) -> _Log:
        budget, plans, blocks = _HEAD.unpack_from(data)
        at = _HEAD.size + _FINGERPRINT * plans
        ids = registry_ids(fingerprints_of(bytes(data[_HEAD.size : at])), registry)
        lengths = [_LENGTH.unpack_from(data, at + 8 * number)[0] for number in range(blocks)]
        at += _LENGTH.size * blocks
        rows = []
        for length in lengths:
            rows.append(Rows.from_bytes(bytes(data[at : at + length])).renumbered(ids))
            at += length
        return cls(budget, tuple(rows))


def fingerprints_of(numbering: bytes) -> tuple[bytes, ...]:
    """Return the fingerprints of which a numbering is joined, in order."""
    cuts = range(0, len(numbering), _FINGERPRINT)
    return tuple(numbering[at : at + _FINGERPRINT] for at in cuts)


@lru_cache(maxsize=64)
def registry_ids(fingerprints: tuple[bytes, ...], registry: Registry) -> NDArray[np.uint16]:
    """Return the ids that a registry gives to the metrics of plans, in the plans' order."""
    first = {each.fingerprint: each.id for each in reversed(registry.metrics)}
    ids: list[int] = []
    for fingerprint in fingerprints:
        plan = registry.by_fingerprint.get(fingerprint)
        if plan is None:
            raise PlanError(
                f"a log of rows needs the plan with the fingerprint {fingerprint.hex()}, "
                "which the registry does not have"
            )
        ids += range(first[fingerprint], first[fingerprint] + len(plan.metrics))
    return np.array(ids, dtype=np.uint16)


def _check_size(content: bytes | memoryview, stored: StoredFile) -> None:
    """Raise FormatError if a file has another size than was written.

    A file that is sound may still be from another copy of the state directory.
    """
    if len(content) != stored.size:
        raise FormatError(f"it has {len(content)} bytes, and {stored.size} were written")


def _check_place(found: State | Rows, period: int, part: int) -> None:
    if (found.period, found.shard) != (period, part):
        raise FormatError(f"it is of shard {found.shard}, period {found.period}")
