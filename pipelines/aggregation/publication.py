"""Which counts of a window one publication shows: of which slices, levels and strata.

:mod:`pipelines.aggregation.published` calls :class:`Publication` for each publication of a window,
and adds the rule over several; :mod:`pipelines.aggregation.breakdown` decides for one level.

*No combination of the figures of one publication, with any coefficients, depends on fewer than the
plan's minimum of reports of any level.* Figures have enough digits for the counts of each level to
follow from them. So :func:`pipelines.aggregation.breakdown.withheld` decides for every level by
itself of which slices its counts are published, and a row is made of those levels alone.

The reports of a number are also told apart by their public coins, in *strata*, and each stratum has
figures of its own. Numbers of strata are tried one after another, each twice the one before, whose
strata it halves. A slice has k strata only if it also may have half as many, and if its
sum and those of the other slices that have k are independent already on the *large* cells: those
with the minimum of reports in each of the k strata.

Some mechanisms have figures from which groups of reports follow by themselves, whatever a slice:
the cohorts of strings, and the lines of local hashing
(:meth:`mechanisms.base.Mechanism.separable`). A combination of figures is, in each group, one of
slices. So the solver is given, for each cell, the number of reports in the group that has fewest:
every group has at least as many reports in the cells that a combination depends on. If these are
too few for the whole, the total alone is published where each group has the minimum.

*Proof* for strata. A combination gives each report a weight that depends on its cell and stratum
alone: f + g, where g is made of slices with k strata and f, the same in all k strata that f's are
joined of, of the others. If it is not zero on a large cell of some stratum, it depends on that
cell's reports, which are enough. Otherwise g is -f there in every stratum, so that the g of all of
them are equal on the large cells, and thus on all cells, since the slices with k strata are
independent there. So the combination is one of slices with half as many strata, for which the same
holds; with one stratum the decision is that of the level's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np
from numpy.typing import NDArray

from mechanisms.items import MAX_STRATA
from pipelines.aggregation.breakdown import Slice, slices, withheld
from pipelines.aggregation.counts import Matrix
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.segments import label

#: A level with a smaller part of the reports has no part in the strata of numbers: few reports
#: would keep those of all others from being told apart.
LEAST_PART = 1 / 8


class Publication:
    """The tables of a window of a metric, of which every figure is made.

    Parameters
    ----------
    counts : mapping of int to array
        The counts ``(levels, count_length)`` of each cell that has any.
    least : int
        The plan's ``minimum_reports``.
    most : int
        At most so many strata are told apart.
    held : collection of str
        Slices to withhold even if they have enough reports.

    Attributes
    ----------
    arrived : ndarray, shape (cells, levels)
        How many reports there are.
    unions : list of Slice
        The withheld values of an attribute, put together, if their sum can be computed anyway.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        metric: CompiledMetric,
        counts: Mapping[int, Matrix],
        least: int,
        most: int = MAX_STRATA,
        held: Iterable[str] = (),
    ) -> None:
        self.plan, self.metric, self.counts, self.least = plan, metric, counts, least
        mechanism, attributes = metric.mechanism, plan.attributes
        levels = len(metric.ladder)
        self.arrived = np.zeros((plan.cells, levels), dtype=np.int64)
        # How many reports the smallest separable group has, in each cell and in all cells together.
        smallest, groups = np.zeros_like(self.arrived), np.zeros((levels, 1), dtype=np.int64)
        for cell, matrix in counts.items():
            self.arrived[cell] = mechanism.reports_by_level(matrix)
            separable = mechanism.separable(mechanism.answers_by_stratum(matrix))
            smallest[cell] = separable.min(axis=1) // mechanism.answered
            groups = groups + separable
        together = groups.min(axis=1) // mechanism.answered
        self.whole = slices(attributes)[0]
        counted = self.arrived.copy()
        if least > 1 and len(mechanism.joins) > 1:
            by_level = counted.sum(axis=0)
            counted[:, by_level < LEAST_PART * by_level.sum()] = 0
            smallest[counted == 0] = 0
        self._counted = counted
        # A report weighs ``_scale``. A cell without reports in some group weighs 1: enough to be
        # withheld, and too little for all such cells together to weigh as much as one report.
        self._scale = plan.cells + 1
        self._weights = self._scale * smallest + ((smallest == 0) & (counted > 0))
        self._together = together >= least
        self._levels = self._shown(frozenset(held))
        self.unions = [*self._unions()]
        for union in self.unions:
            self._levels[union.name] = self._follows(union)
        self._strata = self._told_apart(most)

    def _shown(self, held: Set[str]) -> dict[str, NDArray[np.bool_]]:
        """Return which levels of each slice are published if the slices ``held`` are withheld."""
        attributes, least = self.plan.attributes, self.least
        anyway = withheld(attributes, self._counted.sum(axis=1), least, held)
        found = {each.name: self._reports(each, self._counted) > 0 for each in slices(attributes)}
        for level, (weights, together) in enumerate(
            zip(self._weights.T, self._together.tolist(), strict=True)
        ):
            names = set(anyway)
            if least > 1:
                names |= withheld(attributes, weights, self._scale * least, anyway)
            if together and self.whole.name not in anyway:
                names.discard(self.whole.name)
            for name in names:
                found[name][level] = False
        return found

    def without(self, held: Set[str]) -> set[str]:
        """Return the slices with reports that show no level if ``held`` are withheld."""
        shown = self._shown(held)
        return {name for name in self.enough() if not shown[name].any()}

    def enough(self) -> dict[str, bool]:
        """Return for each slice with reports whether one of its levels has enough for a row."""
        few = self._scale * self.least
        return {
            each.name: bool((self._reports(each, self._weights) >= few).any())
            for each in slices(self.plan.attributes)
            if self._reports(each, self._counted).any()
        }

    def _unions(self) -> Iterator[Slice]:
        """Yield, for each published slice, its withheld parts put together.

        Their sum is that of the slice less its published parts, so that it can be shown. A part is
        withheld if no level of it is published, even if only for few reports in a single separable
        group. Arms of an experiment are never put together.
        """
        attributes = self.plan.attributes
        arms = len(attributes) - 1 if self.plan.experiment is not None else None
        every = [each for each in slices(attributes) if self.reports(each).any()]
        for whole in every:
            if not self.levels(whole).any():
                continue
            fixed = dict(whole.fixed)
            for at, attribute in enumerate(attributes):
                if at in fixed or at == arms:
                    continue
                parts = [
                    each
                    for each in every
                    if len(each.fixed) == len(fixed) + 1
                    and {**fixed, at: dict(each.fixed).get(at)} == dict(each.fixed)
                ]
                few = [each for each in parts if not self.levels(each).any()]
                if 1 < len(few) < len(parts):
                    numbers = [dict(each.fixed)[at] for each in few]
                    names = {place: attributes[place].values[n] for place, n in fixed.items()}
                    names[at] = " or ".join(attribute.values[number] for number in numbers)
                    pairs = [(attributes[place].name, names[place]) for place in sorted(names)]
                    inside = sorted(cell for each in few for cell in each.cells)
                    yield Slice(label(pairs), tuple(inside), few[0].fixed)

    def _follows(self, union: Slice) -> NDArray[np.bool_]:
        """Return at which levels a union's counts follow from published ones: ``(levels,)``."""
        cells, rank = np.arange(self.plan.cells), np.linalg.matrix_rank
        found = np.zeros(self.arrived.shape[1], dtype=bool)
        for level, reports in enumerate(self.arrived.T):
            published = [each for each in slices(self.plan.attributes) if self.levels(each)[level]]
            if published and reports[[*union.cells]].any():
                sums = np.array([np.isin(cells, each.cells) for each in (*published, union)])
                sums = sums[:, reports > 0]
                found[level] = rank(sums[:-1]) == rank(sums)
        return found

    def levels(self, part: Slice) -> NDArray[np.bool_]:
        """Return which levels of a slice are published: ``(levels,)``."""
        return self._levels[part.name]

    def reports(self, part: Slice) -> NDArray[np.int64]:
        """Return how many reports of a slice have come: ``(levels,)``."""
        return self._reports(part, self.arrived)

    @staticmethod
    def _reports(part: Slice, by_cell: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = by_cell[[*part.cells]].sum(axis=0)
        return found

    def table(self, part: Slice) -> Matrix:
        """Return the counts of the published levels of a slice, with zeros for the others."""
        shape = (len(self.metric.ladder), self.metric.mechanism.count_length)
        inside = (self.counts[cell] for cell in part.cells if cell in self.counts)
        total: Matrix = sum(inside, np.zeros(shape, dtype=np.int64))
        total[~self.levels(part)] = 0
        return total

    def strata(self, part: Slice) -> int:
        """Return the most strata into which a slice's reports may be told apart by their coins."""
        return self._strata.get(part.name, 1)

    def why(self, part: Slice, own: NDArray[np.int64]) -> str | None:
        """Return why nothing of a slice is published; None if some level is.

        ``own`` ((levels,) int64): how many of its reports have come.
        """
        if self.levels(part).any():
            return None
        if short := reason(int(own.sum()), self.least):
            return short
        if (most := int(own.max())) < self.least:
            return f"no level has more than {reason(most, self.least)}"
        mechanism = self.metric.mechanism
        groups = f"of the {mechanism.groups:,} groups of {mechanism.name}"
        if part.fixed:
            few = f"too few reports in one {groups}" if mechanism.groups > 1 else "too few reports"
            return f"with it, the estimate of a segment with {few} could be computed"
        if mechanism.groups > 1:
            enough = f"each {groups} has {self.least:,} reports of a level"
            return f"until {enough}, and enough more come or go"
        return "until more reports have come or gone, or the window is complete"

    def _told_apart(self, most: int) -> dict[str, int]:
        """Return the number of strata of each slice that has a published level."""
        mechanism, joins = self.metric.mechanism, self.metric.mechanism.joins
        every = (*slices(self.plan.attributes), *self.unions)
        left = [each for each in every if self.levels(each).any()]
        left.sort(key=lambda each: -int(self.reports(each).sum()))
        if self.least <= 1 or len(joins) == 1:
            return {each.name: len(joins[-1]) for each in left}
        answers = np.zeros((*self.arrived.shape, mechanism.strata), dtype=np.int64)
        for cell, matrix in self.counts.items():
            # All answers of a report may be in one stratum.
            answers[cell] = mechanism.answers_by_stratum(matrix) // mechanism.answered
        found = dict.fromkeys((each.name for each in left), 1)
        for starts in (each for each in joins[1:] if len(each) <= most):
            parts = np.add.reduceat(answers, starts, axis=2)
            large, chosen = parts.min(axis=2) >= self.least, list[Slice]()
            for each in left:
                if self._independent([*chosen, each], large):
                    chosen.append(each)
            found |= dict.fromkeys((each.name for each in chosen), len(starts))
            left = chosen
        return found

    def _independent(self, parts: list[Slice], large: NDArray[np.bool_]) -> bool:
        """Return whether combinations of slices that are zero on the large cells are zero.

        This must hold at each published level of the last slice.
        """
        cells = np.arange(self.plan.cells)
        for level in np.flatnonzero(self.levels(parts[-1])).tolist():
            made = [np.isin(cells, each.cells) for each in parts if self.levels(each)[level]]
            present, rank = self.arrived[:, level] > 0, np.linalg.matrix_rank
            if rank(np.array(made)[:, present]) > rank(np.array(made)[:, large[:, level]]):
                return False
        return True


def reason(reports: int, least: int) -> str | None:
    """Return why an estimate of so many reports is withheld under a plan's ``minimum_reports``.

    >>> reason(7, 20), reason(1, 2), reason(20, 20)
    ('7 reports, the plan asks for 20', '1 report, the plan asks for 2', None)
    """
    if reports >= least:
        return None
    return f"{reports:,} report{'' if reports == 1 else 's'}, the plan asks for {least:,}"
