"""Any finite mechanism as a relaxable chain, in integers over 2**64.

Exact probabilities of a level are products of integers, kept as integers over a power of 2**64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from operator import mul

from mechanisms.arrays import Bytes, Floats, np
from mechanisms.chains.symbols import StepChain, SymbolDraw, noise_step
from mechanisms.chains.thresholds import FiniteDraw, Row, rounded
from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import MICRO, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.chains.symbols import Step

__all__ = ["FiniteChain", "FiniteDraw", "finite_chain", "rounded"]

#: Inputs of which all pairs are tried for the worst, both ends among them.
TRIED = 100


@frozen
class FiniteChain(StepChain):
    """The levels of any finite mechanism; all have the same outputs, some perhaps never drawn."""

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
        return self.strongest.inputs

    @cached_property
    def size(self) -> int:
        return self.strongest.outputs

    def table(self, level: int) -> tuple[list[Row], int]:
        """Return the exact channel of a level as integer rows and what every row sums to."""
        if not 0 <= level < self.levels:
            raise ParameterError(f"level must lie in [0, {self.levels}), not {level}")
        found, total = list(self.strongest.weights), GRAINS
        for step in reversed(self.steps[level:]):
            found, total = _through(found, total, step), total * GRAINS
        return found, total

    def channel(self, level: int) -> Channel:
        """Return the exact channel of a level."""
        rows, total = self.table(level)
        return Channel(tuple(tuple(Fraction(entry, total) for entry in row) for row in rows))

    def matrix(self, level: int) -> Floats:
        """Return the channel of a level as floats, ``(inputs, size)``, each correctly rounded."""
        if not 0 <= level < self.levels:
            raise ParameterError(f"level must lie in [0, {self.levels}), not {level}")
        return self._matrices[level]

    @cached_property
    def _matrices(self) -> list[Floats]:
        """The same, of all levels: they are asked for whenever a window is estimated."""
        found = []
        for level in range(self.levels):
            rows, total = self.table(level)
            matrix = np.array([[entry / total for entry in row] for row in rows])
            matrix.flags.writeable = False
            found.append(matrix)
        return found

    @cached_property
    def exact(self) -> tuple[Probabilities, ...]:
        """The probabilities, largest and smallest, of the output that certifies each level."""
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

    def repeats(self, lower: int, upper: int) -> tuple[float, float]:
        """Return the bounds over the outputs of the ``upper`` level that occur."""
        kept = np.diagonal(self._between(lower, upper))[self.matrix(upper).max(axis=0) > 0]
        return float(kept.min()), float(kept.max())

    def kept(self, lower: int, upper: int, newest: int) -> Floats | None:
        if all(isinstance(step, SymbolDraw) for step in self.steps[lower:upper]):
            return None
        return self._between(upper, newest) @ np.diagonal(self._between(lower, upper))

    def _between(self, lower: int, upper: int) -> Floats:
        """Return the probabilities of outputs of a level given those of one above."""
        between = np.eye(self.size)
        for step in reversed(self._degradations[lower:upper]):
            between = between @ step
        return between

    @cached_property
    def _degradations(self) -> list[Floats]:
        """The steps as floats: they are asked for whenever a window is looked at."""
        return [_floats(step) for step in self.steps]

    def limits(self, level: int) -> tuple[Floats, Floats]:
        matrix = self.matrix(level)
        return matrix.min(axis=0), matrix.max(axis=0)

    def mixed(self, level: int) -> Floats | None:
        return self.matrix(level) if self.size > 2 else None

    def log_ratios(self, one: Any, other: Any, reports: Bytes, level: int) -> Floats:
        outputs, logs = self.symbols(reports), self.log_matrices[level]
        return np.asarray(logs[other, outputs] - logs[one, outputs])

    @cached_property
    def log_matrices(self) -> list[Floats]:
        """The logarithms of the channels of all levels; their infinities are never read."""
        with np.errstate(divide="ignore"):
            return [np.log(self.matrix(level)) for level in range(self.levels)]

    def worst_inputs(self, level: int) -> tuple[int, int]:
        """Return the farthest pair that most outputs tell apart by nearly the largest ratio."""
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


def finite_chain(
    strongest: FiniteDraw, ladder: Sequence[int], steps: Sequence[Step] | None = None
) -> FiniteChain:
    """Build the chain below a strongest level that honours the last micro-epsilon of a ladder.

    ``steps`` are the degradations, weakest first; by default each keeps the output or replaces it
    by a uniform one, with the least noise for which the exact product honours the weaker amount.
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
            raise UnrelatedLevelsError(
                f"level {number}: its channel exceeds epsilon {micro / MICRO}"
            )
        if number > 1 and not chain.ratio(number - 2) < ratio:
            raise UnrelatedLevelsError(f"level {number - 1} is not below level {number}")
    return chain


def _noisy_chain(strongest: FiniteDraw, ladder: Sequence[int]) -> FiniteChain:
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
        step = noise_step(size, GRAINS * excess / (size * excess + bound - 1), number)
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


def _floats(step: Step) -> Floats:
    if isinstance(step, SymbolDraw):
        kept, other = map(float, step.realised())
        return np.full((step.size, step.size), other) + np.eye(step.size) * (kept - other)
    return np.array(step.weights, dtype=np.float64) / GRAINS


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
    high, low = 1, 1
    for one, other in zip(most, least, strict=True):
        if one and not other:
            raise ParameterError("an output tells inputs apart with certainty")
        if one * low > high * other:
            high, low = one, other
    if high == low == 1:
        high = low = max(most)
    return Probabilities(Fraction(high, total), Fraction(low, total))
