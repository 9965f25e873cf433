"""The part that all ladders share: its amounts, their checks, its levels' probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import MICRO, loss_micro
from mechanisms.frozen import NamedTuple, frozen

#: A ladder has at most so many levels.
MAX_LEVELS = 8
#: Largest epsilon of a single random decision (a symbol, or one bit). Its rarest outcome then
#: still has 78 grains of 2**-64, so that rounding costs less than 0.013 of epsilon.
MAX_DECISION_EPSILON = 40
#: Probabilities are integers over this.
GRAINS = 1 << 64


class Probabilities(NamedTuple):
    """The exact realised probabilities of one level, of a symbol or of one bit.

    ``p`` is the probability that the true symbol is reported (of a bit: that a 1 is reported
    as 1), ``q`` that a given other symbol is (of a bit: that a 0 is reported as 1).
    """

    p: Fraction
    q: Fraction


@frozen
class Amounts:
    """The nominal and certified amounts of a ladder, in micro-epsilon, weakest level first."""

    nominal: tuple[int, ...]
    certified: tuple[int, ...]


def check_ladder(ladder: Sequence[int], decisions: Fraction | int = 1) -> tuple[int, ...]:
    """Check the nominal micro-epsilons of a ladder, weakest first, and return them as a tuple.

    An amount is divided over ``decisions`` equal random decisions. A ``ParameterError`` where there
    are no levels or more than 8, one is not a positive integer, they do not increase, or the last
    is more than 64-bit thresholds honour.
    """
    levels = tuple(ladder)
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise ParameterError(f"a ladder has 1 to {MAX_LEVELS} levels, not {len(levels)}")
    largest = int(MAX_DECISION_EPSILON * MICRO * decisions)
    for number, micro in enumerate(levels, start=1):
        if isinstance(micro, bool) or not isinstance(micro, int):
            raise ParameterError(f"level {number}: micro-epsilon must be an int, not {micro!r}")
        if not 1 <= micro <= largest:
            raise ParameterError(
                f"level {number}: epsilon {micro / MICRO} must be in [1e-06, {largest / MICRO:g}]"
            )
        if number > 1 and not levels[number - 2] < micro:
            before = levels[number - 2] / MICRO
            raise ParameterError(
                f"level {number}: epsilons must increase, {micro / MICRO} follows {before}"
            )
    return levels


def certify(ladder: tuple[int, ...], ratios: Sequence[Fraction]) -> Amounts:
    """Certify every level from its exact largest likelihood ratio.

    ``UnrelatedLevelsError`` where two levels cost the same, or one more than its nominal amount.
    """
    certified = tuple(loss_micro(ratio) for ratio in ratios)
    for number, (have, want) in enumerate(zip(certified, ladder, strict=True), start=1):
        below = certified[number - 2] if number > 1 else 0
        if not below < have <= want:
            raise UnrelatedLevelsError(
                f"level {number}: certified at epsilon {have / MICRO}, which does not lie in "
                f"({below / MICRO}, {want / MICRO}]; 64-bit thresholds cannot honour this ladder"
            )
    return Amounts(ladder, certified)
