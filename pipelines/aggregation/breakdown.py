"""Which slices of a window are estimated, and which are withheld because of few reports.

A *slice* is a set of cells of which results have rows: all cells, those of each value of each
attribute, and with two attributes those of each pair of values. With three (two segments and an
experiment) the arm is not crossed with the segments.

The counts of a slice follow from the counts of others by addition and subtraction. So withholding
each slice of few reports is not enough. The rule here: *no combination of published slices, with
any coefficients, depends on fewer than the plan's minimum of reports*. For a table of two
attributes it is decided exactly. Take a graph whose vertices are the values whose sums are
published (all other values of an attribute are one vertex together, since the total is published)
and whose edges are the cells that are withheld, weighted by their reports. The graph's cut space
holds all that can be computed of the withheld cells, and its smallest cut is the fewest reports
that anything depends on.

Results of a window may be written again by a later release, which must withhold the same slices:
among equally good ones, the choice here is part of the format, and no library's.

References
----------
L. H. Cox, "Suppression methodology and statistical disclosure control", JASA 75 (1980): withheld
cells and what follows of them. D. Gusfield, "A graph theoretic approach to statistical data
security", SIAM Journal on Computing 17 (1988): the graph. M. Stoer, F. Wagner, "A simple min-cut
algorithm", Journal of the ACM 44 (1997).
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sotto.plan.segments import Attribute, cells, crossed, label, values_of

#: Reports by cell, in the shape of the attributes.
Reports: TypeAlias = NDArray[np.int64]
#: Slices, by the values that are fixed in each.
_Fixed: TypeAlias = set[tuple[tuple[int, int], ...]]
#: A value of an attribute: the attribute's number and the value's. The value -1 stands for all
#: values whose sums are withheld, joined to one vertex.
_Vertex: TypeAlias = tuple[int, int]


class Slice(NamedTuple):
    """Some cells, and the name that results have for them; the name of all cells is empty."""

    name: str
    cells: tuple[int, ...]
    #: Number of the value of each attribute that is fixed.
    fixed: tuple[tuple[int, int], ...]


#: A slice that was withheld is published again after so many windows in a row in which it had
#: enough reports.
STEADY = 4
#: How many slices :func:`held_back` may withhold beyond twice those that a window withholds anyway.
_MORE = 4
#: Bytes of the estimates of a window with segments, at most: a topic takes documents of 8 MiB.
MOST_BYTES = 7 << 20
#: Bytes of an estimate in a document, in most cases, but for the names of its item and segment.
ROW_BYTES = 448


def broken_down(
    attributes: tuple[Attribute, ...], kind: str, items: Sequence[str], arms: int = 0
) -> Iterator[Slice]:
    """Yield the slices besides the total of which a metric's windows have estimates.

    ``kind`` is the metric's type, ``items`` are the names of a window's estimates, and ``arms``
    is how many arms of an experiment there are. A vector has no slices: each of its coordinates is
    of other reports. Strings have slices of single values only, since decoding takes a hundred
    times as long as other estimates. If estimates would take more than ``MOST_BYTES``, slices of
    pairs are left out, and if that is not enough, all. Whether a slice is estimated does not depend
    on reports.
    """
    found = slices(attributes)[1:]
    named = sum(len(json.dumps(item)) for item in items)

    def fit(chosen: Sequence[Slice]) -> bool:
        # Each arm but the first has differences as well.
        of_arms = max(arms - 1, 0)
        longest = max(len(each.name) for each in found)
        segments = sum(len(each.name) for each in chosen) + of_arms * longest
        each = len(items) * ROW_BYTES + named
        return each * (1 + len(chosen) + of_arms) + len(items) * segments <= MOST_BYTES

    pairs = kind != "string" and fit(found)
    chosen = [each for each in found if pairs or len(each.fixed) == 1]
    if kind != "vector" and fit(chosen):
        yield from chosen


@lru_cache(maxsize=64)
def slices(attributes: tuple[Attribute, ...]) -> tuple[Slice, ...]:
    """Return the slices that have rows in results: all cells, each value, and pairs of values.

    >>> os, arm = Attribute("os", ("mac", "other")), Attribute("arm", ("a", "b"))
    >>> [each.name for each in slices((os, arm))][:4]
    ['', 'os=mac', 'os=other', 'arm=a']
    >>> slices((os, arm))[4], len(slices((os, arm)))
    (Slice(name='arm=b', cells=(1, 3), fixed=((1, 1),)), 9)
    """
    found = [_slice(attributes, ())]
    for chosen in crossed(attributes):
        numbers = (range(len(attributes[at].values)) for at in chosen)
        for fixed in product(*numbers):
            found.append(_slice(attributes, tuple(zip(chosen, fixed, strict=True))))
    return tuple(found)


def _slice(attributes: tuple[Attribute, ...], fixed: tuple[tuple[int, int], ...]) -> Slice:
    pairs = [(attributes[at].name, attributes[at].values[number]) for at, number in fixed]
    inside = []
    for cell in range(cells(attributes)):
        values = values_of(attributes, cell)
        if all(values[at] == attributes[at].values[number] for at, number in fixed):
            inside.append(cell)
    return Slice(label(pairs), tuple(inside), fixed)


def withheld(
    attributes: tuple[Attribute, ...], reports: Reports, least: int, anyway: Set[str] = frozenset()
) -> set[str]:
    """Return the names of the slices to withhold, so that nothing depends on few reports.

    :class:`pipelines.aggregation.publication.Publication` calls it for all levels together, and
    then for each level.

    ``reports`` ((cells,) int64): the number of reports of each cell. ``least``: the plan's minimum.
    ``anyway``: slices to withhold whatever their reports. Slices without any report are not
    returned: there is nothing to publish of them.

    >>> os = Attribute("os", ("linux", "mac", "other"))
    >>> sorted(withheld((os,), np.array([100, 40, 3]), 20))
    ['os=mac', 'os=other']
    """
    live = {each.fixed: each.name for each in slices(attributes) if reports[[*each.cells]].any()}
    if int(reports.sum()) < least:
        return set(live.values())
    shaped = reports.reshape([len(each.values) for each in attributes])
    first = {fixed for fixed, name in live.items() if name in anyway}
    if not attributes:
        return set()
    if len(attributes) == 1:
        found = _line(reports, least, first)
    elif len(attributes) == 2:
        found = _Table(shaped, least, first).solve()
    else:
        found = _Table(shaped.sum(axis=2), least, first).solve() | _arms(shaped, least, first)
    names = {live[fixed] for fixed in found}
    return _less_what_follows(names, attributes, reports, least) if names else names


def held_back(
    attributes: tuple[Attribute, ...],
    enough: Mapping[str, bool],
    without: Callable[[Set[str]], Set[str]],
    before: Mapping[str, int],
) -> dict[str, int]:
    """Return the slices to withhold in a window, so that few change from one window to the next.

    Each slice comes with the number of windows in a row in which it had enough reports; ``before``
    is what this function returned for the window before. A slice that was withheld stays so until
    it has had enough reports in ``STEADY`` windows in a row, and for as long as slices that stay
    withheld need it, or another one in its place. With several attributes each slice may take
    others with it: if far more slices would be withheld than the window needs by itself, then only
    those that it needs are. A window that is withheld as a whole changes nothing.

    ``enough`` says of each slice with reports whether it has enough for a row of its own.
    ``without`` returns the slices of which nothing is published if those that it is given are
    withheld anyway; it decides what is safe.

    >>> os = (Attribute("os", ("linux", "mac", "win")),)
    >>> def window(linux, mac, win, before):
    ...     reports = np.array([linux, mac, win])
    ...     enough = {"os=linux": linux >= 20, "os=mac": mac >= 20, "os=win": win >= 20}
    ...     return held_back(os, enough, lambda held: withheld(os, reports, 20, held), before)
    >>> one = window(18, 90, 400, {})
    >>> one, window(22, 90, 70, one)
    ({'os=linux': 0, 'os=mac': 1}, {'os=linux': 1, 'os=mac': 2})
    """
    alone = without(frozenset())
    if slices(attributes)[0].name in alone:
        return dict(before)
    lasted = {name: before.get(name, 0) + 1 if each else 0 for name, each in enough.items()}
    names = {*before}
    steady = {name for name in names if lasted.get(name, 0) >= STEADY}
    # First try to show all steady slices again at once: two may need each other.
    for leaving in (steady, *({name} for name in sorted(steady))):
        stay = names - leaving
        if stay & {*enough} <= without(stay) <= names:
            names = stay
    names |= without(names)
    if len(attributes) > 1 and len(names) > 2 * len(alone) + _MORE:
        names = {*alone}
    return {name: lasted.get(name, 0) for name in sorted(names)}


def _less_what_follows(
    names: set[str], attributes: tuple[Attribute, ...], reports: Reports, least: int
) -> set[str]:
    """Return ``names`` without slices that can be computed from published ones anyway.

    A slice of few reports always stays: by the rule above it cannot be computed.
    """
    live = np.flatnonzero(reports)
    vectors = {
        each.name: np.isin(live, each.cells).astype(np.float64) for each in slices(attributes)
    }
    known = np.array([vector for name, vector in vectors.items() if name not in names])
    rank = np.linalg.matrix_rank(known)
    return {
        name
        for name in names
        if reports[live] @ vectors[name] < least
        or np.linalg.matrix_rank(np.vstack([known, vectors[name]])) > rank
    }


def _line(reports: Reports, least: int, first: _Fixed) -> _Fixed:
    """Return which values of one attribute are withheld, so many that together they have enough."""
    order = sorted(np.flatnonzero(reports).tolist(), key=reports.__getitem__)
    chosen = [value for value in order if reports[value] < least or ((0, value),) in first]
    rest = (value for value in order if value not in chosen)
    # All values together have enough.
    while chosen and reports[chosen].sum() < least:
        chosen.append(next(rest))
    return {((0, value),) for value in chosen}


def _arms(reports: Reports, least: int, first: _Fixed) -> _Fixed:
    """Return which arms are withheld beside a table of two segments: all or none.

    A combination of sums of arms and the table that does not vanish depends in every cell of the
    table on the reports of all arms, except of those that it treats alike. So it depends in each
    cell at least on the reports of the smallest arm.
    """
    of_arm = reports.sum(axis=(0, 1))
    present = np.flatnonzero(of_arm)
    if len(present) < 2:
        return set()
    smallest = int(reports[:, :, present].min(axis=2).sum())
    if any(fixed[0][0] == 2 for fixed in first):
        smallest = 0
    if min(smallest, int(of_arm[present].min())) >= least:
        return set()
    return {((2, int(arm)),) for arm in present}


class _Table:
    """A table of two attributes, its cells and sums, and which of them are withheld."""

    def __init__(self, reports: Reports, least: int, first: _Fixed) -> None:
        self.reports, self.least = reports, least
        self.sums = [reports.sum(axis=1), reports.sum(axis=0)]
        #: Withheld cells, and values whose sum is withheld.
        self.cells = {
            (row, column) for row, column in np.argwhere((reports > 0) & (reports < least)).tolist()
        }
        self.values: set[_Vertex] = {
            (side, number)
            for side, sums in enumerate(self.sums)
            for number in np.flatnonzero((sums > 0) & (sums < least)).tolist()
        }
        self.cells |= {(fixed[0][1], fixed[1][1]) for fixed in first if len(fixed) == 2}
        self.values |= {fixed[0] for fixed in first if len(fixed) == 1 and fixed[0][0] < 2}

    def solve(self) -> _Fixed:
        """Withhold further cells, those of few reports first, and sums if no cell is left."""
        while (cut := self._small_cut()) is not None:
            path = self._path(*cut)
            if path:
                self.cells.update(path)
            else:
                self.values.add(self._smallest_sum(cut))
        found: _Fixed = {((side, number),) for side, number in self.values}
        return found | {((0, row), (1, column)) for row, column in self.cells}

    def _vertex(self, side: int, number: int) -> _Vertex:
        return (side, -1 if (side, number) in self.values else number)

    def _small_cut(self) -> tuple[set[_Vertex], set[_Vertex]] | None:
        """Return both sides of a cut of fewer reports than the minimum; None if there is none."""
        weights: dict[_Vertex, dict[_Vertex, int]] = defaultdict(lambda: defaultdict(int))
        for row, column in self.cells:
            one, other = self._vertex(0, row), self._vertex(1, column)
            weights[one][other] += int(self.reports[row, column])
            weights[other][one] += int(self.reports[row, column])
        for component in _components(weights):
            weight, side = _minimum_cut({each: dict(weights[each]) for each in component})
            if weight < self.least:
                return side, component - side
        return None

    def _path(self, start: set[_Vertex], end: set[_Vertex]) -> list[tuple[int, int]]:
        """Return the path of published cells, with the fewest reports, that joins both sides.

        It is empty if there is none.
        """
        joins: dict[_Vertex, list[tuple[_Vertex, int, tuple[int, int]]]] = defaultdict(list)
        for row, column in np.argwhere(self.reports > 0).tolist():
            cost = 0 if (row, column) in self.cells else int(self.reports[row, column])
            one, other = self._vertex(0, row), self._vertex(1, column)
            joins[one].append((other, cost, (row, column)))
            joins[other].append((one, cost, (row, column)))
        # A withheld cell between the sides is part of the cut and no way across it.
        queue: list[tuple[int, _Vertex, tuple[tuple[int, int], ...]]]
        queue = [(0, each, ()) for each in sorted(start)]
        done: set[_Vertex] = set()
        while queue:
            cost, at, cells = heapq.heappop(queue)
            if at in end:
                return [*cells]
            if at in done:
                continue
            done.add(at)
            for other, more, cell in joins[at]:
                crosses = cell in self.cells and (at in start) and (other in end)
                if other not in done and not crosses:
                    through = cells if cell in self.cells else (*cells, cell)
                    heapq.heappush(queue, (cost + more, other, through))
        return []

    def _smallest_sum(self, cut: tuple[set[_Vertex], set[_Vertex]]) -> _Vertex:
        """Return the published value with the fewest reports, in the cut if it has one left."""
        published = [
            (side, number)
            for side, sums in enumerate(self.sums)
            for number in np.flatnonzero(sums).tolist()
            if (side, number) not in self.values
        ]
        touched = cut[0] | cut[1]
        return min(published, key=lambda v: (v not in touched, self.sums[v[0]][v[1]], v))


def _components(weights: dict[_Vertex, dict[_Vertex, int]]) -> Iterator[set[_Vertex]]:
    """Yield the vertices of each connected part of a graph."""
    left = set(weights)
    while left:
        found, queue = set(), [min(left)]
        while queue:
            at = queue.pop()
            if at not in found:
                found.add(at)
                queue += weights[at]
        left -= found
        yield found


def _minimum_cut(weights: dict[_Vertex, dict[_Vertex, int]]) -> tuple[int, set[_Vertex]]:
    """Return the weight and one side of a smallest cut of a connected graph (Stoer and Wagner)."""
    merged = {each: {each} for each in weights}
    best: tuple[int, set[_Vertex]] | None = None
    while len(weights) > 1:
        first = min(weights)
        order, reached = [first], dict(weights[first])
        while len(order) < len(weights):
            last = max(
                (each for each in weights if each not in order),
                key=lambda v: (reached.get(v, 0), v),
            )
            order.append(last)
            for each, weight in weights[last].items():
                reached[each] = reached.get(each, 0) + weight
        *_, before, last = order
        phase = sum(weights[last].values())
        if best is None or phase < best[0]:
            best = (phase, set(merged[last]))
        merged[before] |= merged.pop(last)
        for each, weight in weights.pop(last).items():
            del weights[each][last]
            if each != before:
                weights[before][each] = weights[before].get(each, 0) + weight
                weights[each][before] = weights[before][each]
    assert best is not None, "a component has an edge"
    return best
