"""Some coordinates of a vector, which ones and what is asked of each being public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from mechanisms.arrays import ArrayLike, Floats, Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.chain import Prior
from mechanisms.errors import check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.noise import Noise
from mechanisms.number import grid
from mechanisms.number.mechanism import answer_noise
from mechanisms.number.questions import BitQuestion, ThresholdQuestion, spread_within
from mechanisms.number.several import coin, coin_column
from mechanisms.randomness import Source
from mechanisms.vector.coordinates import MAX_DIMENSIONS, MAX_SAMPLED, CoordinateSampling
from mechanisms.vector.optimum import optimal_sampled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context
    from mechanisms.number.answers import NumericEstimates
    from mechanisms.number.questions import NumberQuestion

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

    def _check(self) -> None:
        super()._check()
        check_int("bits", self.bits, 0, grid.MAX_BITS)

    @cached_property
    def question(self) -> NumberQuestion:
        """The question about each sampled coordinate."""
        return BitQuestion(self.bits) if self.bits else ThresholdQuestion(VECTOR_BINS)

    @property
    def strata(self) -> int:
        """Answers are counted by coordinate, then by what was asked of it."""
        return self.dimensions * self.question.size

    @property
    def coordinate_joins(self) -> Sequence[Ints]:
        return self.question.joins

    def coin_law(self) -> Floats:
        return np.tile(self.question.law(), self.dimensions) / self.dimensions

    def _asked(self, values: Sequence[float], seed: int) -> list[tuple[float, int]]:
        """Return the values that the coins of ``seed`` choose, each with its question's coin."""
        chosen = enumerate(self.coordinates(seed), start=self.sampled)
        return [(values[coordinate], coin(seed, place)) for place, coordinate in chosen]

    def true_answers(self, symbol: Any, seed: int, source: Source) -> list[int]:
        asked = self._asked(self.values(symbol), seed)
        return [self.question.answer(value, about, source) for value, about in asked]

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        asked = self._asked(self.values(symbol), seed)
        return [self.question.prior(value, about) for value, about in asked]

    def true_answers_many(self, symbols: Any, seeds: Words, source: Source) -> Ints:
        columns = self.columns(symbols, seeds)
        out = np.empty(columns.shape, dtype=np.int64)
        for place, column in enumerate(columns.T):
            about = coin_column(seeds, self.sampled + place)
            out[:, place] = self.question.answers(column, about, source)
        return out

    def slots_of(self, seeds: Words) -> Ints:
        """Return the stratum of each answer within its coordinate: ``(n, sampled)``."""
        about = (coin_column(seeds, self.sampled + place) for place in range(self.sampled))
        return np.stack([self.question.strata_of(each) for each in about], axis=1)

    def places(self, seeds: Words) -> Ints:
        return self.coordinates_many(seeds) * self.question.size + self.slots_of(seeds)

    def _of_coordinate(
        self, cells: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.answers import question_estimates

        asked, share = self.question, self.sampled / self.dimensions
        cells, ends = cells.reshape(len(cells), asked.size, 2), (low, high)
        return question_estimates(asked, cells, self.pairs(), ends, quantiles, strata, share=share)

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        """The worst values of thresholds have the distribution function 1/2 + (x − 1/2)/r."""
        ratio = self.dimensions / self.sampled
        if values is None:
            x = np.clip(0.5 + ratio * ((np.arange(1024) + 0.5) / 1024 - 0.5), 0.0, 1.0)
        else:
            x = np.asarray(values, dtype=np.float64)
        answers = max(n / ratio, 1.0)
        between, extra = spread_within(self.question, x, answers)
        taken = float(x.var())
        if self.bits and values is None:
            between, taken = 0.25, 0.0
        noise = answer_noise(self.probabilities(level)[0], 2, float(x.mean()))
        return ratio * (noise + between) * (1 + extra / answers) - taken

    def _said(self, place: int, answer: int, seed: int, context: Context) -> str:
        return self.question.said(answer, coin(seed, self.sampled + place), context)

    def noise(self, level: int) -> Noise | None:
        return Noise.of(*self.exact(level)[0])
