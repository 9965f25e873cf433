"""Some coordinates of a vector, each by a mechanism on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen, replace
from mechanisms.levels import MAX_DECISION_EPSILON, Probabilities, certify, check_ladder
from mechanisms.number import inputs
from mechanisms.number.gridded import GridLadder, hybrid_ladder
from mechanisms.number.laws import worst_variance
from mechanisms.randomness import Source
from mechanisms.vector.coordinates import (
    MAX_SAMPLED,
    CoordinatesLadder,
    CoordinatesMechanism,
    check_dimensions,
)
from mechanisms.vector.draws import PackedChain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The variance of values uniform in [0, 1].
UNIFORM_VARIANCE = 1 / 12


@frozen
class SampledHybrid(CoordinatesMechanism):
    """Answer by the Hybrid Mechanism about a few coordinates of a vector, chosen by public coins.

    Parameters
    ----------
    epsilon : float
        From 1e-6 for each sampled coordinate to 40 for each, the nominal amount of the whole
        vector.
    dimensions : int
        In [1, 1024], the number of coordinates, each scaled to [0, 1].
    sampled : int, optional
        In [1, min(dimensions, 64)], how many different coordinates a report is about, each at
        epsilon / sampled; by default :func:`optimal_sampled_hybrid`.
    points : int
        3, 5, 9, 17, 33, 65, 129 or 257: a coordinate is first rounded at random to one of so many.
    metric : str
        Separates the coins of different metrics.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two vectors are neighbours: all coordinates can change. The largest likelihood ratio is
    exactly that of one coordinate to the power of ``sampled``. The coins are hashes of the chain
    id, which is drawn before the vector is looked at. That there is a vector is not protected.

    Relaxation
    ----------
    Each answer is relaxed as the Hybrid Mechanism on a grid; its coins stay.

    Utility
    -------
    With k of d coordinates and V the worst-case variance of the Hybrid Mechanism at ε/k, n times
    the variance of the mean of a coordinate X in [0, 1] is at most (d/k) (V + Var(X)) − Var(X),
    plus what the rounding adds.

    Use
    ---
    For means of the coordinates from epsilon 2 on: for 16 uniform coordinates the variance is 0.94
    of that of :class:`~mechanisms.vector.sampled_vector.SampledVector` at 2, 0.70 at 4 and 0.73 at
    8. Below, or for the distribution of a coordinate, that one.

    References
    ----------
    N. Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential
    Privacy", ICDE 2019, Algorithm 4.

    Examples
    --------
    >>> SampledHybrid(epsilon=6.0, dimensions=16).sampled
    2
    """

    dimensions: int
    sampled: int | None = None
    points: int = 33
    metric: str = ""

    def _build(self, micro: int) -> SampledHybridLadder:
        check_dimensions(self.dimensions, 1)
        if self.sampled is None:
            sampled = optimal_sampled_hybrid(self.dimensions, micro, self.points)
            object.__setattr__(self, "sampled", sampled)
        sampled = self.sampled or 0
        return sampled_hybrid_ladder(self.dimensions, sampled, self.points, [micro], self.metric)


@frozen
class SampledHybridLadder(CoordinatesLadder):
    """Some of the ``dimensions`` coordinates on a grid, relaxed along a ladder.

    Parameters
    ----------
    grid : GridLadder
        What every sampled coordinate goes through; its amounts are those of one coordinate.
    """

    grid: GridLadder

    @property
    def name(self) -> str:
        """``sampled_hybrid``; over a ladder of another mechanism, by that one's name."""
        return f"sampled_{self.grid.name}"

    @property
    def count_length(self) -> int:
        """A count for each coordinate and output."""
        return self.dimensions * self.grid.chain.size

    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the largest and the smallest probability of the output that costs most."""
        return self.grid.exact(level)

    def encode(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the chosen coordinates as inputs of the grid."""
        values, steps = self.values(symbol), self.grid.shape.steps
        return [inputs.encode(values[i], steps, False, source) for i in self.coordinates(seed)]

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        """Return both neighbouring inputs of each chosen coordinate, with their weights."""
        values, steps = self.values(symbol), self.grid.shape.steps
        return [inputs.prior(values[i], steps, False) for i in self.coordinates(seed)]

    def encode_many(
        self, symbols: Any, seeds: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return ``(n, sampled)`` inputs for ``(n, dimensions)`` numbers."""
        columns, steps = self.columns(symbols, seeds), self.grid.shape.steps
        return inputs.encode_many(columns.reshape(-1), steps, False, source).reshape(columns.shape)

    def cells(self, answers: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count an answer at its coordinate, then its output."""
        cells: NDArray[np.int64] = self.coordinates_many(seeds) * self.grid.chain.size + answers
        return cells


def sampled_hybrid_ladder(
    dimensions: int, sampled: int, points: int, ladder: Sequence[int], metric: str
) -> SampledHybridLadder:
    """Build a ladder of sampled coordinates through the Hybrid Mechanism.

    Parameters
    ----------
    dimensions, sampled, points : int
        As of :class:`SampledHybrid`.
    ladder : sequence of int
        Nominal micro-epsilons, increasing, at most 8; what does not divide by ``sampled`` is left.
    metric : str
        Separates the coins of different metrics.

    Raises
    ------
    ParameterError, UnrelatedLevelsError
        As :func:`mechanisms.registry.build`.
    """
    check_dimensions(dimensions, sampled)
    rungs = check_ladder(ladder, sampled)
    grid = hybrid_ladder(points, False, [micro // sampled for micro in rungs], metric)
    return over_coordinates(grid, dimensions, sampled, rungs)


def over_coordinates(
    grid: GridLadder, dimensions: int, sampled: int, rungs: tuple[int, ...]
) -> SampledHybridLadder:
    """Return the ladder that sends sampled coordinates through a ladder of a number.

    Parameters
    ----------
    grid : GridLadder
        Of a number that cannot be missing, with at most 1 / sampled of every amount.
    dimensions, sampled : int
    rungs : tuple of int
        Nominal micro-epsilons.
    """
    ratios = [(rung.p / rung.q) ** sampled for [rung] in map(grid.exact, range(grid.levels))]
    chain = PackedChain(grid.chain, sampled)
    amounts = certify(rungs, ratios)
    return SampledHybridLadder(grid.metric, amounts, chain, dimensions, replace(grid, metric=""))


@lru_cache(maxsize=256)
def optimal_sampled_hybrid(dimensions: int, micro: int, points: int = 33) -> int:
    """Return how many coordinates a report should be about, for the least variance.

    Parameters
    ----------
    dimensions : int
    micro : int
        Micro-epsilon of the whole report.
    points : int
        Of the grid.

    Returns
    -------
    int
        The first k for which (d/k) (V(ε/k) + 1/12) rises, V being the worst-case variance of one
        answer and 1/12 the variance of uniform values.

    Examples
    --------
    >>> [optimal_sampled_hybrid(64, epsilon * 1_000_000) for epsilon in (1, 4, 6, 16)]
    [1, 1, 2, 4]
    """
    check_dimensions(dimensions, 1)

    def variance(sampled: int) -> float:
        grid = hybrid_ladder(points, False, [micro // sampled], "")
        return (float(worst_variance(grid.shape, grid.laws[0])) + UNIFORM_VARIANCE) / sampled

    # Fewer could not take all of the epsilon.
    sampled = max(1, -(-micro // (MAX_DECISION_EPSILON * MICRO)))
    most = min(dimensions, MAX_SAMPLED)
    while sampled < most and micro > sampled and variance(sampled + 1) < variance(sampled):
        sampled += 1
    return min(sampled, most)
