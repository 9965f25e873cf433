"""One sampled bit of a number, or several, which bits being public.

References
----------
G. Cormode, I. L. Markov, "Bit-efficient Numerical Aggregation and Stronger Privacy for Trust in
Federated Analytics", arXiv:2108.01521 (bit-pushing).
"""

from __future__ import annotations

from collections.abc import Sequence

from mechanisms.arrays import ArrayLike, Floats, Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.chain import Prior
from mechanisms.errors import check_int
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS
from mechanisms.number import grid
from mechanisms.number.mechanism import AnswerMechanism, NumberMechanism, answer_noise
from mechanisms.number.several import SeveralAnswers, coin, coin_column
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context
    from mechanisms.number.answers import NumericEstimates

#: A report has at most so many answers.
MAX_DRAWS = 32


class BitMechanism(NumberMechanism):
    """Answers about sampled bits of a number."""

    bits: int

    def _check(self) -> None:
        check_int("bits", self.bits, 1, grid.MAX_BITS)

    @property
    def strata(self) -> int:
        """Answers are counted by bit, most significant first."""
        return self.bits

    @property
    def joins(self) -> Sequence[Ints]:
        return grid.bit_starts(self.bits)

    @property
    def resolution(self) -> int:
        return (1 << self.bits) - 1

    def _numeric(
        self, table: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.answers import bit_estimates

        cells = table.reshape(len(table), self.bits, -1)
        return bit_estimates(cells, self.pairs(), low, high, self.answered, strata)

    def coin_law(self) -> Floats:
        from mechanisms.number.answers import bit_weights

        return bit_weights(self.bits)

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        from mechanisms.estimators.variance import bit_means
        from mechanisms.number.answers import bit_weights

        pair, symbols = self.probabilities(level)[0], 2 + self.missing
        if values is None:
            # Bits of a number vary most if all have its mean.
            same = (mean / 20 for mean in range(21))
            worst = max(answer_noise(pair, symbols, mean) + mean * (1 - mean) for mean in same)
            return worst / self.answered
        x = np.asarray(values, dtype=np.float64)
        means, weights = bit_means(x, self.bits), bit_weights(self.bits)
        between = float(weights @ (means * (1 - means)))
        noise = answer_noise(pair, symbols, float(x.mean()))
        alone = int((n * np.cumsum(weights[::-1])[::-1] >= grid.EXPECTED_REPORTS).sum())
        one = (noise + between) * (1 + max(alone - 1, 0) / n) - float(x.var())
        return one / self.answered


@frozen
class SampledBit(BitMechanism, AnswerMechanism):
    """Report one bit of a number by randomized response; which of its 1 to 32 is a public coin.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is p/q. The coin is a hash of the chain id, which is drawn before the value is looked at.

    Relaxation
    ----------
    Exact, as binary randomized response (of three answers where a value can be missing); the
    bit that is asked for stays the same along the chain.

    Utility
    -------
    A bit is sampled with its share of the range, w_i. On [-1, 1], n times the variance of the
    stratified mean is 4 Σ w_i (π_i(1−π_i) + f(ε)) − Var(x), π_i the means of the bits and
    f(ε) = e^ε/(e^ε−1)².

    Use
    ---
    Where the means of bits are wanted besides that of the number, up to epsilon 2; from then on
    several sampled bits. For the mean alone, the random threshold.
    """

    epsilon: Epsilon
    bits: int
    missing: bool = False
    metric: str = ""

    name = "sampled_bit"
    gives = "mean, and the share of each of {bits} bits"

    def exponent(self, chain: bytes) -> int:
        """Return the exponent of the bit that a chain is about, 0 being the least significant."""
        return grid.exponent_of(self.coin(chain), self.bits)

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return the chain's bit of the number, rounded to the grid; 2 where it is missing."""
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return grid.MISSING
        return grid.round_to_grid(symbol, self.resolution, source) >> self.exponent(chain) & 1

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return ((grid.MISSING, 1),)
        below, grains = grid.split(symbol, self.resolution)
        exponent = self.exponent(chain)
        return ((below >> exponent & 1, GRAINS - grains), ((below + 1) >> exponent & 1, grains))

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        values, gone = grid.unit_array(symbols, self.missing)
        points = grid.rounds_to_grid(np.where(gone, 0.0, values), self.resolution, source)
        exponents = grid.exponents_of(self.coins_of(chains), self.bits)
        return np.where(gone, grid.MISSING, points >> exponents & 1)

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints:
        return self.bits - 1 - grid.exponents_of(self.coins_of(chains), self.bits)

    def _said(self, answer: int, chain: bytes, context: Context) -> str:
        return grid.bit_said(answer, self.exponent(chain), self.bits)


@frozen
class SampledBits(SeveralAnswers, BitMechanism):
    """Report several bits of a number by randomized response; which bits are public coins.

    ``bits`` and ``count``, the number of answers, lie in [1, 32], epsilon in [1e-6, 40 count]. For
    each answer, at epsilon / count, the number is rounded anew.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours. The answers are drawn
    independently, a bit may be drawn twice, and all answers can differ: the largest likelihood
    ratio is exactly (p/q)**count. The coins are hashes of the chain id, which is drawn before the
    value is looked at.

    Relaxation
    ----------
    Each answer is relaxed as randomized response over two or three symbols.

    Utility
    -------
    On [-1, 1], without strata, a user's variance is (C² − x²) / k with
    C = (e^(ε/k)+1)/(e^(ε/k)−1), k the number of answers.

    Use
    ---
    One bit is best up to epsilon 2, two at 4, four at 8 (worst case). For the mean alone other
    mechanisms are better there; this one gives the means of the bits.
    """

    epsilon: Epsilon
    bits: int
    count: int
    missing: bool = False
    metric: str = ""

    name = "sampled_bits"
    gives = "mean, and the share of each of {bits} bits, {count} bits a report"

    def _check(self) -> None:
        super()._check()
        check_int("count", self.count, 1, MAX_DRAWS)

    @property
    def answered(self) -> int:
        return self.count

    @property
    def symbols(self) -> int:
        return 2 + self.missing

    def exponents(self, seed: int) -> list[int]:
        """Return the exponents of the bits asked for, 0 being the least significant."""
        return [grid.exponent_of(coin(seed, place), self.bits) for place in range(self.count)]

    def true_answers(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the bits asked for, each of a number rounded anew; 2 where it is missing."""
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return [grid.MISSING] * self.count
        return [
            grid.round_to_grid(symbol, self.resolution, source) >> exponent & 1
            for exponent in self.exponents(seed)
        ]

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        answers = self.chain.unpack(self.output_of(payload))
        exponents = self.exponents(self.seed(chain))
        return "; ".join(
            "missing" if answer == grid.MISSING else grid.bit_said(answer, exponent, self.bits)
            for answer, exponent in zip(answers, exponents, strict=True)
        )

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return [((grid.MISSING, 1),)] * self.count
        return [grid.bit_prior(symbol, self.bits, exponent) for exponent in self.exponents(seed)]

    def true_answers_many(self, symbols: Any, seeds: Words, source: Source) -> Ints:
        values, gone = grid.unit_array(symbols, self.missing)
        values = np.where(gone, 0.0, values)
        out = np.empty((len(values), self.count), dtype=np.int64)
        for place in range(self.count):
            points = grid.rounds_to_grid(values, self.resolution, source)
            out[:, place] = points >> grid.exponents_of(coin_column(seeds, place), self.bits) & 1
        out[gone] = grid.MISSING
        return out

    def places(self, seeds: Words) -> Ints:
        columns = [grid.exponents_of(coin_column(seeds, i), self.bits) for i in range(self.count)]
        return self.bits - 1 - np.stack(columns, axis=1)
