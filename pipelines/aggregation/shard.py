"""One shard of one budget period in one run: packed blocks into the state, by large steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pipelines.aggregation.audit import RUNGS
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.aggregation.rows import Rows, padded_width
from pipelines.aggregation.state import State
from pipelines.aggregation.step import step
from pipelines.storage.quarantine import rejected
from pipelines.storage.written import Tally
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason

#: Rows given to one step: enough to be fast, few enough for their columns to stay in the cache.
STEP_ROWS = 50_000
#: Bytes of payload, with padding, given to one step, but always at least one row.
STEP_BYTES = 1 << 24


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
    """Take packed blocks of a state's shard and period into it: see :func:`step_rows`.

    Parameters
    ----------
    state : State
    blocks : iterable of bytes
        Packed :class:`~pipelines.aggregation.rows.Rows`; in what order they come changes nothing.
    """
    return step_rows(state, in_order(blocks))


def step_rows(state: State, parts: Iterable[Rows]) -> Stepped:
    """Take rows of a state's shard and period into it.

    Parameters
    ----------
    state : State
        Changed in place; not to be used any more after an error.
    parts : iterable of Rows
    """
    before = _census(state)
    changes: dict[WindowKey, Matrix] = {}
    rejects: list[Reject] = []
    reports = countable = 0
    for rows in joined(parts):
        reports += len(rows)
        countable += int(np.count_nonzero(rows.countable))
        state, deltas, refused = step(state, rows)
        for (metric, start, level), vector in deltas.items():
            _matrix(state, changes, metric, start)[level] += vector
        for part in refused.parts:
            rejects += rejected(part, state.registry)
        if refused.superseded:
            append = int(rows.append.max())
            rejects.append(Reject(Reason.REVOKED, b"", append, refused.superseded))
    after = _census(state)
    counted = after.counted - before.counted
    tally = Tally(
        counted=counted,
        superseded=after.countable
        - before.countable
        - counted
        - sum(each.rows for each in rejects),
        duplicates=countable - (after.countable - before.countable),
        revoked=after.revoked - before.revoked,
    )
    return Stepped(state, changes, rejects, tally)


def in_order(blocks: Iterable[bytes]) -> list[Rows]:
    """Return packed blocks by append time: runners group them in orders of their own."""
    read = [(block, Rows.from_bytes(block)) for block in blocks]
    return [rows for _, rows in sorted(read, key=lambda each: (int(each[1].append[0]), each[0]))]


def joined(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Yield rows in pieces as large as may be: ``STEP_ROWS``, or ``STEP_BYTES`` of payload.

    Rows of one padded width come together, so that few wide payloads do not widen all others.
    """
    held: dict[int, list[Rows]] = {}
    numbers: Counter[int] = Counter()
    for part in parts:
        width = padded_width(part.payload.shape[1])
        most = max(min(STEP_ROWS, STEP_BYTES // width), 1)
        for at in range(0, len(part), most):
            piece = part.select(slice(at, at + most)) if len(part) > most else part
            if numbers[width] + len(piece) > most:
                yield Rows.concat(held.pop(width))
                numbers[width] = 0
            held.setdefault(width, []).append(piece)
            numbers[width] += len(piece)
    for rows in held.values():
        yield Rows.concat(rows)


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
        countable=int(RUNGS[entries["countable"]].sum(dtype=np.int64))
        + int(np.count_nonzero(conflicts["countable"])),
        counted=int(np.count_nonzero(entries["counted"])),
        revoked=int(np.count_nonzero(state.pseudonyms["reason"])),
    )
