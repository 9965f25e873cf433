"""Ladders of a number on a grid: the Piecewise and the Hybrid Mechanism, and the square wave."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.chains.finite import FiniteChain, FiniteDraw
from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.ladders import FiniteLadder
from mechanisms.levels import Probabilities, certify, check_ladder
from mechanisms.number import designs, inputs, steps
from mechanisms.number.laws import Law, Shape
from mechanisms.randomness import Source
from mechanisms.single import NumberMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class GridMechanism(NumberMechanism):
    """A mechanism for a number on a grid, at a single epsilon.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    points : int
        3, 5, 9, 17, 33, 65, 129 or 257; the number is first rounded at random to one of so many
        equally spaced inputs.
    missing : bool
        Whether a value can be missing, which is then one more output.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    points: int = 65
    missing: bool = False


@frozen
class PiecewiseMechanism(GridMechanism):
    """Report a cell of a grid, likelier within a window around the number than outside of it.

    Parameters
    ----------
    epsilon, points, missing
        As of :class:`GridMechanism`.

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

    Examples
    --------
    >>> PiecewiseMechanism(epsilon=2.0, points=33).certified
    2000000
    """

    def _build(self, micro: int) -> GridLadder:
        return piecewise_ladder(self.points, self.missing, [micro], "")


@frozen
class HybridMechanism(GridMechanism):
    """Answer by the Piecewise Mechanism or by one bit, so that the variance is the same everywhere.

    Parameters
    ----------
    epsilon, points, missing
        As of :class:`GridMechanism`.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is that of a cell, or of the bit. Which of both answered is seen.

    Relaxation
    ----------
    Exact, by the degradations of :mod:`mechanisms.number.steps`: the part of the cells that
    gives the least worst-case variance is turned into the bit, and what is then too certain is
    replaced. At half the epsilon the variance is within 8 % of that of a mechanism made for it,
    where that is 2 or less.

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

    Examples
    --------
    >>> HybridMechanism(epsilon=2.0, points=33).certified
    2000000
    """

    def _build(self, micro: int) -> GridLadder:
        return hybrid_ladder(self.points, self.missing, [micro], "")


@frozen
class SquareWave(GridMechanism):
    """Report a cell of a grid, likelier within a window made for estimating the distribution.

    Parameters
    ----------
    epsilon, points, missing
        As of :class:`GridMechanism`.

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

    Examples
    --------
    >>> SquareWave(epsilon=1.0, points=33).certified
    1000000
    """

    def _build(self, micro: int) -> GridLadder:
        return square_wave_ladder(self.points, self.missing, [micro], "")


@frozen
class GridLadder(FiniteLadder):
    """A number in [0, 1] on a grid, relaxed along a ladder.

    Parameters
    ----------
    kind : str
        The name in a plan.
    shape : Shape
    laws : tuple of Law
        The exact probabilities of every rung, weakest first.
    """

    kind: str
    shape: Shape
    laws: tuple[Law, ...]

    @property
    def name(self) -> str:
        """The name in a plan."""
        return self.kind

    @property
    def missing(self) -> bool:
        """Whether a value can be missing."""
        return self.shape.missing

    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the largest and the smallest probability of the output that costs most."""
        return (Probabilities(*self.laws[level].worst(self.shape)),)

    @cached_property
    def possible(self) -> tuple[bool, ...]:
        """Which outputs some rung can have: cells and ends may be there and never be drawn."""
        shape = self.shape
        columns = zip(*(law.columns(shape) for law in self.laws), strict=True)
        cell, end, gone = (any(column.largest for column in rungs) for rungs in columns)
        return (cell,) * shape.cells + (end,) * (2 * shape.ends) + (gone,) * shape.missing

    def _output(self, payload: bytes) -> int:
        output = super()._output(payload)
        if not self.possible[output]:
            raise ParameterError("the payload is none of this mechanism")
        return output

    def valid(self, payloads: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of ``(n, payload_width)`` payloads are possible outputs."""
        import numpy as np

        possible = np.array([*self.possible, False])
        valid: NDArray[np.bool_] = possible[np.minimum(self._reports(payloads), self.chain.size)]
        return valid

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return an input whose mean is the number."""
        return inputs.encode(symbol, self.shape.steps, self.missing, source)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return both neighbouring inputs with their weights."""
        return inputs.prior(symbol, self.shape.steps, self.missing)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return inputs for ``(n,)`` numbers, NaN being a missing one."""
        return inputs.encode_many(symbols, self.shape.steps, self.missing, source)


def piecewise_ladder(points: int, missing: bool, ladder: Sequence[int], metric: str) -> GridLadder:
    """Build a ladder of the Piecewise Mechanism on a grid."""
    rungs = check_ladder(ladder)
    design = designs.least_variance_design(points, missing, rungs[-1], mixed=False)
    return _grid_ladder("piecewise", design.shape, design.share, rungs, metric)


def hybrid_ladder(points: int, missing: bool, ladder: Sequence[int], metric: str) -> GridLadder:
    """Build a ladder of the Hybrid Mechanism on a grid."""
    rungs = check_ladder(ladder)
    design = designs.least_variance_design(points, missing, rungs[-1], mixed=True)
    return _grid_ladder("hybrid", design.shape, design.share, rungs, metric)


def square_wave_ladder(
    points: int, missing: bool, ladder: Sequence[int], metric: str
) -> GridLadder:
    """Build a ladder of the square wave on a grid."""
    rungs = check_ladder(ladder)
    shape = designs.square_wave_shape(points, missing, rungs[-1])
    return _grid_ladder("square_wave", shape, Fraction(1), rungs, metric)


def _grid_ladder(
    kind: str, shape: Shape, share: Fraction, rungs: tuple[int, ...], metric: str
) -> GridLadder:
    grains = designs.strongest(shape, share, rungs[-1])
    taken, laws = steps.steps_below(shape, designs.law_of(shape, grains), rungs)
    chain = FiniteChain(
        FiniteDraw(designs.rows_of(shape, grains)),
        tuple(FiniteDraw(steps.rows_of(shape, step)) for step in taken),
    )
    ratios = [most / least for most, least in (law.worst(shape) for law in laws)]
    return GridLadder(metric, certify(rungs, ratios), chain, kind, shape, laws)
