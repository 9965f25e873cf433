"""A selected item, relaxed: the last rung is the selection, weaker ones degrade it blindly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from mechanisms.chains.symbols import SymbolDraw, chains_below, weaker_outputs
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import ceil_fraction, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.randomness import Source
from mechanisms.sampling import choose

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class ReleaseChain:
    """A ladder below an item that is drawn elsewhere.

    Parameters
    ----------
    size : int
        The number of items.
    selection : Probabilities
        The largest and the smallest probability with which any scores select an item; of every
        item the same.
    steps : tuple of SymbolDraw
        ``steps[k]`` draws rung k from rung k + 1; they never see the scores.
    """

    size: int
    selection: Probabilities
    steps: tuple[SymbolDraw, ...]

    @cached_property
    def releases(self) -> tuple[Probabilities, ...]:
        """Of every rung the probability that it is the selected item, and a given other one."""
        found = [Probabilities(Fraction(1), Fraction(0))]
        for step in reversed(self.steps):
            found.insert(0, _through(found[0], step))
        return tuple(found)

    @cached_property
    def exact(self) -> tuple[Probabilities, ...]:
        """Of every rung the largest and the smallest probability of an item."""
        found = [self.selection]
        for step in reversed(self.steps):
            found.insert(0, _through(found[0], step))
        return tuple(found)

    def draw(self, value: int, source: Source) -> list[int]:
        """Draw a chain backward from the selected item; weakest rung first."""
        return [*self.weaker(value, source), value]

    def weaker(self, last: int, source: Source) -> list[int]:
        """Draw the outputs of all rungs but the last, weakest first, from that of the last."""
        if not 0 <= last < self.size:
            raise ParameterError(f"an output must lie in [0, {self.size})")
        return weaker_outputs(last, self.steps, source.bits(64 * len(self.steps)))

    def randomize(self, symbols: NDArray[np.int64], source: Source) -> NDArray[np.int64]:
        """Draw chains for ``(n,)`` selected items; return ``(n, levels)``, weakest rung first."""
        return chains_below(symbols, self.steps, source)

    def forward_weights(
        self, prior: Sequence[tuple[int, int]], previous: int, level: int
    ) -> dict[int, int]:
        """Integer weights of the outputs of ``level`` given that of the level below.

        Parameters
        ----------
        prior : sequence of (item, weight)
            The law of the selected item.
        previous : int
            The output at ``level - 1``.
        level : int
        """
        if not 1 <= level <= len(self.steps):
            raise ParameterError(f"level must lie in [1, {len(self.steps)}], not {level}")
        release, step = self.releases[level], self.steps[level - 1]
        scale = release.p.denominator * release.q.denominator
        p, q = int(release.p * scale), int(release.q * scale)
        total = sum(weight for _, weight in prior)
        weights = dict.fromkeys(range(self.size), q * total)
        for item, weight in prior:
            weights[item] += (p - q) * weight
        return {
            item: weight * (step.keep if item == previous else step.other)
            for item, weight in weights.items()
        }

    def forward(
        self, prior: Sequence[tuple[int, int]], previous: int, level: int, source: Source
    ) -> int:
        """Draw the output of ``level`` given that of the level below, by exact weights."""
        return choose(self.forward_weights(prior, previous, level), source)


def release_chain(size: int, selection: Probabilities, ladder: Sequence[int]) -> ReleaseChain:
    """Build the chain below a selection, with the least uniform noise that honours each rung.

    Raises
    ------
    ParameterError
        An amount is too small for so many items.
    UnrelatedLevelsError
        A rung is not below the realised rung above it.
    """
    above, steps = selection, list[SymbolDraw]()
    for number in range(len(ladder) - 1, 0, -1):
        bound = exp_micro(ladder[number - 1])[0]
        excess = above.p - bound * above.q
        if excess <= 0:
            raise UnrelatedLevelsError(
                f"rung {number}: 64-bit thresholds cannot place it below rung {number + 1}"
            )
        other = ceil_fraction(GRAINS * excess / (size * excess + bound - 1))
        keep = GRAINS - (size - 1) * other
        if not other < keep:
            raise ParameterError(
                f"rung {number}: its epsilon is too small for {size} items and 64-bit thresholds"
            )
        steps.insert(0, SymbolDraw(size, keep, other))
        above = _through(above, steps[0])
    return ReleaseChain(size, selection, tuple(steps))


def _through(rung: Probabilities, step: SymbolDraw) -> Probabilities:
    kept, other = step.rung
    return Probabilities(rung.p * (kept - other) + other, rung.q * (kept - other) + other)
