"""Some coordinates of a vector, which ones and what is asked of each being public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mechanisms.arrays import ArrayLike, Floats, Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.chain import Prior
from mechanisms.errors import check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.noise import Noise
from mechanisms.number import grid
from mechanisms.number.mechanism import answer_noise
from mechanisms.number.several import coin, coin_column
from mechanisms.randomness import Source
from mechanisms.vector.coordinates import MAX_DIMENSIONS, MAX_SAMPLED, CoordinateSampling
from mechanisms.vector.optimum import optimal_sampled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context
    from mechanisms.number.answers import NumericEstimates

#: Bins of the thresholds that are kept apart in counts, a coordinate: the 4 leading bits.
VECTOR_BINS = 16


@frozen
class SampledVector(CoordinateSampling):
    """Answer by randomized response about a few coordinates of a vector, chosen by public coins.

    ``bits``, in [0, 32], asks for one bit of a coordinate, rounded at random to a grid of 2**bits
    points; 0 asks whether the coordinate is above a random threshold.

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
    Thresholds unless the bits are asked for. All bits of each sampled coordinate, the epsilon split
    over them, are not offered: for uniform values, at the best number of coordinates for each, two
    split bits have 11 % more variance than a threshold and four have 38 % more, and on any data
    they tell less of the distribution.

    References
    ----------
    N. Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential
    Privacy", ICDE 2019, section 4 (sampling of coordinates).
    """

    epsilon: Epsilon
    dimensions: int
    sampled: int = 0
    bits: int = 0
    metric: str = ""

    name = "sampled_vector"

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of coordinates of least variance, each asked for a threshold."""
        sampled = 1
        if 1 <= given["dimensions"] <= MAX_DIMENSIONS and micro > 0:
            sampled = min(optimal_sampled(given["dimensions"], micro / MICRO), MAX_SAMPLED)
        return {"sampled": sampled, "bits": 0}

    def _best_sampled(self, micro: int) -> int:
        return min(optimal_sampled(self.dimensions, micro / MICRO), MAX_SAMPLED)

    def _check(self) -> None:
        super()._check()
        check_int("bits", self.bits, 0, grid.MAX_BITS)

    @property
    def slots(self) -> int:
        """Slots of a coordinate's answers: bits, most significant first, or bins."""
        return self.bits or VECTOR_BINS

    @property
    def strata(self) -> int:
        """Answers are counted by coordinate, then slot."""
        return self.dimensions * self.slots

    @property
    def coordinate_joins(self) -> Sequence[Ints]:
        return grid.bit_starts(self.bits) if self.bits else grid.bin_starts(VECTOR_BINS)

    def coin_law(self) -> Floats:
        from mechanisms.number.answers import bit_weights

        law = bit_weights(self.bits) if self.bits else np.full(self.slots, 1 / self.slots)
        return np.tile(law, self.dimensions) / self.dimensions

    def true_answers(self, symbol: Any, seed: int, source: Source) -> list[int]:
        values = self.values(symbol)
        out = []
        for place, coordinate in enumerate(self.coordinates(seed)):
            asked, value = coin(seed, self.sampled + place), values[coordinate]
            if self.bits:
                point = grid.round_to_grid(value, (1 << self.bits) - 1, source)
                out.append(point >> grid.exponent_of(asked, self.bits) & 1)
            else:
                out.append(int(value > grid.threshold_of(asked)))
        return out

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        values = self.values(symbol)
        out: list[Prior] = []
        for place, coordinate in enumerate(self.coordinates(seed)):
            asked, value = coin(seed, self.sampled + place), values[coordinate]
            if self.bits:
                out.append(grid.bit_prior(value, self.bits, grid.exponent_of(asked, self.bits)))
            else:
                out.append(((int(value > grid.threshold_of(asked)), 1),))
        return out

    def true_answers_many(self, symbols: Any, seeds: Words, source: Source) -> Ints:
        columns = self.columns(symbols, seeds)
        out = np.empty(columns.shape, dtype=np.int64)
        for place, column in enumerate(columns.T):
            asked = coin_column(seeds, self.sampled + place)
            if self.bits:
                points = grid.rounds_to_grid(column, (1 << self.bits) - 1, source)
                out[:, place] = points >> grid.exponents_of(asked, self.bits) & 1
            else:
                out[:, place] = column > grid.thresholds_of(asked)
        return out

    def slots_of(self, seeds: Words) -> Ints:
        """Return the slot of each answer within its coordinate: ``(n, sampled)``."""
        asked = [coin_column(seeds, self.sampled + place) for place in range(self.sampled)]
        if self.bits:
            exponents = [grid.exponents_of(coins, self.bits) for coins in asked]
            return self.bits - 1 - np.stack(exponents, axis=1)
        shift = np.uint64(64 - (VECTOR_BINS.bit_length() - 1))
        return (np.stack(asked, axis=1) >> shift).astype(np.int64)

    def places(self, seeds: Words) -> Ints:
        return self.coordinates_many(seeds) * self.slots + self.slots_of(seeds)

    def _of_coordinate(
        self, cells: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.answers import bit_estimates, threshold_estimates

        cells, pairs = cells.reshape(len(cells), self.slots, 2), self.pairs()
        if self.bits:
            return bit_estimates(cells, pairs, low, high, strata=strata)
        share = self.sampled / self.dimensions
        return threshold_estimates(cells, pairs, low, high, quantiles, share, strata)

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        """The worst values of thresholds have the distribution function 1/2 + (x − 1/2)/r."""
        from mechanisms.estimators.variance import bit_means
        from mechanisms.number.answers import bit_weights

        ratio = self.dimensions / self.sampled
        if values is None:
            x = np.clip(0.5 + ratio * ((np.arange(1024) + 0.5) / 1024 - 0.5), 0.0, 1.0)
        else:
            x = np.asarray(values, dtype=np.float64)
        answers = max(n / ratio, 1.0)
        if self.bits:
            means, weights = bit_means(x, self.bits), bit_weights(self.bits)
            between = 0.25 if values is None else float(weights @ (means * (1 - means)))
            tails = np.cumsum(weights[::-1])[::-1]
            extra = max(int((answers * tails >= grid.EXPECTED_REPORTS).sum()) - 1, 0)
        else:
            most = min(max(int(answers) // grid.EXPECTED_REPORTS, 1), VECTOR_BINS)
            strata = 1 << (most.bit_length() - 1)
            above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
            between, extra = float((above * (1 - above)).mean()), strata - 1
        noise = answer_noise(self.probabilities(level)[0], 2, float(x.mean()))
        taken = 0.0 if self.bits and values is None else float(x.var())
        return ratio * (noise + between) * (1 + extra / answers) - taken

    def _said(self, place: int, answer: int, seed: int, context: Context) -> str:
        asked = coin(seed, self.sampled + place)
        if self.bits:
            return grid.bit_said(answer, grid.exponent_of(asked, self.bits), self.bits)
        side = "above" if answer else "at most"
        return f"{side} about {context.number(grid.threshold_of(asked))}"

    def noise(self, level: int) -> Noise | None:
        return Noise.of(*self.exact(level)[0])
