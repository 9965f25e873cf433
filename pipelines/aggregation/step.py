"""One step of the aggregation: rows in; a state, changes of counts and rejected rows out.

The rules, whatever the order of the rows and however they are cut into calls:

* A row is one level of one chain of one pseudonym. A repeated row changes nothing.
* A chain has one metric (of one plan), one event time and one cell of the plan's segments, and
  one payload a level. A pseudonym that shows two of any of these has *equivocated*, even if the
  rows that show it are not countable.
* The newest countable level of a chain counts. A pseudonym whose counted levels cost more than
  the budget of the period is *over budget*.
* A pseudonym that has equivocated or is over budget is revoked for the period: no row of it counts.
  Its rows that counted until now are taken back and rejected together with its new rows; its later
  rows are rejected. Levels that newer ones had superseded by then are rejected as a number, since
  their bytes were not kept. So every different countable report of a revoked pseudonym is rejected
  exactly once.
* A revoked pseudonym stays revoked for the period, even if a plan that is registered later raises
  the budget.

A report may be sent, and so appended, more than once. Each copy is judged by its own append time
before it comes here (:mod:`sotto.wire.decode`): one may be quarantined as future and a later copy
count, or one count and a later copy be quarantined as late. The report is counted at most once.

Privacy: the counts hold at most the budget's certified epsilon of each pseudonym; what a device
really revealed is in the audit (:mod:`pipelines.aggregation.audit`). Rejected reports are no less
sensitive than counted ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation import pairs
from pipelines.aggregation.counts import Deltas, Matrix, WindowKey, changes
from pipelines.aggregation.quarantine import Rejects, rejected
from pipelines.aggregation.rows import LEVEL_COUNT, NEWEST, Rows, one_of_each, opens, padded_width
from pipelines.aggregation.state import State
from sotto.errors import ParameterError
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason


class Tally(NamedTuple):
    """How many reports had which outcome; all but ``reports`` and ``duplicates`` can be negative.

    ``counted`` is by how much the number of reports that count grew, ``revoked`` the same of
    revoked pseudonyms. A report is superseded if a newer level of its chain counts.
    """

    reports: int = 0
    counted: int = 0
    superseded: int = 0
    duplicates: int = 0
    revoked: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*map(add, self, other))


class RejectedRows(NamedTuple):
    """The rows that a step rejects."""

    #: Rows that are taken back, one part for each padded width, then the rejected rows of the call.
    #: :attr:`rows` joins them on demand, since one wide payload makes all joined rows wide.
    parts: tuple[Rejects, ...]
    superseded: int  #: rejected reports without bytes, which newer levels had superseded before

    @property
    def rows(self) -> Rows:
        return Rows.concat([part.rows for part in self.parts])

    @property
    def reason(self) -> NDArray[np.uint8]:
        return np.concatenate([part.reason for part in self.parts])


class Step(NamedTuple):
    """The result of a step."""

    state: State
    deltas: Deltas
    rejects: RejectedRows


@dataclass(frozen=True, eq=False)
class _Placed:
    """The places of a call's rows in the state, row by row.

    ``agrees`` says whether a row has the binding and the payload of its entry, ``fresh`` whether it
    is countable and no equal countable row came before this call; equal rows, and no others, have
    the same ``identity``. ``touched`` are the entries whose pairs of levels may have changed.
    """

    pseudonym: NDArray[np.intp]
    entry: NDArray[np.intp]
    agrees: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    identity: NDArray[np.int64]
    touched: pairs.Touched


def step(state: State, rows: Rows, *, counted: bool = False) -> Step:
    """Take rows into the state.

    The ``state`` is changed in place and returned; after an error of another kind than below it
    must not be used again. ``rows`` are decoded ones of its shard and period, their metrics,
    levels, payloads and times checked by :mod:`sotto.wire.decode`; at least 2,000 a call where
    there are so many.

    Returns three things. The state is a function of the set of rows that it has seen. The count
    vectors are to be added, by (registered metric, window start ms, cell, level); each is followed
    by its :mod:`~pipelines.aggregation.pairs`, and their sums over all calls are a function of that
    set, too; there are none if the rows are ``counted``, those of a log by which a state is
    restored. The rejects, all with the reason ``revoked``, are of pseudonyms that are revoked:
    their rows that counted until this call, their new countable rows in this call, and the number
    of those superseded before.

    No row is rejected twice. A countable row that neither counts nor is rejected is a repetition,
    or a newer level of its chain counts. The number of rejected rows over all calls is a function
    of the set of rows; which of them have bytes is not.

    Raises ParameterError if rows are of another shard or period or cannot have been decoded with
    this registry; the state is then unchanged.
    """
    _check(state, rows)
    placed = _place(state, rows)
    reason = state.pseudonyms["reason"]
    revoked_before = reason[placed.pseudonym] != 0
    promoted = _promoted(state, rows, placed, ~revoked_before)
    reason[placed.pseudonym[np.flatnonzero(~placed.agrees)]] = Reason.EQUIVOCATION
    _charge(state, rows, placed, promoted)
    revoked = reason[placed.pseudonym] != 0

    promoted = promoted[~revoked[promoted]]
    plus = rows.select(promoted)
    revoked_now = revoked & ~revoked_before
    known, retracted = _revoke(state, placed.pseudonym[revoked_now])
    older = placed.entry[promoted]
    older = older[np.flatnonzero(state.entries["counted"][older])]
    back, minus = _counted(state, retracted), _counted(state, older)
    state.discount(retracted)
    state.count(placed.entry[promoted], plus)
    _keep_first_append(state, rows, placed)

    new = _first_of_each(placed.identity, rows.append, np.flatnonzero(placed.fresh & revoked))
    rejects = [*(part for _, part in back), rows.select(new)]
    revoked_rows = tuple(
        Rejects(part, np.full(len(part), Reason.REVOKED, dtype=np.uint8)) for part in rejects
    )
    superseded = known - retracted.size - int(np.count_nonzero(revoked_now[new]))
    refused = RejectedRows(revoked_rows, superseded)
    if counted:
        return Step(state, {}, refused)
    counts = changes(state.catalog, plus, *(part for _, part in back + minus))
    deltas = pairs.joined(state, counts, pairs.pair_changes(state, retracted, placed.touched))
    return Step(state, deltas, refused)


def _check(state: State, rows: Rows) -> None:
    """Raise ParameterError if rows cannot have been decoded for this state."""
    catalog, length = state.catalog, state.registry.period
    if (rows.shard, rows.period) != (state.shard, state.period):
        raise ParameterError(
            f"rows of shard {rows.shard}, period {rows.period} do not belong to the state of "
            f"shard {state.shard}, period {state.period}"
        )
    if len(rows) and int(rows.metric.max()) >= len(catalog.widths):
        raise ParameterError(f"metric must be below {len(catalog.widths)}")
    widths = catalog.widths_of(rows.metric)
    if any(rows.widths.get(metric) != width for metric, width in widths.items()):
        raise ParameterError("payloads must have the width of their metric")
    if (rows.level >= catalog.levels[rows.metric]).any():
        raise ParameterError("level must be a level of the metric")
    start = state.period * length
    if ((rows.event < start) | (rows.event >= start + length)).any():
        raise ParameterError("event must lie in the state's period")


def _place(state: State, rows: Rows) -> _Placed:
    """Enter rows into the tables of the state, and return their places."""
    entries = state.entries
    pseudonym, _ = state.pseudonyms.intern(rows.pseudonym[:, 0], rows.pseudonym[:, 1])
    entry, new = entries.intern(pseudonym, rows.chain[:, 0], rows.chain[:, 1])
    bound = np.ones(len(rows), dtype=np.bool_)
    for name in ("metric", "event", "cell"):
        column, own = entries[name], getattr(rows, name)
        # New entries have the last ids.
        column[len(column) - new.size :] = own[new]
        bound &= column.take(entry) == own

    tag, bit = state.tags(rows), np.left_shift(np.uint8(1), rows.level)
    seen, countable, tags = entries["seen"], entries["countable"], entries["tags"]
    cell = entry * tags.shape[1] + rows.level
    unseen = np.flatnonzero(bound & (seen.take(entry) & bit == 0))
    # If a level has several payloads in this call, one becomes the entry's; the others conflict.
    tags.reshape(-1)[cell[unseen]] = tag[unseen]
    agrees = bound & (tags.reshape(-1).take(cell) == tag)
    fresh = rows.countable & (countable.take(entry) & bit == 0)
    _set_bits(seen, entry[unseen], bit[unseen])
    counts = np.flatnonzero(fresh & agrees)
    before = countable[entry[counts]]
    _set_bits(countable, entry[counts], bit[counts])
    touched = pairs.Touched(state, entry[counts], before)

    odd = np.flatnonzero(~agrees)
    if odd.size:
        conflict, _ = state.conflicts.intern(
            entry[odd],
            *(column[odd] for column in (rows.metric, rows.event, rows.level, tag, rows.cell)),
        )
        known = state.conflicts["countable"]
        fresh[odd] = rows.countable[odd] & ~known[conflict]
        known[conflict[fresh[odd]]] = True
        cell[odd] = -1 - conflict
    return _Placed(pseudonym, entry, agrees, fresh, identity=cell, touched=touched)


def _set_bits(masks: NDArray[np.uint8], ids: NDArray[np.intp], bits: NDArray[np.uint8]) -> None:
    """Set a bit in the mask of each id; of an id that comes several times, one bit a round."""
    while ids.size:
        masks[ids] |= bits
        lost = np.flatnonzero(masks.take(ids) & bits == 0)
        ids, bits = ids[lost], bits[lost]


def _promoted(
    state: State, rows: Rows, placed: _Placed, live: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return, for each entry of which a newer level is to count, one row of that level."""
    newest = NEWEST[state.entries["countable"][placed.entry]]
    higher = (rows.level + np.uint8(1) == newest) & (
        state.entries["counted"][placed.entry] < newest
    )
    at = np.flatnonzero(live & rows.countable & placed.agrees & higher)
    return at[one_of_each(placed.entry[at])]


def _charge(state: State, rows: Rows, placed: _Placed, promoted: NDArray[np.intp]) -> None:
    """Add what the promoted levels cost; revoke pseudonyms that are then over the budget."""
    certified, counted = state.catalog.certified, state.entries["counted"]
    metric, owner = rows.metric[promoted], placed.pseudonym[promoted]
    cost = certified[metric, rows.level[promoted] + np.uint8(1)]
    cost -= certified[metric, counted[placed.entry[promoted]]]
    accepted, reason = state.pseudonyms["accepted"], state.pseudonyms["reason"]
    np.add.at(accepted, owner, cost)
    over = owner[(accepted[owner] > state.budget) & (reason[owner] == 0)]
    reason[over] = Reason.OVER_BUDGET


def _revoke(state: State, pseudonyms: NDArray[np.intp]) -> tuple[int, NDArray[np.intp]]:
    """Reset the cost of revoked pseudonyms to zero.

    Returns how many countable reports they have, and their entries that count.
    """
    if not pseudonyms.size:
        return 0, pseudonyms
    state.pseudonyms["accepted"][pseudonyms] = 0
    revoked = np.zeros(state.pseudonyms.size, dtype=np.bool_)
    revoked[pseudonyms] = True
    theirs = revoked[state.entries["pseudonym"]]
    known = int(LEVEL_COUNT[state.entries["countable"][theirs]].sum(dtype=np.int64))
    conflicts = state.conflicts
    known += int(np.count_nonzero(theirs[conflicts["entry"]] & conflicts["countable"]))
    return known, np.flatnonzero(theirs & (state.entries["counted"] != 0))


def _counted(state: State, ids: NDArray[np.intp]) -> list[tuple[NDArray[np.intp], Rows]]:
    """Return the rows that count of entries, one part for each padded width, with their ids."""
    widths = state.catalog.widths[state.entries["metric"][ids]]
    padded = np.maximum(widths, padded_width(0))
    parts = [ids[padded == width] for width in np.unique(padded)]
    return [(part, state.counted(part)) for part in parts]


def _keep_first_append(state: State, rows: Rows, placed: _Placed) -> None:
    """Let the row that counts have the earliest append time of its repetitions."""
    append, counted = state.entries["append"], state.entries["counted"]
    counts = rows.countable & placed.agrees & (counted[placed.entry] == rows.level + np.uint8(1))
    at = np.flatnonzero(counts & (rows.append < append[placed.entry]))
    np.minimum.at(append, placed.entry[at], rows.append[at])


def _first_of_each(
    identity: NDArray[np.int64], append: NDArray[np.int64], at: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return one of the rows ``at`` for each identity: the one with the earliest append time."""
    at = at[np.lexsort((append[at], identity[at]))]
    return at[opens(identity[at])]


#: The most rows given to one step. A step of few rows costs nearly as much as one of many.
STEP_ROWS = 100_000
#: The most bytes of payload, with padding, given to one step; at least one row always is.
STEP_BYTES = 1 << 24


class Stepped(NamedTuple):
    """The changes that rows have made."""

    state: State  #: the one given, changed
    #: (levels, length) int64 by window, to be added to the counts.
    changes: dict[WindowKey, Matrix]
    rejects: list[Reject]
    #: The outcome of the rows; ``reports`` is zero, since the decoding stage counts them.
    tally: Tally


def step_blocks(state: State, blocks: Iterable[bytes]) -> Stepped:
    """Take packed rows into a state by :func:`step_rows`; their order changes nothing."""
    return step_rows(state, in_order(map(Rows.from_bytes, blocks)))


def step_rows(state: State, parts: Iterable[Rows]) -> Stepped:
    """Take rows into a state by large steps; after an error it must not be used again."""
    before = _census(state)
    changes: dict[WindowKey, Matrix] = {}
    rejects: list[Reject] = []
    reports = countable = 0
    for rows in joined(parts):
        reports += len(rows)
        countable += int(np.count_nonzero(rows.countable))
        state, deltas, refused = step(state, rows)
        _add(state, changes, deltas)
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


def in_order(parts: Iterable[Rows]) -> list[Rows]:
    """Return rows by append time, since each runner groups them in an order of its own."""
    return sorted(parts, key=cmp_to_key(_compare))


def _compare(one: Rows, other: Rows) -> int:
    """Compare the first append times, and only if these are equal all that is packed."""
    if one.append[0] != other.append[0]:
        return int(one.append[0]) - int(other.append[0])
    first, second = one.to_bytes(), other.to_bytes()
    return (first > second) - (first < second)


def joined(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Yield rows in pieces as large as a step may be, each of one padded width."""
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


def _add(state: State, changes: dict[WindowKey, Matrix], deltas: Deltas) -> None:
    """Add count vectors to changes by window."""
    for (metric, start, cell, level), vector in deltas.items():
        fingerprint, index = state.catalog.identities[metric]
        key = WindowKey(fingerprint, index, start, cell)
        if key not in changes:
            mechanism = state.catalog.mechanisms[metric]
            changes[key] = np.zeros((mechanism.levels, pairs.columns(mechanism)), dtype=np.int64)
        changes[key][level] += vector


def retracted(state: State, ids: NDArray[np.intp]) -> dict[WindowKey, Matrix]:
    """Return the (negative) changes of counts that take back the rows that count of entries."""
    found: dict[WindowKey, Matrix] = {}
    parts = [part for _, part in _counted(state, ids)]
    counts = changes(state.catalog, state.counted(ids[:0]), *parts)
    _add(state, found, pairs.joined(state, counts, pairs.pair_changes(state, ids)))
    return found


class _Census(NamedTuple):
    """How many different countable reports were seen, how many count, and revoked pseudonyms."""

    countable: int
    counted: int
    revoked: int


def _census(state: State) -> _Census:
    entries, conflicts = state.entries, state.conflicts
    return _Census(
        countable=int(LEVEL_COUNT[entries["countable"]].sum(dtype=np.int64))
        + int(np.count_nonzero(conflicts["countable"])),
        counted=int(np.count_nonzero(entries["counted"])),
        revoked=int(np.count_nonzero(state.pseudonyms["reason"])),
    )
