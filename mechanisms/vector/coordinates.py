"""Vectors of which a report is about some coordinates, chosen by public coins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial

from mechanisms.arrays import ArrayLike, Floats, Ints, Words, np
from mechanisms.errors import ParameterError, check_int
from mechanisms.number.grid import QUANTILES, check_unit, unit_array
from mechanisms.number.mechanism import check_estimated, precision_of_mean
from mechanisms.number.several import SeveralAnswers, coin, coin_column
from mechanisms.randomness import Source, some_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from mechanisms.estimate import Estimate
    from mechanisms.items import Context, Item
    from mechanisms.number.answers import NumericEstimates
    from mechanisms.planner.targets import Assumed, Precision

#: A vector has at most so many coordinates, and a report at most so many answers.
MAX_DIMENSIONS, MAX_SAMPLED = 1024, 64


class CoordinateSampling(SeveralAnswers):
    """Answers about different coordinates of a vector of ``dimensions``, 1 to 1024, in [0, 1].

    A report is about ``sampled`` different ones, in [1, min(dimensions, 64)], by default as many as
    give the least variance. Epsilon, in [1e-6, 40 sampled], is that of the whole vector; each
    coordinate has an equal part of it.
    """

    types: ClassVar[tuple[str, ...]] = ("vector",)
    gives = "mean of each of {dimensions} coordinates, {sampled} of them a report"

    dimensions: int
    sampled: int
    #: Bits that are asked for of a coordinate, which do not show how far values are spread.
    bits = 0

    def _check(self) -> None:
        check_int("dimensions", self.dimensions, 1, MAX_DIMENSIONS)
        check_int("sampled", self.sampled, 1, min(self.dimensions, MAX_SAMPLED))

    @property
    def answered(self) -> int:
        return self.sampled

    def reach(self, level: int) -> tuple[float, float] | None:
        """Return that of a report about the coordinate in question, which its forger chooses."""
        one, scale = super().reach(level), self.dimensions / self.sampled
        return None if one is None else (one[0] * scale, one[1] * scale)

    @property
    def independent_coins(self) -> bool:
        """Whether they are: the coordinates of a report differ."""
        return self.sampled == 1

    def coordinates(self, seed: int) -> list[int]:
        """Return the different coordinates that the coins choose, by Floyd's algorithm."""
        chosen: list[int] = []
        for place in range(self.sampled):
            last = self.dimensions - self.sampled + place
            drawn = coin(seed, place) % (last + 1)
            chosen.append(last if drawn in chosen else drawn)
        return chosen

    def coordinates_many(self, seeds: Words) -> Ints:
        chosen = np.empty((len(seeds), self.sampled), dtype=np.int64)
        for place in range(self.sampled):
            last = self.dimensions - self.sampled + place
            drawn = (coin_column(seeds, place) % np.uint64(last + 1)).astype(np.int64)
            taken = (chosen[:, :place] == drawn[:, None]).any(axis=1)
            chosen[:, place] = np.where(taken, last, drawn)
        return chosen

    def values(self, symbol: Any) -> Sequence[float]:
        if not (isinstance(symbol, (tuple, list)) and len(symbol) == self.dimensions):
            raise ParameterError(f"a vector must be a tuple of {self.dimensions} numbers")
        for value in symbol:
            check_unit(value, missing=False)
        return symbol

    def columns(self, symbols: Any, seeds: Words) -> Floats:
        given = np.asarray(symbols)
        if not len(given):
            given = given.reshape(0, self.dimensions)
        values = unit_array(given, missing=False, axes=2)[0]
        if values.shape[1] != self.dimensions:
            raise ParameterError(f"vectors must have shape (n, {self.dimensions})")
        return np.take_along_axis(values, self.coordinates_many(seeds), axis=1)

    def coordinate_estimates(
        self,
        counts: ArrayLike,
        low: float = 0.0,
        high: float = 1.0,
        quantiles: Sequence[float] = QUANTILES,
        *,
        least: int = 1,
    ) -> tuple[NumericEstimates, ...]:
        """Estimate the mean of each coordinate, and its distribution or its bits.

        Parameters and errors are those of
        :meth:`mechanisms.number.mechanism.NumberMechanism.numeric`. The mean is that of all
        clients, whose coordinates were sampled at random; ``n`` counts the answers about the
        coordinate. Levels with fewer than ``least`` of them are left out, and each stratum has as
        many of each level. The distribution function and the quantiles come with thresholds, the
        means of the bits with bits, neither with a grid.

        All levels have equal weights, so that a level may depend on values. A coordinate's answers
        are post-stratified by threshold or bit (see :mod:`mechanisms.number.strata`): its clients
        are a random subset of all, chosen by coins. Estimates of different coordinates are all but
        uncorrelated through the randomization; through the sampling they have a covariance that is
        of the order of that of the values, over n.

        >>> from mechanisms.vector.sampled_vector import SampledVector
        >>> vector = SampledVector(1.0, dimensions=2, sampled=1, bits=1)
        >>> above, below = vector.coordinate_estimates([[30, 70, 60, 40]])
        >>> round(above.mean.value, 3), round(below.mean.value, 3)
        (0.933, 0.284)
        """
        from mechanisms.estimators.frequency import count_table
        from mechanisms.number.strata import most_strata

        table = count_table(self, counts)
        check_estimated(low, high, quantiles)
        cells = table.reshape(len(table), self.dimensions, -1)
        answers = self.answers_by_stratum(table).reshape(len(table), self.dimensions, -1)
        found = []
        for i in range(self.dimensions):
            enough = answers[:, i].sum(axis=1) >= least
            own = np.where(enough[:, None], cells[:, i], 0)
            strata = most_strata(answers[enough, i], self.coordinate_joins, least)
            found.append(self._of_coordinate(own, low, high, quantiles, strata))
        return tuple(found)

    @property
    def quantities(self) -> int:
        return self.dimensions

    @property
    def coordinate_joins(self) -> Sequence[Ints]:
        """:attr:`joins` of the strata of one coordinate; here it has one."""
        return super().joins

    @abstractmethod
    def _of_coordinate(
        self, cells: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        """Return what the counts of the answers about one coordinate say."""

    def means(
        self, counts: ArrayLike, low: float = 0.0, high: float = 1.0, *, least: int = 1
    ) -> tuple[Estimate, ...]:
        """Estimate the mean of each coordinate; see :meth:`coordinate_estimates`."""
        found = self.coordinate_estimates(counts, low, high, (), least=least)
        return tuple(each.mean for each in found)

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        """Yield the mean of each coordinate, of which n counts the answers."""
        from dataclasses import replace

        from mechanisms.items import Item

        found = self.means(counts, *context.range, least=context.least)
        reach = self.reaches(context.range[1] - context.range[0])
        for number, each in enumerate(found, start=1):
            yield Item("mean", str(number), replace(each, reach=reach), context.unit)

    @abstractmethod
    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        """Return n times the variance of the estimated mean of a coordinate; n are the reports.

        All reports are of one level; ``values``, in [0, 1], are a picture of the coordinate, by
        default the worst. With r = d/k and S the scatter of one answer around the mean it is r S −
        Var(X): whether a client answers is random too.
        """

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        variance = partial(self.variance, level)
        hidden = float(self.bits > 0)
        return precision_of_mean("the mean of a coordinate", variance, assumed, scale, hidden)

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        seed, answers = self.coin(chain), self.chain.unpack(self.output_of(payload))
        return "; ".join(
            f"number {coordinate + 1}: {self._said(place, answer, seed, context)}"
            for place, (coordinate, answer) in enumerate(
                zip(self.coordinates(seed), answers, strict=True)
            )
        )

    @abstractmethod
    def _said(self, place: int, answer: int, seed: int, context: Context) -> str:
        """Return in words the answer about the coordinate that was drawn in a place."""

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        return (0.0,) * self.dimensions, (1.0,) * self.dimensions

    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        masks = some_below(1 << self.dimensions, count, source)
        places = range(self.dimensions)
        return [tuple(float(mask >> place & 1) for place in places) for mask in masks]
