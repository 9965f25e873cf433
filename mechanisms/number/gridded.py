"""Numbers on a grid: Duchi's one bit, the Piecewise and Hybrid Mechanisms, the square wave."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import ArrayLike, Bools, Bytes, Floats, Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.chain import Prior
from mechanisms.chains.finite import FiniteChain, FiniteDraw
from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.levels import Probabilities
from mechanisms.noise import Noise
from mechanisms.number import designs, steps
from mechanisms.number.grid import check_unit, neighbours, round_to_grid, rounds_to_grid, unit_array
from mechanisms.number.laws import Law, Shape, contributions, worst_ends_variance, worst_variance
from mechanisms.number.mechanism import NumberMechanism
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from mechanisms.experiments import Scores
    from mechanisms.items import Context
    from mechanisms.number.answers import NumericEstimates
    from mechanisms.planner.targets import Assumed, Precision


class GridMechanism(NumberMechanism):
    """A mechanism that first rounds a number at random to one of equally spaced inputs."""

    #: Whether the distribution is estimated, by expectation, maximization and smoothing.
    distribution: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The inputs and outputs."""

    @property
    @abstractmethod
    def laws(self) -> tuple[Law, ...]:
        """The exact probabilities of every level, weakest first."""

    @property
    def resolution(self) -> int:
        return self.shape.steps

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return an input whose mean is the number; the one after the last if it is missing."""
        check_unit(symbol, self.missing)
        steps = self.shape.steps
        return steps + 1 if symbol is None else round_to_grid(symbol, steps, source)

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        check_unit(symbol, self.missing)
        steps = self.shape.steps
        return ((steps + 1, 1),) if symbol is None else neighbours(symbol, steps)

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        values, gone = unit_array(symbols, self.missing)
        steps = self.shape.steps
        points = rounds_to_grid(np.where(gone, 0.0, values), steps, source)
        return np.where(gone, steps + 1, points)

    def _numeric(
        self, table: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.gridmeans import grid_estimates

        wanted = quantiles if self.distribution else None
        return grid_estimates(self.shape, self.laws, table, low, high, wanted)

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        return self.said(self.output_of(payload), context)

    def said(self, output: int, context: Context) -> str:
        """Return the number in whose window a cell is the middle one, or the end, or missing."""
        shape = self.shape
        if output < shape.cells:
            return f"about {context.number((output - shape.width // 2) / shape.steps)}"
        end = output - shape.cells
        return f"about {context.number(end)}" if shape.ends and end < 2 else "missing"

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        from mechanisms.number.gridmeans import grid_variance, worst_pictures

        pictures = worst_pictures(self.shape) if values is None else [values]
        return max(grid_variance(self.shape, self.laws[level], each) for each in pictures)

    def worst_variance(self, level: int) -> float:
        """Return the variance of the worst data and rounding, by the standard library alone."""
        shape, law = self.shape, self.laws[level]
        rounding = 1 / (4 * shape.steps**2) if shape.cells else 0.0
        return float(max(worst_variance(shape, law), worst_ends_variance(shape, law))) + rounding

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        """Return the precision of the mean as it is published."""
        from mechanisms.number.gridmeans import published_variance, worst_pictures
        from mechanisms.planner.targets import Precision

        values, found = assumed.values, super().precision(level, assumed, scale)
        pictures = worst_pictures(self.shape) if values is None else [values]
        each = [published_variance(self.shape, self.laws[level], picture) for picture in pictures]
        return Precision(found.what, found.data, lambda n: max(one(n) for one in each), scale)

    def parts(self, level: int) -> tuple[Sequence[float], Sequence[float]]:
        given = contributions(self.shape, self.laws[level])
        # A contribution's value is unbiased for the mean less a half.
        values = (a + b / 2 for a, b in zip(given.value, given.present, strict=True))
        return [*map(float, values)], [*map(float, given.present)]

    def scores(self, level: int) -> Scores | None:
        from mechanisms.experiments import Scores
        from mechanisms.number.laws import matrix

        if self.missing:
            return None
        rows = matrix(self.shape, self.laws[level])
        return Scores(np.array(self.parts(level)[0]), rows[0], rows[-1])

    def noise(self, level: int) -> Noise | None:
        """Return the largest variance that a bounded contribution can have."""
        most = float(max(map(abs, contributions(self.shape, self.laws[level]).value)))
        return Noise(most**2, most**2, 2 * most, most + 0.5, most + 0.5)


@frozen
class DuchiOneBit(GridMechanism):
    """Round a number in [0, 1] at random to 0 or 1, and report that by randomized response.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is p/q.

    Relaxation
    ----------
    Exact, as binary randomized response (of three answers where a value can be missing).

    Utility
    -------
    The mean is unbiased. On [-1, 1], n times its variance at x is C² − x², C = (e^ε + 1)/(e^ε − 1).

    Use
    ---
    Where there is no public coin and epsilon is below 0.6; otherwise the random threshold, whose
    variance is on no data larger, or the Hybrid Mechanism.

    References
    ----------
    J. C. Duchi, M. I. Jordan, M. J. Wainwright, "Minimax Optimal Procedures for Locally Private
    Estimation", JASA 113(521), 2018, section 3.2.

    Examples
    --------
    >>> duchi = DuchiOneBit(epsilon=1.0)
    >>> round(duchi.p, 4), duchi.certified()
    (0.7311, 1000000)
    """

    epsilon: Epsilon
    missing: bool = False

    name = "duchi"
    symbolic = True

    @cached_property
    def chain(self) -> SymbolChain:
        return symbol_chain(2 + self.missing, self.micros)

    @cached_property
    def shape(self) -> Shape:
        return Shape(2, 0, True, self.missing)

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        none = Fraction(0)
        return tuple(Law(none, none, none, p, q, q, p, q) for p, q in self.chain.exact)

    @property
    def resolution(self) -> int:
        """The steps at which an audit takes numbers: also between the two inputs, 0 and 1."""
        return 1 << 32


class WindowMechanism(GridMechanism):
    """A mechanism whose inputs, 3, 5, 9, ... or 257 ``points``, have windows of likelier cells."""

    points: int

    #: Whether one bit may answer in the place of the window, so that the variance is even.
    mixed: ClassVar[bool] = False

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"points": 65}

    @cached_property
    def _designed(self) -> tuple[Shape, Fraction]:
        """The shape, and the share of the probability that cells have; here of least variance."""
        return designs.least_variance_design(
            self.points, self.missing, self.micros[-1], self.mixed
        )[1:]

    @cached_property
    def _grains(self) -> designs.Grains:
        return designs.strongest(*self._designed, self.micros[-1])

    @cached_property
    def _below(self) -> tuple[tuple[steps.Degradation, ...], tuple[Law, ...]]:
        law = designs.law_of(self.shape, self._grains)
        return steps.steps_below(self.shape, law, self.micros)

    @property
    def shape(self) -> Shape:
        return self._designed[0]

    @property
    def laws(self) -> tuple[Law, ...]:
        return self._below[1]

    @cached_property
    def chain(self) -> FiniteChain:
        rows = (steps.rows_of(self.shape, step) for step in self._below[0])
        strongest = FiniteDraw(designs.rows_of(self.shape, self._grains))
        return FiniteChain(strongest, tuple(FiniteDraw(each) for each in rows))

    def _ratios(self) -> Sequence[Fraction]:
        return [most / least for most, least in (law.worst(self.shape) for law in self.laws)]

    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the largest and the smallest probability of the output that costs most."""
        return (Probabilities(*self.laws[level].worst(self.shape)),)

    @cached_property
    def possible(self) -> tuple[bool, ...]:
        """Which outputs some level can have: cells and ends may be there and never be drawn."""
        shape = self.shape
        columns = zip(*(law.columns(shape) for law in self.laws), strict=True)
        cell, end, gone = (any(column.largest for column in levels) for levels in columns)
        return (cell,) * shape.cells + (end,) * (2 * shape.ends) + (gone,) * shape.missing

    def output_of(self, payload: bytes) -> int:
        output = super().output_of(payload)
        if not self.possible[output]:
            raise ParameterError("the payload is none of this mechanism")
        return output

    def valid(self, payloads: Bytes) -> Bools:
        possible = np.array([*self.possible, False])
        outputs = np.minimum(self.chain.symbols(payloads), self.chain.size)
        valid: Bools = possible[outputs]
        return valid

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        steps = self.shape.steps
        one, other = (
            None if place > steps else place / steps for place in self.chain.worst_inputs(level)
        )
        return one, other

    def log_ratios(
        self, values: tuple[Any, Any], reports: Bytes, chains: Words, level: int
    ) -> Floats:
        laws = []
        for value in values:
            inputs, weights = zip(*self.prior(value, b"", b""), strict=True)
            shares = np.array(weights, dtype=float) / sum(weights)
            laws.append(shares @ np.exp(self.chain.log_matrices[level][list(inputs)]))
        outputs = self.chain.symbols(reports)
        with np.errstate(divide="ignore"):
            one, other = np.log(laws)
        return np.asarray(other[outputs] - one[outputs])


@frozen
class PiecewiseMechanism(WindowMechanism):
    """Report a cell of a grid, likelier within a window around the number than outside of it.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is that of a cell inside and outside the window.

    Relaxation
    ----------
    Exact, by the degradations of :mod:`mechanisms.number.steps`: the part of the reports that
    gives the least worst-case variance is turned into one bit of the same mean, and what is then
    too certain is replaced.

    Utility
    -------
    The mean is unbiased for the inputs, exactly. With w cells in a window that is g likelier than
    w cells elsewhere, n times the variance at x = 1/2 + y is P + (1/g − 1) y², P the second moment
    at 1/2, plus at most 1/(4 (points − 1)²) for the rounding. w is the odd number for which that
    is least for uniform numbers; the paper's w, which minimises P, is e^(−ε/2) (points − 1). From
    epsilon 1 on no number has a larger variance than with that, and uniform ones have 0.99, 0.95
    and 0.78 of it at epsilon 1, 2 and 4.

    Use
    ---
    For means at epsilon 2 and more, unless numbers crowd at the ends of their range; if they may,
    the Hybrid Mechanism.

    References
    ----------
    N. Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential
    Privacy", ICDE 2019, Algorithm 2.
    """

    epsilon: Epsilon
    points: int = 65
    missing: bool = False

    name = "piecewise"


@frozen
class HybridMechanism(WindowMechanism):
    """Answer by the Piecewise Mechanism or by one bit, so that the variance is the same everywhere.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is that of a cell, or of the bit. Which of both answered is seen.

    Relaxation
    ----------
    Exact, as that of :class:`PiecewiseMechanism`. At half the epsilon the variance is within 8 % of
    that of a mechanism made for it, where that is 2 or less.

    Utility
    -------
    The mean is unbiased for the inputs, exactly. With w cells in a window that is g likelier than
    w cells elsewhere, cells answer with probability g, and n times the variance is g P + (1 − g) D
    for every number, P the cells' second moment at 1/2 and D the bit's, plus at most
    1/(4 (points − 1)²) for the rounding. w is the odd number for which that is least, which
    is wider than the published window: on the worst data the variance is 0.94, 0.71 and 0.34 of the
    published mechanism's at epsilon 2, 4 and 8. Up to epsilon 0.6 all is the bit's.

    Use
    ---
    For means from epsilon 2 on, or where there is no public coin.

    References
    ----------
    N. Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential
    Privacy", ICDE 2019, section III-C.
    """

    epsilon: Epsilon
    points: int = 65
    missing: bool = False

    name = "hybrid"
    mixed = True


@frozen
class SquareWave(WindowMechanism):
    """Report a cell of a grid, likelier within a window made for estimating the distribution.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is that of a cell inside and outside the window.

    Relaxation
    ----------
    Exact: a report is replaced, with some probability, by a draw of its own.

    Utility
    -------
    The distribution is estimated by expectation, maximization and smoothing (EMS): biased, by an
    amount that depends on how smooth it is, without a standard error. The mean is unbiased, as that
    of the Piecewise Mechanism, with a somewhat larger variance.

    Use
    ---
    For the shape of a smooth distribution, on display. For quantiles with intervals, the random
    threshold.

    References
    ----------
    Z. Li, T. Wang, M. Lopuhaä-Zwakenberg, N. Li, B. Škorić, "Estimating Numerical Distributions
    under Local Differential Privacy", SIGMOD 2020, section 5.
    """

    epsilon: Epsilon
    points: int = 65
    missing: bool = False

    name = "square_wave"
    gives = "mean; quantiles and distribution, biased toward a smooth one"
    distribution = True

    @cached_property
    def _designed(self) -> tuple[Shape, Fraction]:
        shape = designs.square_wave_shape(self.points, self.missing, self.micros[-1])
        return shape, Fraction(1)
