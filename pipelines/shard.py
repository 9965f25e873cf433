"""One shard of one budget period in one drain: packed blocks into the state, by large steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pipelines.counts import Matrix, WindowKey
from pipelines.quarantine import rejected
from pipelines.rows import Rows
from pipelines.state import State
from pipelines.step import step
from pipelines.written import Tally
from sotto.decode import Reject

#: Rows given to one step: enough to be fast, few enough for their columns to stay in the cache.
STEP_ROWS = 50_000

_ONES = np.array([mask.bit_count() for mask in range(256)], dtype=np.uint8)


class Stepped(NamedTuple):
    """What rows have changed.

    Attributes
    ----------
    state : State
        The one given, changed.
    changes : dict of WindowKey to (rungs, length) int64
        To be added to the counts.
    rejects : list of Reject
    tally : Tally
        What became of the rows; ``reports`` is left at zero, since whoever read them counts them.
    """

    state: State
    changes: dict[WindowKey, Matrix]
    rejects: list[Reject]
    tally: Tally


def step_blocks(state: State, blocks: Iterable[bytes]) -> Stepped:
    """Take packed blocks of a state's shard and period into it.

    Parameters
    ----------
    state : State
        Changed in place; not to be used any more after an error.
    blocks : iterable of bytes
        Packed :class:`~pipelines.rows.Rows`.
    """
    before = _census(state)
    changes: dict[WindowKey, Matrix] = {}
    rejects: list[Reject] = []
    reports = countable = 0
    for rows in _joined(Rows.from_bytes(block) for block in blocks):
        reports += len(rows)
        countable += int(np.count_nonzero(rows.countable))
        state, deltas, refused = step(state, rows)
        for (metric, start, level), vector in deltas.items():
            _matrix(state, changes, metric, start)[level] += vector
        rejects += rejected(refused, state.registry)
    after = _census(state)
    counted = after.counted - before.counted
    tally = Tally(
        counted=counted,
        superseded=after.countable - before.countable - counted - len(rejects),
        duplicates=countable - (after.countable - before.countable),
        revoked=after.revoked - before.revoked,
    )
    return Stepped(state, changes, rejects, tally)


def _joined(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Yield rows in pieces of at most ``STEP_ROWS``, each as large as may be."""
    held: list[Rows] = []
    number = 0
    for part in parts:
        for at in range(0, len(part), STEP_ROWS):
            piece = part.select(slice(at, at + STEP_ROWS)) if len(part) > STEP_ROWS else part
            if number + len(piece) > STEP_ROWS:
                yield Rows.concat(held)
                held, number = [], 0
            held.append(piece)
            number += len(piece)
    if held:
        yield Rows.concat(held)


def _matrix(state: State, changes: dict[WindowKey, Matrix], metric: int, start: int) -> Matrix:
    """Return the changes of a window, zero before its first."""
    fingerprint, index = state.catalog.identities[metric]
    key = WindowKey(fingerprint, index, start)
    if key not in changes:
        mechanism = state.catalog.mechanisms[metric]
        changes[key] = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
    return changes[key]


class _Census(NamedTuple):
    """Different countable reports seen, those that count, revoked pseudonyms."""

    countable: int
    counted: int
    revoked: int


def _census(state: State) -> _Census:
    entries, conflicts = state.entries, state.conflicts
    return _Census(
        countable=int(_ONES[entries["countable"]].sum(dtype=np.int64))
        + int(np.count_nonzero(conflicts["countable"])),
        counted=int(np.count_nonzero(entries["counted"])),
        revoked=int(np.count_nonzero(state.pseudonyms["reason"])),
    )
