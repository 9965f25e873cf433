"""One sampled bit of a number, or several, which bits being public.

References
----------
G. Cormode, I. L. Markov, "Bit-efficient Numerical Aggregation and Stronger Privacy for Trust in
Federated Analytics", arXiv:2108.01521 (bit-pushing).
"""

from __future__ import annotations

from functools import cached_property

from mechanisms.arrays import Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.chain import Prior
from mechanisms.errors import check_int
from mechanisms.frozen import frozen
from mechanisms.number import grid
from mechanisms.number.mechanism import AnswerMechanism, QuestionMechanism, answer_text
from mechanisms.number.questions import BitQuestion
from mechanisms.number.several import SeveralAnswers, coin, coin_column
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context

#: A report has at most so many answers.
MAX_DRAWS = 32


class BitMechanism(QuestionMechanism):
    """Answers about sampled bits of a number."""

    bits: int

    def _check(self) -> None:
        check_int("bits", self.bits, 1, grid.MAX_BITS)

    @cached_property
    def question(self) -> BitQuestion:
        return BitQuestion(self.bits)

    def _worst(self, level: int, n: int) -> float:
        # Bits of a number vary most if all have its mean.
        same = (mean / 20 for mean in range(21))
        return max(self._noise_of(level, mean) + mean * (1 - mean) for mean in same)


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

    def _coins(self, seed: int) -> list[int]:
        return [coin(seed, place) for place in range(self.count)]

    def true_answers(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the bits asked for, each of a number rounded anew; 2 where it is missing."""
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return [grid.MISSING] * self.count
        return [self.question.answer(symbol, asked, source) for asked in self._coins(seed)]

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        answers = self.chain.unpack(self.output_of(payload))
        return "; ".join(
            answer_text(self.question, answer, asked, context)
            for answer, asked in zip(answers, self._coins(self.coin(chain)), strict=True)
        )

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return [((grid.MISSING, 1),)] * self.count
        return [self.question.prior(symbol, asked) for asked in self._coins(seed)]

    def true_answers_many(self, symbols: Any, seeds: Words, source: Source) -> Ints:
        values, gone = grid.unit_array(symbols, self.missing)
        values = np.where(gone, 0.0, values)
        out = np.empty((len(values), self.count), dtype=np.int64)
        for place in range(self.count):
            out[:, place] = self.question.answers(values, coin_column(seeds, place), source)
        out[gone] = grid.MISSING
        return out

    def places(self, seeds: Words) -> Ints:
        asked = (coin_column(seeds, place) for place in range(self.count))
        return np.stack([self.question.strata_of(each) for each in asked], axis=1)
