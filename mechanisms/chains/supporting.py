"""Chains of mechanisms whose every output supports some inputs, all of them equally many outputs.

With probability p the output of subset selection or Hadamard response is a uniform one of those
that support the input, else of the others. A weaker level keeps the output, or replaces it by a
uniform one of all, and is of the same kind again. All draws are exact; thresholds are over 2**64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from math import prod

from mechanisms.arrays import Any, Bools, Bytes, Floats, Ints, NDArray, np
from mechanisms.chains.chain import Chain
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import MICRO, exp_micro, log_ratio
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.randomness import Source


@frozen
class SupportChain(Chain):
    """The levels of such a mechanism.

    The strongest level's output supports the input for ``threshold`` of 2**64 random words; for
    ``keeps[k]`` of them level k is the output of level k + 1, else uniform.
    """

    threshold: int
    keeps: tuple[int, ...]

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The number of inputs."""

    @property
    @abstractmethod
    def total(self) -> int:
        """The number of outputs."""

    @property
    @abstractmethod
    def share(self) -> Fraction:
        """The share of outputs that support any given input."""

    @abstractmethod
    def outputs(self) -> Iterable[int]:
        """All outputs; for the enumeration of small ones."""

    @abstractmethod
    def supports(self, x: int, output: int) -> bool:
        """Return whether an output supports an input."""

    @abstractmethod
    def uniform(self, source: Source) -> int:
        """Draw a uniform output."""

    @abstractmethod
    def uniform_within(self, x: int, supporting: bool, source: Source) -> int:
        """Draw a uniform output of those that support an input, or of those that do not."""

    @abstractmethod
    def uniform_many(self, n: int, source: Source) -> NDArray[Any]:
        """Vectorised :meth:`uniform`: an output a row."""

    @abstractmethod
    def uniform_within_many(self, xs: Ints, supporting: Bools, source: Source) -> NDArray[Any]:
        """Vectorised :meth:`uniform_within`."""

    @abstractmethod
    def pair(self, p: Fraction) -> Probabilities:
        """Return the probabilities of a level of which the input is supported with ``p``."""

    @cached_property
    def supported(self) -> tuple[Fraction, ...]:
        """The exact probability that the output supports the input, weakest level first."""
        found = [Fraction(self.threshold, GRAINS)]
        for keep in reversed(self.keeps):
            found.append(self.share + (found[-1] - self.share) * Fraction(keep, GRAINS))
        return tuple(reversed(found))

    @cached_property
    def exact(self) -> tuple[Probabilities, ...]:
        """The exact probabilities of every level."""
        return tuple(self.pair(p) for p in self.supported)

    def exact_at(self, level: int) -> tuple[Probabilities, ...]:
        return (self.exact[level],)

    def law(self, value: int, level: int) -> dict[int, Fraction]:
        return {output: self.probability(value, output, level) for output in self.outputs()}

    def step(self, output: int, level: int) -> dict[int, Fraction]:
        kept = Fraction(self.keeps[level], GRAINS)
        found = dict.fromkeys(self.outputs(), (1 - kept) / self.total)
        found[output] += kept
        return found

    @abstractmethod
    def supporting(self, x: Any, reports: Bytes) -> Bools:
        """Return which reports support an input."""

    def repeats(self, lower: int, upper: int) -> tuple[float, float]:
        kept = prod(Fraction(keep, GRAINS) for keep in self.keeps[lower:upper])
        same = float(kept + (1 - kept) / self.total)
        return same, same

    def log_ratios(self, one: Any, other: Any, reports: Bytes, level: int) -> Floats:
        p, share = self.supported[level], self.share
        inside = self.supporting(other, reports).astype(np.int64) - self.supporting(one, reports)
        return np.asarray(log_ratio(p * (1 - share), (1 - p) * share) * inside)

    @property
    def levels(self) -> int:
        return len(self.keeps) + 1

    def ratio(self, level: int) -> Fraction:
        p = self.supported[level]
        return p * (1 - self.share) / ((1 - p) * self.share)

    def probability(self, x: int, output: int, level: int) -> Fraction:
        """Return the exact probability of an output."""
        p = self.supported[level]
        if self.supports(x, output):
            return p / (self.share * self.total)
        return (1 - p) / ((1 - self.share) * self.total)

    def draw(self, symbol: int, source: Source) -> list[int]:
        if not 0 <= symbol < self.inputs:
            raise ParameterError(f"a symbol must lie in [0, {self.inputs})")
        last = self.uniform_within(symbol, source.bits(64) < self.threshold, source)
        return [*self.weaker(last, source), last]

    def weaker(self, last: int, source: Source) -> list[int]:
        out = []
        for keep in reversed(self.keeps):
            if source.bits(64) >= keep:
                last = self.uniform(source)
            out.append(last)
        out.reverse()
        return out

    def randomize(self, symbols: Ints, source: Source) -> NDArray[Any]:
        n = len(symbols)
        supporting = source.words(n) < np.uint64(self.threshold)
        current = self.uniform_within_many(symbols, supporting, source)
        drawn = [current]
        for keep in reversed(self.keeps):
            moved = np.flatnonzero(source.words(n) >= np.uint64(keep))
            current = current.copy()
            current[moved] = self.uniform_many(len(moved), source)
            drawn.append(current)
        return np.stack(drawn[::-1], axis=1)


def support_thresholds(share: Fraction, ladder: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Return the threshold and the keeps that honour a ladder in micro-epsilon.

    ``share``, in (0, 1), is that of outputs that support an input.
    """
    number = len(ladder)
    threshold = int(_honest(share, ladder[-1]) * GRAINS)
    above = Fraction(threshold, GRAINS)
    if not share < above < 1:
        raise ParameterError(
            f"level {number}: 64-bit thresholds cannot honour epsilon {ladder[-1] / MICRO}"
        )
    keeps: list[int] = []
    for micro in reversed(ladder[:-1]):
        number -= 1
        keep = int((_honest(share, micro) - share) / (above - share) * GRAINS)
        if not 0 < keep < GRAINS:
            raise UnrelatedLevelsError(
                f"level {number}: 64-bit thresholds cannot place it below level {number + 1}"
            )
        keeps.insert(0, keep)
        above = share + (above - share) * Fraction(keep, GRAINS)
    return threshold, tuple(keeps)


def _honest(share: Fraction, micro: int) -> Fraction:
    """Return the probability of support at which the likelihood ratio is e^epsilon."""
    grown = share * exp_micro(micro)[0]
    return grown / (grown + 1 - share)
