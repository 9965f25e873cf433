"""Decides what is published of a window, and when it is published again.

:func:`renewed` decides when; :func:`_published` decides which levels' tables are in a publication.
Runs and streaming jobs both call them through
:func:`pipelines.aggregation.result_rows.published_again`. The rule, for several publications:

*No combination of all publications of a window's total, with any coefficients, depends on fewer
than the plan's minimum of reports of any level.* For one publication
:mod:`~pipelines.aggregation.publication` sees to that. Over time reports come, move to newer
levels, and go, so that two publications could differ by one report.

A level's table is published only if all alternating sums of the numbers of its reports, now and in
former publications, are at least the minimum (:func:`fewest`): with 20 and 100 reports published,
130 may follow, since 130, 130 - 100, 130 - 20 and 130 - 100 + 20 are at least 20. Otherwise the
level is left out.

*Proof.* Let a combination have the coefficients a_1, a_2, ... A report that was in the publications
from b to before e has the weight f(e) - f(b), where f(r) = a_1 + ... + a_(r-1). If a report weighs
anything, then some t lies between f(b) and f(e); put 0 for the f up to t and 1 for those above.
Reports that now weigh anything did so before, and this one does. The new coefficients alternate
between 1 and -1, apart from zeros. So the combination depends on at least as many reports as such a
sum has, which is the number of those that weigh 1 less the number of those that weigh -1. QED.

Which reports came and went need not be known: the numbers alone decide, whether reports were late,
revoked or forgotten, and numbers of reports are not protected.

Strata of numbers are told apart in complete windows alone, from the first such publication on
always the same strata. In the proof, all strata have the same f in the publications that join them,
and each has its own f in those that tell them apart. For sequences that begin in the shared part,
the bound is the sum over strata of the smallest alternating sum of each; for the part of its own, a
single stratum must have enough reports.

Cohorts of strings and lines of local hashing (:meth:`mechanisms.base.Mechanism.separable`) are told
apart in every publication. So each of them has an f of its own, and must have enough reports.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from pipelines.aggregation import counts
from pipelines.aggregation.breakdown import STEADY, held_back
from pipelines.aggregation.comparison import arms_of
from pipelines.aggregation.counts import Matrix, WindowCounts, WindowKey
from pipelines.aggregation.pairs import split
from pipelines.aggregation.publication import Publication
from pipelines.aggregation.rounding import expected_error
from sotto.plan.compiled import CompiledMetric, CompiledPlan

KIND = b"publishd"

#: An open window is published again when it has so many times the reports of the last time.
EARLY_GROWTH = 3
#: A complete window is published again when it has so many times the reports of the last time.
LATE_GROWTH = 1.1
#: How often a window is published at most, in all and while it is open. Each publication doubles
#: the number of alternating sums.
MOST, MOST_OPEN = 12, 8

#: Separable groups of reports of which alternating sums are made at a time, to bound memory.
_AT_ONCE = 256

_HEAD = struct.Struct("<I")
#: Fields of :class:`PublishedWindow` that JSON stores as they are.
_PLAIN = ("revision", "least", "complete", "segments", "come", "strata", "superseded", "held")


class Numbers(NamedTuple):
    """How many reports one publication is made of; zeros stand for what it left out."""

    strata: int  #: how many strata its figures tell apart
    answers: Matrix  #: (levels, strata of the mechanism)
    pairs: Matrix  #: (levels, levels): pairs of a level with each weaker one


@dataclass(frozen=True, eq=False)
class PublishedWindow:
    """All publications of a window: the numbers of each, and the tables of the last."""

    revision: int = 0  #: the generation that changed it last
    least: int = 0  #: the plan's ``minimum_reports`` at that time
    complete: bool = False  #: whether the window was complete
    segments: bool = False  #: whether segments have rows
    come: int = 0  #: how many reports counted at the last publication
    strata: int = 1  #: how many strata are told apart, at most
    #: The tables of the last publication by cell, with pairs; a level that is left out is zeros.
    counts: Mapping[int, Matrix] = field(default_factory=dict)
    history: tuple[Numbers, ...] = ()  #: the numbers of each publication, the first one first
    #: Whether the window now has another name, that of a lower version of the plan.
    superseded: bool = False
    #: Segments that are withheld because an earlier window withheld them, each with the number of
    #: windows in a row in which it had enough reports
    #: (:func:`pipelines.aggregation.breakdown.held_back`).
    held: Mapping[str, int] = field(default_factory=dict)


NOTHING = PublishedWindow()


def renewed(
    before: PublishedWindow,
    plan: CompiledPlan,
    metric: CompiledMetric,
    window: Mapping[int, WindowCounts],
    least: int,
    revision: int,
) -> PublishedWindow:
    """Return what is published of a window whose cells have these counts now.

    ``before``: what was published of it, :data:`NOTHING` if nothing was. ``window``: its counts by
    cell. ``least``: the plan's ``minimum_reports``. ``revision``: the generation that is committed,
    in a streaming job the time, ms.

    *Reports come.* An open window's total is published when a level has enough reports, and again
    when ``EARLY_GROWTH`` times as many have come. When the window is complete, total and segments
    are published. After that, a total without segments is published again when ``LATE_GROWTH``
    times as many have come. A publication replaces the last one only if its error will be smaller.

    *Reports go* (revoked, forgotten). The total is published again, without segments, when the
    reports that went exceed those that came by the minimum at least. But if only about a tenth have
    gone (by ``LATE_GROWTH``), segments that are shown stay, and so does a total if no other may
    follow, or only one that lacks levels. Otherwise somebody with the minimum of pseudonyms could
    have them revoked, and so have most of a window of any size withheld. If a window keeps its
    figures when it becomes complete, it shows segments only if fewer than the minimum have gone.
    """
    first, *_ = window.values()
    complete, tables = first.complete, {cell: each.counts for cell, each in window.items()}
    completed = complete and not before.complete
    if before.least == least and first.revision < revision and not completed:
        return before
    come = int(_reports(metric, tables).sum())
    if least <= 1:
        strata = len(metric.mechanism.joins[-1])
        return PublishedWindow(revision, least, complete, True, come, strata, tables)
    if before.least <= 1:
        before, completed = NOTHING, complete
    now = replace(before, revision=revision, least=least, complete=complete or before.complete)
    if before.counts and before.least < least:
        last = replace(now, history=before.history[:-1])
        left = _published(last, plan, metric, before.counts, least)
        before = now = replace(now, counts=left.counts, strata=left.strata)
    most_stay = come * LATE_GROWTH > before.come
    keeps = before.segments and bool(plan.attributes) and most_stay
    gone = bool(before.counts) and come <= before.come - least and not keeps
    now = replace(now, segments=before.segments or (completed and not gone))
    growth = LATE_GROWTH if now.complete else EARLY_GROWTH
    settled = before.complete and bool(before.counts and plan.attributes)
    more = completed or (not settled and come >= max(least, growth * before.come))
    if gone or more:
        room = len(before.history) < (MOST if now.complete else MOST_OPEN)
        made = _published(now, plan, metric, tables, least) if room else NOTHING
        worse = LATE_GROWTH if gone else 1
        anew = _error(metric, made.counts) < worse * _error(metric, before.counts)
        if anew or (gone and not most_stay):
            return replace(
                now,
                come=come,
                segments=now.complete and (completed or not before.history),
                counts=made.counts,
                strata=made.strata,
                history=made.history or before.history,
            )
    return now if completed or before.least != least else before


def steadied(
    before: PublishedWindow,
    now: PublishedWindow,
    plan: CompiledPlan,
    metric: CompiledMetric,
    held: Mapping[str, int],
) -> PublishedWindow:
    """Return ``now``, with the segments to hold back if it is the first to show segments.

    ``now``: what :func:`renewed` returned. ``held``: the segments that the window before held back.
    Arms of an experiment are never held back: they have no row together.
    """
    shown = before.segments and before.least > 1
    if shown or not (now.segments and now.least > 1 and plan.attributes):
        return now
    made = Publication(plan, metric, _counts(metric, now.counts), now.least)
    found = held_back(plan.attributes, made.enough(), made.without, held)
    arms = {each.name for each in arms_of(plan)} if plan.experiment is not None else set()
    return replace(now, held={name: n for name, n in found.items() if name not in arms})


def _reports(metric: CompiledMetric, tables: Mapping[int, Matrix]) -> Matrix:
    """Return the numbers of reports in tables: ``(levels,)``."""
    total = split(metric.mechanism, np.sum([*tables.values()], axis=0))[0]
    return metric.mechanism.reports_by_level(total)


def _error(metric: CompiledMetric, tables: Mapping[int, Matrix]) -> float:
    """Return the expected standard error of a share that is made of tables; infinite of none."""
    return expected_error(metric.mechanism, _reports(metric, tables).tolist()) if tables else np.inf


def _published(
    before: PublishedWindow,
    plan: CompiledPlan,
    metric: CompiledMetric,
    tables: Mapping[int, Matrix],
    least: int,
) -> PublishedWindow:
    """Return ``before`` with the next publication: its tables, strata and history.

    Levels of which too few reports would be told apart are left out; :data:`NOTHING` if all are.
    """
    mechanism, history = metric.mechanism, before.history
    # A vector is published once, when complete: each of its coordinates has figures of its own.
    if metric.type == "vector" and (history or not before.complete):
        return NOTHING
    vectors, pairs = split(mechanism, np.sum([*tables.values()], axis=0))
    now = Numbers(1, mechanism.answers_by_stratum(vectors), pairs[:, ::2])
    joins = {len(starts): starts for starts in mechanism.joins}
    strata = max((each.strata for each in history), default=1)
    few = least * mechanism.answered

    def enough(level: int, strata: int) -> bool:
        shared, apart, groups = list[Matrix](), list[Matrix](), list[Matrix]()
        for each in (*history, now._replace(strata=strata)):
            if each.answers[level].any():
                of_strata = np.add.reduceat(each.answers[level], joins[strata])
                (apart if each.strata > 1 else shared).append(of_strata)
                groups.append(mechanism.separable(each.answers[level]))
        if len(joins) == 1:
            parts = np.array_split(np.array(groups), 1 + groups[0].size // _AT_ONCE, axis=1)
            return all(fewest([], [*part], part.shape[1]) >= few for part in parts)
        return fewest(shared, apart, strata) >= few

    present = np.flatnonzero(now.answers.any(axis=1)).tolist()
    levels = [level for level in present if enough(level, strata)]
    kept = _only(tables, levels, mechanism.count_length)
    made = Publication(plan, metric, _counts(metric, kept), least, strata)
    levels = np.flatnonzero(made.levels(made.whole)).tolist()
    if not levels:
        return NOTHING
    if strata == 1 and before.complete:
        for more in [*joins][1:]:
            if not all(enough(level, more) for level in levels):
                break
            strata = more
        made = Publication(plan, metric, _counts(metric, kept), least, strata)
        strata = made.strata(made.whole)
    kept = _only(tables, levels, mechanism.count_length)
    for at in np.argwhere(now.pairs).tolist():
        seen = [each.pairs[*at] for each in (*history, now)]
        if fewest([np.array([number]) for number in seen if number], [], 1) < least:
            now.pairs[*at] = 0
            for matrix in kept.values():
                first = mechanism.count_length + 2 * at[1]
                matrix[at[0], first : first + 2] = 0
    now.answers[[level for level in range(mechanism.levels) if level not in levels]] = 0
    history = (*history, now._replace(strata=strata))
    return replace(before, strata=strata, counts=kept, history=history)


def _only(tables: Mapping[int, Matrix], levels: Sequence[int], length: int) -> dict[int, Matrix]:
    """Return copies of tables with zeros for the other levels."""
    kept = {cell: np.array(matrix) for cell, matrix in tables.items()}
    for matrix in kept.values():
        matrix[[level for level in range(len(matrix)) if level not in levels], :length] = 0
    return kept


def _counts(metric: CompiledMetric, tables: Mapping[int, Matrix]) -> dict[int, Matrix]:
    return {cell: split(metric.mechanism, matrix)[0] for cell, matrix in tables.items()}


def fewest(shared: Sequence[Matrix], apart: Sequence[Matrix], strata: int) -> int:
    """Return the fewest reports of a level that a combination of its publications depends on.

    ``shared``: the numbers of reports ``(strata,)`` of each publication that joins the strata, the
    first one first. ``apart``: of those after them that tell the strata apart.

    >>> fewest([np.array([20]), np.array([100]), np.array([130])], [], 1)
    20
    >>> fewest([np.array([20]), np.array([40]), np.array([22])], [], 1)
    2
    """
    joined = _alternating(len(shared), 0) @ _stacked(shared, strata)
    if not apart:
        return int(np.abs(joined[1:]).sum(axis=1).min())
    sums = [_alternating(len(apart), at) @ _stacked(apart, strata) for at in (0, 1)]
    ends = _alternating(len(shared), 0).sum(axis=1).tolist()
    found = [np.abs(sums[0][1:]).min()]
    for of_shared, end in list(zip(joined, ends, strict=True))[1:]:
        found.append(np.abs(of_shared + sums[end]).min(axis=0).sum())
    return int(min(found))


def _stacked(numbers: Sequence[Matrix], strata: int) -> Matrix:
    return np.array(numbers, dtype=np.int64).reshape(len(numbers), strata)


@lru_cache(maxsize=64)
def _alternating(length: int, start: int) -> Matrix:
    """Return the steps of all sequences of 0 and 1 that follow ``start``, the constant one first.

    >>> _alternating(2, 0).tolist()
    [[0, 0], [0, 1], [1, -1], [1, 0]]
    """
    after = np.array([*product((start, 1 - start), repeat=length)], dtype=np.int64)
    after = after.reshape(2**length, length)
    return np.diff(after, axis=1, prepend=start)


def windows_before(key: WindowKey, length: int) -> list[WindowKey]:
    """Return the windows before one, latest first, whose held-back segments it may take over."""
    return [key._replace(start=key.start - back * length) for back in range(1, STEADY + 1)]


def pack(windows: Mapping[WindowKey, PublishedWindow]) -> bytes:
    """Return what is published of the windows of a page: JSON, then their tables as a page."""
    listed = []
    tables: dict[WindowKey, WindowCounts] = {}
    for key, each in sorted(windows.items()):
        numbers = [[n.strata, n.answers.tolist(), n.pairs.tolist()] for n in each.history]
        name = [key.fingerprint.hex(), key.metric, key.start]
        listed.append(
            {**{plain: getattr(each, plain) for plain in _PLAIN}, "key": name, "history": numbers}
        )
        for cell, matrix in each.counts.items():
            tables[key._replace(cell=cell)] = WindowCounts(each.revision, matrix)
    head = json.dumps(listed, separators=(",", ":")).encode()
    return _HEAD.pack(len(head)) + head + counts.pack_page(tables)


def unpack(data: bytes | memoryview) -> dict[WindowKey, PublishedWindow]:
    """Return the windows that :func:`pack` made bytes of."""
    (length,) = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    tables: dict[WindowKey, dict[int, Matrix]] = {}
    for key, window in counts.unpack_page(data[end:]).items():
        tables.setdefault(key._replace(cell=0), {})[key.cell] = window.counts
    found = {}
    for each in json.loads(bytes(data[_HEAD.size : end])):
        fingerprint, metric, start = each.pop("key")
        key = WindowKey(bytes.fromhex(fingerprint), metric, start)
        history = tuple(
            Numbers(strata, np.array(answers), np.array(pairs))
            for strata, answers, pairs in each.pop("history")
        )
        found[key] = PublishedWindow(**each, counts=tables.get(key, {}), history=history)
    return found
