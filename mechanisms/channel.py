"""Finite channels as matrices of exact fractions: loss, composition, degradation.

A channel C1 is a *degradation* of C2 if C1 = C2 T for a row-stochastic T (Blackwell). Then, and
only then, a report of C2 can be turned into one of C1 without another look at the value, and a
chain of both costs no more than C2 alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mechanisms.errors import ParameterError
from mechanisms.exact import loss_micro
from mechanisms.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mechanisms.chains.chain import Chain

Matrix = tuple[tuple[Fraction, ...], ...]


@frozen
class Channel:
    """A row-stochastic matrix: ``rows[x][o]`` is the probability of output ``o`` given ``x``.

    >>> third = Fraction(1, 3)
    >>> coin = Channel(((2 * third, third), (third, 2 * third)))
    >>> coin.ratio(), coin.certified
    (Fraction(2, 1), 693148)
    """

    rows: Matrix

    def __post_init__(self) -> None:
        if not self.rows or not self.rows[0]:
            raise ParameterError("a channel needs at least one row and one column")
        for number, row in enumerate(self.rows):
            if len(row) != len(self.rows[0]):
                raise ParameterError(f"row {number} of a channel differs in length from row 0")
            if not all(entry >= 0 for entry in row) or sum(row) != 1:
                raise ParameterError(f"row {number} of a channel is not a distribution")

    @property
    def inputs(self) -> int:
        return len(self.rows)

    @property
    def outputs(self) -> int:
        return len(self.rows[0])

    def ratio(self) -> Fraction:
        """Return the largest likelihood ratio; refuse an output that only some inputs have."""
        worst = Fraction(1)
        for column in zip(*self.rows, strict=True):
            low, high = min(column), max(column)
            if high == 0:
                continue
            if low == 0:
                raise ParameterError("an output tells inputs apart with certainty")
            worst = max(worst, high / low)
        return worst

    @property
    def certified(self) -> int:
        """The worst-case loss in micro-epsilon, rounded up."""
        return loss_micro(self.ratio())

    def then(self, after: Channel) -> Channel:
        """Return the channel that passes the output of this one on to ``after``."""
        if self.outputs != after.inputs:
            raise ParameterError(
                f"{self.outputs} outputs do not fit a channel of {after.inputs} inputs"
            )
        columns = list(zip(*after.rows, strict=True))
        return Channel(tuple(tuple(_dot(row, column) for column in columns) for row in self.rows))


def use_channel(chain: Chain, inputs: Sequence[int]) -> Channel:
    """Return what one look at a held response and a later report say of when a thing was used.

    Its inputs are the four histories: not used, used after the look, before it, and both. The
    ``inputs`` of the chain are *no* and *yes*. A response is of the strongest level, to *no* at
    first and anew to *yes* after a use; the report, of the level below, is drawn from the response
    that is there at the end. Outputs are pairs of the response seen and the report. More uses
    change nothing, since a response says nothing about those before it, and weaker reports say
    nothing about the response that the strongest does not.
    """
    last = chain.levels - 1
    held = [chain.law(each, last) for each in inputs]
    anew = chain.law(inputs[1], last - 1)
    rows = []
    for first in held:
        for later in (False, True):
            rows.append(
                tuple(
                    first[seen] * (anew if later else chain.step(seen, last - 1))[report]
                    for seen in first
                    for report in anew
                )
            )
    return Channel(tuple(rows))


def _dot(left: Sequence[Fraction], right: Sequence[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(left, right, strict=True)), Fraction(0))
