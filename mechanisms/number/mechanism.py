"""The common part of all mechanisms for a number."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from mechanisms.arrays import ArrayLike, Floats, Ints, Words, np
from mechanisms.base import ChainCoins, Mechanism
from mechanisms.chains.chain import Prior
from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.errors import ParameterError
from mechanisms.noise import Noise
from mechanisms.number.grid import BINS, MISSING, QUANTILES, check_unit, unit_array
from mechanisms.number.questions import BitQuestion, spread_within
from mechanisms.randomness import Source, some_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from mechanisms.estimate import Estimate
    from mechanisms.experiments import Scored, Scores
    from mechanisms.items import Context, Item
    from mechanisms.number.answers import NumericEstimates
    from mechanisms.number.questions import NumberQuestion
    from mechanisms.planner.targets import Assumed, Precision


class NumberMechanism(Mechanism):
    """A mechanism for a number in [0, 1], or where ``missing``, for None (NaN among many).

    Values are clipped to the plan's range and scaled; estimates are scaled back. A mechanism with
    ``bits`` or ``points`` first rounds a number at random, without bias, to a grid of 2**bits or of
    so many points. A missing value is answered like one more number.
    """

    types: ClassVar[tuple[str, ...]] = ("number",)
    gives = "mean"
    uncompared = ""

    missing: bool

    def numeric(
        self,
        counts: ArrayLike,
        low: float = 0.0,
        high: float = 1.0,
        quantiles: Sequence[float] = QUANTILES,
        *,
        strata: int = BINS,
    ) -> NumericEstimates:
        """Estimate the mean, and what else the reports say.

        ``counts`` are those of the newest reports, by level, as :meth:`accumulate` lays them out:
        ``(levels, count_length)``; ``low`` and ``high`` the plan's range. ``quantiles``, in (0, 1),
        are estimated by random threshold and square wave only; ``strata`` are told apart by coin,
        at most.

        All levels have equal weights. ``threshold`` and ``sampled_bit`` are post-stratified by
        threshold and by bit (see :mod:`mechanisms.number.strata`). Threshold bins are joined to a
        power of two of at most n/20 strata. The least significant of sampled bits share a stratum
        until it expects as many reports; a bit is drawn with a probability proportional to its
        weight, so the plain average over such a stratum is unbiased for its part.

        The mean of the values present is a ratio; its standard error is the delta method's, and
        its bias of order 1/n. That for ``threshold`` subtracts the smallest variance of values that
        agrees with the estimated distribution; bit means do not bound that variance from below: for
        ``sampled_bit`` nothing is subtracted, and the interval covers more than it states.

        >>> from mechanisms.number.random_threshold import RandomThreshold
        >>> result = RandomThreshold(1.0).numeric([[7, 9] * 64], 2.0, 5.0)
        >>> round(result.mean.value, 2), round(result.mean.standard_error, 2)
        (3.91, 0.09)
        """
        from mechanisms.estimators.frequency import count_table

        table = count_table(self, counts)
        check_estimated(low, high, quantiles)
        return self._numeric(table, low, high, quantiles, strata)

    @abstractmethod
    def _numeric(
        self, table: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        """Return the estimates of counts that have been checked."""

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        from dataclasses import replace

        from mechanisms.items import Item, Method

        found = self.numeric(counts, *context.range, strata=context.strata)
        yield Item("mean", "", self._reached(found, context), context.unit)
        if found.missing is not None:
            yield Item("missing", "", found.missing)
        method = Method.SMOOTHED if found.smoothed else Method.MONOTONE
        for probability, each in (found.quantiles or {}).items():
            yield Item("quantile", repr(probability), each, context.unit, method=method)
        for number, each in enumerate(found.bit_means or (), start=1):
            # A forged report can be about any bit, so that no bound is known.
            yield Item("bit", str(number), replace(each, reach=None))
        for at, each in found.points():
            yield Item("cdf", repr(at), each, method=method)

    def _reached(self, found: NumericEstimates, context: Context) -> Estimate:
        """Return the mean with what forged reports do to it."""
        from dataclasses import replace

        (low, high), mean = context.range, found.mean
        present = 1.0 if found.missing is None else 1 - found.missing.value
        if not (math.isfinite(mean.standard_error) and present > 0):
            return mean
        share = (mean.value - low) / (high - low)
        reach = [self.reach_of_mean(level, share) for level in range(self.levels)]
        if None in reach:
            return mean
        scale = (high - low) / present
        reached = tuple((scale * a, scale * b) for a, b in filter(None, reach))
        if found.missing is None:
            return replace(mean, reach=reached)
        if found.missing.reach is None:
            return mean
        # A share of missing values that is too low is a share of present ones that is too high.
        raised = [short / present for _, short in found.missing.reach]
        return replace(
            mean, reach=tuple((*each, more) for each, more in zip(reached, raised, strict=True))
        )

    def parts(self, level: int) -> tuple[Sequence[float], Sequence[float]] | None:
        """Return what each output adds to the mean, in [0, 1], and to the share present."""
        return None

    def reach_of_mean(self, level: int, mean: float) -> tuple[float, float] | None:
        """Return :meth:`reach` of a mean, in [0, 1], times the share of values that are present."""
        if (parts := self.parts(level)) is None:
            return None if self.missing else self.reach(level)
        outputs = [value - mean * present for value, present in zip(*parts, strict=True)]
        truths = [-mean, 1 - mean] + [0.0] * self.missing
        return max(outputs) - min(truths), max(truths) - min(outputs)

    @abstractmethod
    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        """Return n times the variance of the estimated mean, all n reports being of one level.

        The values are fixed, the randomization is random, and none is missing, though it could be.
        ``values``, in [0, 1], are a picture of the data; by default those for which the variance is
        largest.
        """

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        return precision_of_mean("the mean", partial(self.variance, level), assumed, scale)

    @property
    def why_not_compared(self) -> str:
        ratio = "the mean of numbers that can be missing is a ratio, and no average over reports"
        return ratio if self.missing else self.uncompared

    def scored(self, counts: Ints, level: int, context: Context) -> Iterator[Scored]:
        """Yield the mean; where values can be missing it is a ratio, and nothing is yielded."""
        from mechanisms.experiments import Scored

        if (scores := self.scores(level)) is not None:
            answers = self.answers_of(counts)
            yield Scored("mean", "", scores.values, answers, context.unit, *context.range)

    def answers_of(self, counts: Ints) -> Ints:
        """Return how many reports have each score, of the counts of a level."""
        return counts

    def noise(self, level: int) -> Noise | None:
        return Noise.of(*self.exact(level)[0])

    @property
    def resolution(self) -> int:
        """The steps between 0 and 1 at which an audit takes numbers."""
        return 1 << 32

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        return 0.0, 1.0

    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        missing, steps = [None] * self.missing, self.resolution
        numbers = {0, steps, *some_below(steps + 1, count - 2 - len(missing), source)}
        return [number / steps for number in sorted(numbers)] + missing


class QuestionMechanism(NumberMechanism):
    """A mechanism whose answers, each no or yes, are to questions that public coins choose."""

    @property
    @abstractmethod
    def question(self) -> NumberQuestion:
        """The question."""

    @property
    def strata(self) -> int:
        """Answers are counted by what was asked."""
        return self.question.size

    @property
    def joins(self) -> Sequence[Ints]:
        return self.question.joins

    def coin_law(self) -> Floats:
        return self.question.law()

    @property
    def resolution(self) -> int:
        return self.question.resolution

    def _numeric(
        self, table: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.answers import question_estimates

        cells, pairs = table.reshape(len(table), self.strata, -1), self.pairs()
        asked, ends, draws = self.question, (low, high), self.answered
        return question_estimates(asked, cells, pairs, ends, quantiles, strata, draws=draws)

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        if values is None:
            return self._worst(level, n) / self.answered
        return self._variance(level, np.asarray(values, dtype=np.float64), n) / self.answered

    @abstractmethod
    def _worst(self, level: int, n: int) -> float:
        """Return n times the variance of the mean of the worst values, one answer a report."""

    def _variance(self, level: int, x: Floats, n: int) -> float:
        between, extra = spread_within(self.question, x, n)
        noise = self._noise_of(level, float(x.mean()))
        return (noise + between) * (1 + extra / n) - float(x.var())

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        hidden = 1 / self.answered if isinstance(self.question, BitQuestion) else 0.0
        return precision_of_mean("the mean", partial(self.variance, level), assumed, scale, hidden)

    def _noise_of(self, level: int, mean: float) -> float:
        return answer_noise(self.probabilities(level)[0], 2 + self.missing, mean)


class AnswerMechanism(ChainCoins, QuestionMechanism):
    """A mechanism that asks one question, chosen by a public coin, to be answered by no or yes.

    The third answer, where a value can be missing, is that it is.
    """

    symbolic = True

    @cached_property
    def chain(self) -> SymbolChain:
        return symbol_chain(2 + self.missing, self.micros)

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return the answer, 0 or 1; 2 where the number is missing."""
        check_unit(symbol, self.missing)
        return MISSING if symbol is None else self.question.answer(symbol, self.coin(chain), source)

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        check_unit(symbol, self.missing)
        return ((MISSING, 1),) if symbol is None else self.question.prior(symbol, self.coin(chain))

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        values, gone = unit_array(symbols, self.missing)
        present = np.where(gone, 0.0, values)
        answers = self.question.answers(present, self.coins_of(chains), source)
        return np.where(gone, MISSING, answers)

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints:
        return self.question.strata_of(self.coins_of(chains))

    def parts(self, level: int) -> tuple[Sequence[float], Sequence[float]]:
        return answer_parts(self.probabilities(level)[0], 2 + self.missing)

    def scores(self, level: int) -> Scores | None:
        from mechanisms.experiments import answer_scores

        return None if self.missing else answer_scores(self.probabilities(level)[0])

    def answers_of(self, counts: Ints) -> Ints:
        # A yes says the same of the mean for every question: the coins are drawn accordingly.
        found: Ints = counts.reshape(self.strata, -1).sum(axis=0)
        return found

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        return answer_text(self.question, self.output_of(payload), self.coin(chain), context)


def answer_text(question: NumberQuestion, answer: int, coin: int, context: Context) -> str:
    """Return an answer in words."""
    return "missing" if answer == MISSING else question.said(answer, coin, context)


def check_estimated(low: float, high: float, quantiles: Sequence[float]) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(f"range must be finite and increasing, got [{low}, {high}]")
    if not all(0 < tau < 1 for tau in quantiles):
        raise ParameterError("quantiles must lie in (0, 1)")


def precision_of_mean(
    what: str, variance: Any, assumed: Assumed, scale: float, hidden: float = 0.0
) -> Precision:
    """Return the precision of a mean; ``variance`` is a function of values, or None, and n.

    Published errors keep the part ``hidden`` of the values' variance, which reports do not show.
    """
    from mechanisms.planner.targets import Precision

    values = assumed.values
    data = "the values given" if values is not None else "the worst values"
    more = hidden * float(np.var(values)) if values is not None else 0.0
    return Precision(what, data, lambda n: variance(values, n) + more, scale)


def answer_parts(pair: tuple[float, float], symbols: int) -> tuple[list[float], list[float]]:
    """Return what each answer adds to the mean of yes and to the share of those present."""
    p, q = pair
    no, yes = -q / (p - q), (1 - q) / (p - q)
    return [no, yes, no][:symbols], [1.0, 1.0] if symbols == 2 else [1 - no, 1 - no, 1 - yes]


def answer_noise(pair: tuple[float, float], symbols: int, mean: float) -> float:
    """Return the variance of the debiased answers no, yes and, of three, missing, less the mean.

    ``pair`` has the probability that an answer is kept, and that it becomes a given other one;
    ``mean`` is the share of yes, all being present. An answer "missing" is read as such and
    compared with the estimated share of those present.
    """
    p, q = pair
    each = [one - mean * here for one, here in zip(*answer_parts(pair, symbols), strict=True)]
    total = 0.0
    for truth, share in ((0, 1 - mean), (1, mean)):
        law = [p if symbol == truth else q for symbol in range(symbols)]
        centre = sum(weight * value for weight, value in zip(law, each, strict=True))
        total += share * sum(
            weight * (value - centre) ** 2 for weight, value in zip(law, each, strict=True)
        )
    return total
