"""Chains of generalized randomized response, in integers over 2**64.

Every draw is of one kind: of the 2**64 values of a random word, the first ``keep`` keep the symbol
and ``other`` go to each other symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Bytes, Floats, Ints, NDArray, Words, np
from mechanisms.chains.chain import SymbolOutputs, spread
from mechanisms.errors import ParameterError, UnrelatedLevelsError, check_int
from mechanisms.exact import ceil_fraction, exp_micro, log_ratio
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from mechanisms.chains.thresholds import FiniteDraw

    #: Draws a level from the output of the next stronger one, without the value.
    Step: TypeAlias = "FiniteDraw | SymbolDraw"

#: Largest number of symbols: thresholds of 64 bits then still honour one micro-epsilon.
MAX_SYMBOLS = 1 << 20
#: So many draws at once are worth a table of what the 16 leading bits of a word decide, of so many
#: symbols that these bits nearly always decide.
TABLE_DRAWS, TABLE_SYMBOLS = 1 << 14, 1 << 12
#: A random word, of the bits that were drawn.
WORD = GRAINS - 1
#: In such a table: the symbol is kept; the bits that follow decide.
_KEPT, _OPEN = -1, -2


@frozen
class SymbolDraw:
    """Keep a symbol for ``keep`` random words, move to each of the others for ``other`` words."""

    size: int
    keep: int
    other: int

    @property
    def pair(self) -> Probabilities:
        """The exact probabilities of keeping and of each other symbol."""
        return Probabilities(Fraction(self.keep, GRAINS), Fraction(self.other, GRAINS))

    def realised(self) -> tuple[Fraction, Fraction]:
        """Return the same from thresholds that cover all words."""
        if self.keep + (self.size - 1) * self.other != GRAINS:
            raise ParameterError("the thresholds of a draw do not cover all words")
        return Fraction(self.keep, GRAINS), Fraction(self.other, GRAINS)

    def apply(self, symbol: int, word: int) -> int:
        """Return the symbol that a random word turns ``symbol`` into."""
        if word < self.keep:
            return symbol
        index = (word - self.keep) // self.other
        return index if index < symbol else index + 1

    def apply_many(self, symbols: Ints, words: Words) -> Ints:
        """Vectorised :meth:`apply`: ``(n,)`` in, a new ``(n,)`` ``int64`` out."""
        moved = np.flatnonzero(words >= np.uint64(self.keep))
        out = symbols.copy()
        index = (words[moved] - np.uint64(self.keep)) // np.uint64(self.other)
        other = index.astype(np.int64)
        other += other >= symbols[moved]
        out[moved] = other
        return out

    def draw_many(self, symbols: Ints, source: Source) -> Ints:
        """Do what :meth:`apply_many` does with words drawn here, of most only the leading bits.

        Outcomes are intervals of the 2**64 words, so that where both ends of the words with the
        same 16 leading bits have one outcome, no further bit is drawn. The law is the same.
        """
        if len(symbols) < TABLE_DRAWS or self.size > TABLE_SYMBOLS:
            return self.apply_many(symbols, source.words(len(symbols)))
        heads = source.words(-(-len(symbols) // 4)).view(np.uint16)[: len(symbols)]
        drawn = self._outcomes[heads]
        out = drawn.astype(np.int64)
        out += out >= symbols
        kept = np.flatnonzero(drawn == _KEPT)
        out[kept] = symbols[kept]
        still = np.flatnonzero(drawn == _OPEN)
        words = heads[still].astype(np.uint64) << np.uint64(48)
        words |= source.words(len(still)) >> np.uint64(16)
        out[still] = self.apply_many(symbols[still], words)
        return out

    @cached_property
    def _outcomes(self) -> NDArray[np.int16]:
        """Decisions of a word's 16 leading bits: a move, :data:`_KEPT` or :data:`_OPEN`."""
        first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        low, high = (self._indices(words) for words in (first, first | np.uint64(2**48 - 1)))
        return np.where(low == high, low, _OPEN).astype(np.int16)

    def _indices(self, words: Words) -> Ints:
        keep, other = np.uint64(self.keep), np.uint64(self.other)
        moved = (np.maximum(words, keep) - keep) // other
        return np.where(words < keep, _KEPT, moved.astype(np.int64))


def outputs_down_from(last: int, steps: Sequence[Step], words: int) -> list[int]:
    """Return the outputs down from the last level's, weakest first; a word of 64 bits a step."""
    out = [last]
    for step in reversed(steps):
        last = step.apply(last, words & WORD)
        out.append(last)
        words >>= 64
    out.reverse()
    return out


def chains_below(last: Ints, steps: Sequence[Step], source: Source) -> Ints:
    """Return ``(n, levels)`` chains, weakest level first, that end in ``last``."""
    out = np.empty((len(last), len(steps) + 1), dtype=np.int64)
    out[:, -1] = current = last
    for level in range(len(steps) - 1, -1, -1):
        current = steps[level].draw_many(current, source)
        out[:, level] = current
    return out


class StepChain(SymbolOutputs):
    """A chain whose strongest level is drawn from the input, the others each by a step.

    ``steps[k]`` draws level k from the output of level k + 1, without another look at the input.
    """

    strongest: Step
    steps: tuple[Step, ...]

    @property
    def inputs(self) -> int:
        return self.size

    @property
    def levels(self) -> int:
        return len(self.steps) + 1

    def draw(self, symbol: int, source: Source) -> list[int]:
        if not 0 <= symbol < self.inputs:
            raise ParameterError(f"a symbol must lie in [0, {self.inputs})")
        steps = self.steps
        words = source.bits(64 * len(steps) + 64)
        last = self.strongest.apply(symbol, words & WORD)
        return outputs_down_from(last, steps, words >> 64)

    def weaker(self, last: int, source: Source) -> list[int]:
        if not 0 <= last < self.size:
            raise ParameterError(f"an output must lie in [0, {self.size})")
        return outputs_down_from(last, self.steps, source.bits(64 * len(self.steps)))[:-1]

    def randomize(self, symbols: Ints, source: Source) -> Ints:
        if len(symbols) and not (symbols.min() >= 0 and symbols.max() < self.inputs):
            raise ParameterError(f"symbols must lie in [0, {self.inputs})")
        return chains_below(self.strongest.draw_many(symbols, source), self.steps, source)


@frozen
class SymbolChain(StepChain):
    """The levels of generalized randomized response; ``exact`` are the exact products."""

    size: int
    strongest: SymbolDraw
    steps: tuple[SymbolDraw, ...]
    exact: tuple[Probabilities, ...]

    def law(self, value: int, level: int) -> dict[int, Fraction]:
        p, q = degraded(*self.strongest.realised(), self.steps[level:])
        return {output: p if output == value else q for output in range(self.size)}

    def step(self, output: int, level: int) -> dict[int, Fraction]:
        kept, other = self.steps[level].realised()
        return {each: kept if each == output else other for each in range(self.size)}

    def realised_ratio(self, level: int) -> Fraction:
        return spread(*degraded(*self.strongest.realised(), self.steps[level:]))

    def repeats(self, lower: int, upper: int) -> tuple[float, float]:
        kept = float(degraded(Fraction(1), Fraction(0), self.steps[lower:upper]).p)
        return kept, kept

    def log_ratios(self, one: Any, other: Any, reports: Bytes, level: int) -> Floats:
        outputs = self.symbols(reports)
        p, q = self.exact[level]
        sign = (outputs == other).astype(np.int64) - (outputs == one).astype(np.int64)
        return np.asarray(log_ratio(p, q) * sign)


def degraded(p: Fraction, q: Fraction, steps: Sequence[SymbolDraw]) -> Probabilities:
    """Return what uniform noise, the strongest step last, makes of two probabilities."""
    for step in reversed(steps):
        kept, other = step.realised()
        p, q = p * (kept - other) + other, q * (kept - other) + other
    return Probabilities(p, q)


def all_levels(last: Probabilities, steps: Sequence[SymbolDraw]) -> tuple[Probabilities, ...]:
    """Return what the steps make of the last level's probabilities, level by level."""
    levels = [last]
    for step in reversed(steps):
        levels.insert(0, degraded(*levels[0], [step]))
    return tuple(levels)


def symbol_chain(size: int, ladder: Sequence[int | Fraction]) -> SymbolChain:
    """Build the chain whose levels honour the nominal amounts of ``ladder``, in micro-epsilon.

    The strongest level has ``other = ceil(2**64 / (e**eps + size - 1))``. A degradation has the
    smallest ``other`` for which the exact product stays within the weaker level's amount.
    """
    check_int("domain_size", size, 2, MAX_SYMBOLS)
    draw = noise_step(size, GRAINS / (exp_micro(ladder[-1])[0] + size - 1), len(ladder))
    steps = steps_below(size, draw.pair, ladder[:-1])
    return SymbolChain(size, draw, steps, all_levels(draw.pair, steps))


def steps_below(
    size: int, above: Probabilities, ladder: Sequence[int | Fraction]
) -> tuple[SymbolDraw, ...]:
    """Return the least uniform noise that honours each amount below a level of two probabilities.

    Raises
    ------
    ParameterError
        An amount is too small for so many symbols.
    UnrelatedLevelsError
        A level is not below the realised level above it.
    """
    steps: list[SymbolDraw] = []
    for number in range(len(ladder), 0, -1):
        bound = exp_micro(ladder[number - 1])[0]
        excess = above.p - bound * above.q
        if excess <= 0:
            raise UnrelatedLevelsError(
                f"level {number}: 64-bit thresholds cannot place it below level {number + 1}"
            )
        steps.insert(0, noise_step(size, GRAINS * excess / (size * excess + bound - 1), number))
        above = degraded(*above, steps[:1])
    return tuple(steps)


def noise_step(size: int, other: Fraction, number: int) -> SymbolDraw:
    """Return the step of level ``number`` that draws each other output by so many grains."""
    grains = ceil_fraction(other)
    keep = GRAINS - (size - 1) * grains
    if not grains < keep:
        raise ParameterError(
            f"level {number}: its epsilon is too small for {size} outputs and 64-bit thresholds"
        )
    return SymbolDraw(size, keep, grains)
