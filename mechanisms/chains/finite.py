"""Any finite mechanism as a relaxable chain, in integers over 2**64.

The strongest level is drawn from the input by a table of integer weights, every weaker one from
the output of the next stronger, by a degradation that never sees the input. Exact probabilities
of a level are products of those integers, kept as integers over a power of 2**64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from operator import mul
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import SymbolOutputs
from mechanisms.chains.symbols import SymbolDraw, chains_below, weaker_outputs
from mechanisms.chains.thresholds import FiniteDraw, Row, rounded
from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import ceil_fraction, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.randomness import Source
from mechanisms.sampling import choose

if TYPE_CHECKING:
    from mechanisms.arrays import Floats, Ints, Octets
__all__ = ["FiniteChain", "FiniteDraw", "Step", "finite_chain", "rounded"]

#: Inputs of which all pairs are tried for the worst, both ends among them.
TRIED = 100
#: A degradation: any, or uniform noise.
Step = FiniteDraw | SymbolDraw


@frozen
class FiniteChain(SymbolOutputs):
    """The levels of any finite mechanism.

    ``strongest`` draws the strongest level from the input, ``steps[k]`` level k from the output of
    level k + 1. All levels have the same outputs, of which some may never occur.
    """

    strongest: FiniteDraw
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps, start=1):
            shape = _shape(step)
            if shape != (self.size, self.size):
                raise ParameterError(
                    f"level {number}: its step must have {self.size} inputs and outputs, "
                    f"not {shape}"
                )

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return self.strongest.inputs

    @cached_property
    def size(self) -> int:
        return self.strongest.outputs

    @property
    def levels(self) -> int:
        return len(self.steps) + 1

    def table(self, level: int) -> tuple[list[Row], int]:
        """Return the exact channel of a level as integer rows and what every row sums to."""
        rows, total = list(self.strongest.weights), GRAINS
        for step in reversed(self._steps_to(level)):
            rows, total = _through(rows, total, step), total * GRAINS
        return rows, total

    def channel(self, level: int) -> Channel:
        """Return the exact channel of a level."""
        rows, total = self.table(level)
        return Channel(tuple(tuple(Fraction(entry, total) for entry in row) for row in rows))

    def matrix(self, level: int) -> Floats:
        """Return the channel of a level as floats, ``(inputs, size)``, each correctly rounded."""
        import numpy as np

        rows, total = self.table(level)
        return np.array([[entry / total for entry in row] for row in rows])

    @cached_property
    def exact(self) -> tuple[Probabilities, ...]:
        """Of every level the probabilities, largest and smallest, of the output that certifies it.

        ``ParameterError`` where an output is possible for one input and impossible for another.
        """
        rows: list[Row] = list(dict.fromkeys(self.strongest.weights))
        total, found = GRAINS, []
        for done in range(self.levels):
            columns = list(zip(*rows, strict=True))
            most, least = tuple(map(max, columns)), tuple(map(min, columns))
            found.append(_widest(most, least, total))
            left = self.steps[: len(self.steps) - done]
            if left:
                if all(isinstance(step, SymbolDraw) for step in left):
                    # Uniform noise keeps the order within a column: its extremes are enough.
                    rows = [most, least]
                rows, total = _through(rows, total, left[-1]), total * GRAINS
        return tuple(reversed(found))

    def law(self, value: int, level: int) -> dict[int, Fraction]:
        rows, total = self.table(level)
        return {output: Fraction(entry, total) for output, entry in enumerate(rows[value])}

    def step(self, output: int, level: int) -> dict[int, Fraction]:
        step = self.steps[level]
        return {o: Fraction(_weight(step, output, o), GRAINS) for o in range(self.size)}

    def log_ratios(self, one: Any, other: Any, reports: Octets, level: int) -> Floats:
        import numpy as np

        outputs, logs = self.symbols(reports), self.log_matrices[level]
        return np.asarray(logs[other, outputs] - logs[one, outputs])

    def farthest(self, level: int) -> tuple[int, int]:
        """Return the inputs of which most outputs say nearly the largest ratio, then the farthest.

        Of at most 100 inputs, both ends among them, all pairs are tried.
        """
        import numpy as np

        matrix = self.matrix(level % self.levels)
        # Outputs that no input has say nothing.
        matrix = matrix[:, matrix.max(axis=0) > 0]
        logs = np.log(matrix)
        largest = float((logs.max(axis=0) - logs.min(axis=0)).max())

        def said(pair: tuple[int, int]) -> tuple[float, int]:
            one, other = pair
            far = np.abs(logs[one] - logs[other]) > 0.999 * largest
            return round(float((matrix[one] + matrix[other])[far].sum()), 6), other - one

        distinct = np.sort(np.unique(matrix, axis=0, return_index=True)[1])
        some = np.linspace(0, len(distinct) - 1, min(len(distinct), 100)).astype(int)
        one, other = max(combinations(distinct[some].tolist(), 2), key=said)
        return one, other

    @cached_property
    def log_matrices(self) -> list[Floats]:
        """The logarithms of the channels of all levels.

        Outputs that no input has stay out of reports, so that their infinities are never read.
        """
        import numpy as np

        with np.errstate(divide="ignore"):
            return [np.log(self.matrix(level)) for level in range(self.levels)]

    def worst_inputs(self, level: int) -> tuple[int, int]:
        """Return the pair that most outputs tell apart by nearly the largest ratio.

        Of such pairs the farthest; of many inputs so many are tried that lie evenly.
        """
        import numpy as np

        matrix = self.matrix(level % self.levels)
        # Outputs that no input has say nothing.
        matrix = matrix[:, matrix.max(axis=0) > 0]
        logs = np.log(matrix)
        largest = float((logs.max(axis=0) - logs.min(axis=0)).max())

        def apart(pair: tuple[int, int]) -> tuple[float, int]:
            one, other = pair
            far = np.abs(logs[one] - logs[other]) > 0.999 * largest
            return round(float((matrix[one] + matrix[other])[far].sum()), 6), other - one

        distinct = np.sort(np.unique(matrix, axis=0, return_index=True)[1])
        tried = np.linspace(0, len(distinct) - 1, min(len(distinct), TRIED)).astype(int)
        return max(combinations(distinct[tried].tolist(), 2), key=apart)

    def draw(self, symbol: int, source: Source) -> list[int]:
        if not 0 <= symbol < self.inputs:
            raise ParameterError(f"a symbol must lie in [0, {self.inputs})")
        words = source.bits(64 * self.levels)
        last = self.strongest.apply(symbol, words & (GRAINS - 1))
        return [*weaker_outputs(last, self.steps, words >> 64), last]

    def weaker(self, last: int, source: Source) -> list[int]:
        if not 0 <= last < self.size:
            raise ParameterError(f"an output must lie in [0, {self.size})")
        return weaker_outputs(last, self.steps, source.bits(64 * len(self.steps)))

    def randomize(self, symbols: Ints, source: Source) -> Ints:
        if len(symbols) and not (symbols.min() >= 0 and symbols.max() < self.inputs):
            raise ParameterError(f"symbols must lie in [0, {self.inputs})")
        return chains_below(self.strongest.draw_many(symbols, source), self.steps, source)

    def forward_weights(
        self, prior: Sequence[tuple[int, int]], previous: int, level: int
    ) -> dict[int, int]:
        """Integer weights of the outputs of ``level`` given that of the level below, ``previous``.

        They are proportional to ``C2[x, o2] * T[o2, o1]``, summed over the prior: the symbol, or
        where it is itself drawn at random, its possible values with their weights.
        """
        if not 1 <= level < self.levels:
            raise ParameterError(f"level must lie in [1, {self.levels}), not {level}")
        weights = [0] * self.size
        for symbol, share in prior:
            rows, total = [self.strongest.weights[symbol]], GRAINS
            for step in reversed(self._steps_to(level)):
                rows, total = _through(rows, total, step), total * GRAINS
            weights = [have + share * more for have, more in zip(weights, rows[0], strict=True)]
        step = self.steps[level - 1]
        joint = {o: have * _weight(step, o, previous) for o, have in enumerate(weights)}
        if not any(joint.values()):
            raise ParameterError("the previous output is impossible for this value")
        return joint

    def forward(
        self, prior: Sequence[tuple[int, int]], previous: int, level: int, source: Source
    ) -> int:
        return choose(self.forward_weights(prior, previous, level), source)

    def _steps_to(self, level: int) -> tuple[Step, ...]:
        if not 0 <= level < self.levels:
            raise ParameterError(f"level must lie in [0, {self.levels}), not {level}")
        return self.steps[level:]


def finite_chain(
    strongest: FiniteDraw, ladder: Sequence[int], steps: Sequence[Step] | None = None
) -> FiniteChain:
    """Build the chain below a strongest level that honours the last amount of a ladder.

    Parameters
    ----------
    ladder : sequence of int
        Nominal micro-epsilons, increasing.
    steps : sequence of FiniteDraw or SymbolDraw, optional
        The degradations, weakest first. By default each keeps the output or replaces it by a
        uniform one, with the least noise for which the exact product honours the weaker amount.

    Raises
    ------
    ParameterError
        The steps do not fit, or an amount is too small for 64-bit thresholds; as
        ``UnrelatedLevelsError`` where a level exceeds its amount, or is not below the one above it.
    """
    if steps is None:
        chain = _noisy_chain(strongest, ladder)
    else:
        if len(steps) != len(ladder) - 1:
            raise ParameterError(f"{len(ladder)} levels need {len(ladder) - 1} steps")
        chain = FiniteChain(strongest, tuple(steps))
    for number, micro in enumerate(ladder, start=1):
        ratio = chain.ratio(number - 1)
        if not ratio <= exp_micro(micro)[0]:
            raise UnrelatedLevelsError(f"level {number}: its channel exceeds {micro} micro-epsilon")
        if number > 1 and not chain.ratio(number - 2) < ratio:
            raise UnrelatedLevelsError(f"level {number - 1} is not below level {number}")
    return chain


def _noisy_chain(strongest: FiniteDraw, ladder: Sequence[int]) -> FiniteChain:
    """Build the chain whose weaker levels add uniform noise."""
    size = strongest.outputs
    columns = list(zip(*dict.fromkeys(strongest.weights), strict=True))
    rows, total = [tuple(map(max, columns)), tuple(map(min, columns))], GRAINS
    steps: list[Step] = []
    for number in range(len(ladder) - 1, 0, -1):
        bound = exp_micro(ladder[number - 1])[0]
        excess = max(most - bound * least for most, least in zip(*rows, strict=True)) / total
        if excess <= 0:
            raise UnrelatedLevelsError(
                f"level {number}: 64-bit thresholds cannot place it below level {number + 1}"
            )
        other = ceil_fraction(GRAINS * excess / (size * excess + bound - 1))
        keep = GRAINS - (size - 1) * other
        if not other < keep:
            raise ParameterError(
                f"level {number}: its epsilon is too small for {size} outputs and 64-bit thresholds"
            )
        step = SymbolDraw(size, keep, other)
        steps.insert(0, step)
        rows, total = _through(rows, total, step), total * GRAINS
    return FiniteChain(strongest, tuple(steps))


def _shape(step: Step) -> tuple[int, int]:
    if isinstance(step, SymbolDraw):
        return step.size, step.size
    return step.inputs, step.outputs


def _weight(step: Step, x: int, output: int) -> int:
    if isinstance(step, SymbolDraw):
        return step.keep if x == output else step.other
    return step.weight(x, output)


def _through(rows: Iterable[Row], total: int, step: Step) -> list[Row]:
    """Return what rows that sum to ``total`` become after a step: they sum to total * 2**64."""
    if isinstance(step, SymbolDraw):
        stays, noise = step.keep - step.other, step.other * total
        return [tuple([entry * stays + noise for entry in row]) for row in rows]
    columns = list(zip(*step.weights, strict=True))
    given = list(rows)
    # Equal rows, of which there are many where windows share an edge, cost only once.
    after = {
        row: tuple([sum(map(mul, row, column)) for column in columns])
        for row in dict.fromkeys(given)
    }
    return [after[row] for row in given]


def _widest(most: Row, least: Row, total: int) -> Probabilities:
    """Return the extremes of the column with the largest ratio."""
    high, low = 1, 1
    for one, other in zip(most, least, strict=True):
        if one and not other:
            raise ParameterError("an output tells inputs apart with certainty")
        if one * low > high * other:
            high, low = one, other
    if high == low == 1:
        high = low = max(most)
    return Probabilities(Fraction(high, total), Fraction(low, total))
