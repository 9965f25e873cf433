"""Questions about a number in [0, 1] that a public coin chooses, answered by no (0) or yes (1).

Answers are counted by what was asked: those of a stratum stand for a known part of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from mechanisms.arrays import Floats, Ints, Words, np
from mechanisms.chains.chain import Prior
from mechanisms.frozen import frozen
from mechanisms.number import grid
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from mechanisms.items import Context

    NumberQuestion: TypeAlias = "ThresholdQuestion | BitQuestion"


@frozen
class ThresholdQuestion:
    """Is the number above a threshold, uniform in (0, 1]? Strata are ``size`` bins of thresholds.

    The number of bins is a power of two. The methods are those of a :class:`BitQuestion`.
    """

    size: int

    resolution = 1 << 32

    @property
    def joins(self) -> Sequence[Ints]:
        return tuple(np.arange(0, self.size, self.size >> k) for k in range(self.size.bit_length()))

    def law(self) -> Floats:
        return np.full(self.size, 1 / self.size)

    def most(self, n: float) -> int:
        return max(int(n) // grid.EXPECTED_REPORTS, 1)

    def answer(self, u: float, coin: int, source: Source) -> int:
        return int(u > grid.threshold_of(coin))

    def prior(self, u: float, coin: int) -> Prior:
        return ((int(u > grid.threshold_of(coin)), 1),)

    def answers(self, u: Floats, coins: Words, source: Source) -> Ints:
        return (u > grid.thresholds_of(coins)).astype(np.int64)

    def strata_of(self, coins: Words) -> Ints:
        return (coins >> np.uint64(65 - self.size.bit_length())).astype(np.int64)

    def within(self, x: Floats, strata: int) -> float:
        above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
        return float((above * (1 - above)).mean())

    def said(self, answer: int, coin: int, context: Context) -> str:
        side = "above" if answer else "at most"
        return f"{side} about {context.number(grid.threshold_of(coin))}"


@frozen
class BitQuestion:
    """Is a bit of the number set, one of ``size`` that are sampled by their weight in the value?

    The number is rounded to the grid at random. Strata are bits, the most significant one first.
    """

    size: int

    @property
    def joins(self) -> Sequence[Ints]:
        """First strata of the ranges that are told apart, fewest first; see :class:`.Mechanism`."""
        return tuple(np.arange(1 + alone) for alone in range(self.size))

    @property
    def resolution(self) -> int:
        """The steps between 0 and 1 at which an audit takes numbers."""
        return (1 << self.size) - 1

    def law(self) -> Floats:
        """Return the probability of each stratum: ``(size,)``."""
        return grid.bit_weights(self.size)

    def most(self, n: float) -> int:
        """Return how many strata ``n`` answers may be told apart by: each is to have enough."""
        tails = np.cumsum(self.law()[::-1])[::-1]
        return max(int((n * tails >= grid.EXPECTED_REPORTS).sum()), 1)

    def answer(self, u: float, coin: int, source: Source) -> int:
        """Return the true answer to what a coin asks."""
        point = grid.round_to_grid(u, self.resolution, source)
        return point >> grid.exponent_of(coin, self.size) & 1

    def prior(self, u: float, coin: int) -> Prior:
        """Return all that :meth:`answer` may return, with integer weights."""
        return grid.bit_prior(u, self.size, grid.exponent_of(coin, self.size))

    def answers(self, u: Floats, coins: Words, source: Source) -> Ints:
        """Vectorised :meth:`answer`: ``(n,)`` numbers and coins in, ``(n,)`` out."""
        points = grid.rounds_to_grid(u, self.resolution, source)
        return points >> grid.exponents_of(coins, self.size) & 1

    def strata_of(self, coins: Words) -> Ints:
        """Return the strata of ``(n,)`` coins."""
        return self.size - 1 - grid.exponents_of(coins, self.size)

    def within(self, x: Floats, strata: int) -> float:
        """Return the variance of true answers about values ``x`` within strata."""
        from mechanisms.estimators.variance import bit_means

        yes = bit_means(x, self.size)
        return float(self.law() @ (yes * (1 - yes)))

    def said(self, answer: int, coin: int, context: Context) -> str:
        """Return an answer in words."""
        place = self.size - grid.exponent_of(coin, self.size)
        return f"bit {place} of {self.size}, the highest first, is {answer}"


def strata_for(question: NumberQuestion, n: float, most: int = grid.BINS) -> Ints:
    """Return the first stratum of each range that ``n`` answers are told apart by, at most so many.

    >>> strata_for(ThresholdQuestion(64), 100).tolist(), strata_for(BitQuestion(8), 100).tolist()
    ([0, 16, 32, 48], [0, 1, 2])
    """
    allowed = min(question.most(n), most)
    return [each for each in question.joins if len(each) <= allowed][-1]


def spread_within(question: NumberQuestion, x: Floats, n: float) -> tuple[float, int]:
    """Return the variance of true answers within the strata, and how many more than one there are.

    ``n`` answers about values ``x`` fall into the strata at random, which costs the latter over n.
    """
    strata = len(strata_for(question, n))
    return question.within(x, strata), strata - 1
