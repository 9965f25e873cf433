"""Some coordinates of a vector, which ones and what is asked of each being public."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.errors import check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.number.grid import (
    MAX_BITS,
    exponent_of,
    exponents_of,
    round_to_grid,
    rounds_to_grid,
    threshold_of,
    thresholds_of,
)
from mechanisms.number.sampled_bits import bit_prior
from mechanisms.randomness import Source
from mechanisms.vector.coordinates import (
    MAX_SAMPLED,
    CoordinatesLadder,
    CoordinatesMechanism,
    check_dimensions,
)
from mechanisms.vector.draws import coin, coin_column, packed_chain
from mechanisms.vector.optimum import optimal_sampled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bins of the thresholds that are kept apart in counts, a coordinate: the 4 leading bits.
VECTOR_BINS = 16


@frozen
class SampledVector(CoordinatesMechanism):
    """Answer by randomized response about a few coordinates of a vector, chosen by public coins.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40 sampled], the nominal amount of the whole vector.
    dimensions : int
        In [1, 1024], the number of coordinates, each scaled to [0, 1].
    sampled : int, optional
        In [1, min(dimensions, 64)], how many different coordinates a report is about, each at
        epsilon / sampled; by default :func:`~mechanisms.vector.optimum.optimal_sampled`.
    bits : int
        0 asks whether a coordinate is above a random threshold; 1 to 32 asks for one bit of the
        coordinate, rounded at random to a grid of 2**bits points.
    metric : str
        Separates the coins of different metrics.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two vectors are neighbours: all coordinates can change. All answers can then change, so
    that the largest likelihood ratio is exactly (p/q)**sampled. The coins are hashes of the chain
    id, which is drawn before the vector is looked at. That there is a vector is not protected.

    Relaxation
    ----------
    Each answer is relaxed as binary randomized response; its coins stay.

    Utility
    -------
    With k of d coordinates and f(ε) = e^ε/(e^ε−1)², n times the variance of the mean of a
    coordinate X in [0, 1] is to leading order (d/k) (f(ε/k) + E|X−X'|/2) − Var(X) for thresholds,
    and (d/k) (f(ε/k) + Σ w_i π_i(1−π_i)) − Var(X) for bits of weights w_i and means π_i. The
    former is never more: |X−X'| is at most the weighted sum of the bits in which they differ.

    Use
    ---
    For the means of many numbers of one person, below epsilon 2, or with their distributions;
    from there on :class:`~mechanisms.vector.sampled_hybrid.SampledHybrid` is better for means.
    Thresholds unless the bits are asked for.
    All bits of each sampled coordinate, the epsilon split over them, are not offered: for uniform
    values, at the best number of coordinates for each, two split bits have 11 % more variance than
    a threshold and four have 38 % more, and on any data they tell less of the distribution.

    References
    ----------
    N. Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential
    Privacy", ICDE 2019, section 4 (sampling of coordinates).

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.testing import SeededSource
    >>> vector = SampledVector(epsilon=4.0, dimensions=3, sampled=2)
    >>> vector.certified
    4000000
    >>> chains = np.arange(4, dtype=np.uint64).reshape(2, 2)
    >>> vectors = np.array([[0.1, 0.5, 0.9], [1.0, 0.0, 0.2]])
    >>> vector.randomize(vectors, chains, SeededSource(1)).shape
    (2, 1)
    """

    dimensions: int
    sampled: int | None = None
    bits: int = 0
    metric: str = ""

    def _build(self, micro: int) -> SampledVectorLadder:
        check_dimensions(self.dimensions, 1)
        if self.sampled is None:
            sampled = min(optimal_sampled(self.dimensions, micro / MICRO), MAX_SAMPLED)
            object.__setattr__(self, "sampled", sampled)
        sampled = self.sampled or 0
        return sampled_vector_ladder(self.dimensions, sampled, self.bits, [micro], self.metric)


@frozen
class SampledVectorLadder(CoordinatesLadder):
    """Answers about some of the ``dimensions`` coordinates, relaxed along a ladder."""

    name = "sampled_vector"

    bits: int

    @property
    def slots(self) -> int:
        """What is told apart of a coordinate: bits, most significant first, or bins."""
        return self.bits or VECTOR_BINS

    @property
    def count_length(self) -> int:
        """A count for each coordinate, slot and answer."""
        return self.dimensions * self.slots * 2

    def encode(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the answers about the chosen coordinates of a sequence of numbers."""
        values = self.values(symbol)
        out = []
        for place, coordinate in enumerate(self.coordinates(seed)):
            asked, value = coin(seed, self.count + place), values[coordinate]
            if self.bits:
                point = round_to_grid(value, self.bits, source)
                out.append(point >> exponent_of(asked, self.bits) & 1)
            else:
                out.append(int(value > threshold_of(asked)))
        return out

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        """Return the answers with their weights: two where a coordinate is rounded."""
        values = self.values(symbol)
        out: list[Prior] = []
        for place, coordinate in enumerate(self.coordinates(seed)):
            asked, value = coin(seed, self.count + place), values[coordinate]
            if self.bits:
                out.append(bit_prior(value, self.bits, exponent_of(asked, self.bits)))
            else:
                out.append(((int(value > threshold_of(asked)), 1),))
        return out

    def encode_many(
        self, symbols: Any, seeds: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return ``(n, sampled)`` answers for ``(n, dimensions)`` numbers."""
        import numpy as np

        columns = self.columns(symbols, seeds)
        out = np.empty(columns.shape, dtype=np.int64)
        for place, column in enumerate(columns.T):
            asked = coin_column(seeds, self.count + place)
            if self.bits:
                points = rounds_to_grid(column, self.bits, source)
                out[:, place] = points >> exponents_of(asked, self.bits) & 1
            else:
                out[:, place] = column > thresholds_of(asked)
        return out

    def places(self, seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the slot of each answer within its coordinate: ``(n, sampled)``."""
        import numpy as np

        asked = [coin_column(seeds, self.count + place) for place in range(self.count)]
        if self.bits:
            exponents = [exponents_of(coins, self.bits) for coins in asked]
            return self.bits - 1 - np.stack(exponents, axis=1)
        shift = np.uint64(64 - (VECTOR_BINS.bit_length() - 1))
        return (np.stack(asked, axis=1) >> shift).astype(np.int64)

    def cells(self, answers: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count an answer at its coordinate, then its slot, then what it says."""
        cells: NDArray[np.int64] = self.coordinates_many(seeds) * self.slots + self.places(seeds)
        return cells * 2 + answers


def sampled_vector_ladder(
    dimensions: int, sampled: int, bits: int, ladder: Sequence[int], metric: str
) -> SampledVectorLadder:
    """Build a ladder of answers about sampled coordinates.

    Parameters
    ----------
    dimensions, sampled, bits : int
        As of :class:`SampledVector`.
    ladder : sequence of int
        Nominal micro-epsilons, increasing, at most 8.
    metric : str
        Separates the coins of different metrics.

    Raises
    ------
    ParameterError, UnrelatedLevelsError
        As :func:`mechanisms.registry.build`.
    """
    check_dimensions(dimensions, sampled)
    check_int("bits", bits, 0, MAX_BITS)
    chain, amounts = packed_chain(2, sampled, ladder)
    return SampledVectorLadder(metric, amounts, chain, dimensions, bits)
