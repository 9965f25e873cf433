"""Ladders of the survey designs: one answer, relaxed over several epsilons.

A weaker rung is the same kind of design with more chance in it: uniform noise makes a weaker
Warner or Christofides design of one, and asking the unrelated question again a weaker Simmons
design.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms.category.oracle import category, category_array
from mechanisms.chains.chain import Prior
from mechanisms.chains.finite import FiniteChain, FiniteDraw, finite_chain, rounded
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import MICRO, ceil_fraction, exp_micro, loss_micro
from mechanisms.frozen import frozen
from mechanisms.ladders import FiniteLadder
from mechanisms.levels import GRAINS, certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.survey.christofides import Christofides
from mechanisms.survey.designs import Simmons, Warner
from mechanisms.survey.estimates import Contribution, contribution
from mechanisms.survey.moments import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class SurveyLadder(FiniteLadder):
    """A ladder of a survey design: symbols are 0 for no and 1 for yes, counts one an answer."""

    @property
    def answers(self) -> tuple[int, ...]:
        """The number that each answer is."""
        return 0, 1

    def rows(self, level: int) -> tuple[Row, Row]:
        """Return the exact probabilities of the answers of a no, and of a yes."""
        no, yes = self.chain.channel(level).rows
        return no, yes

    @cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """What an answer contributes to the share of yes, by level."""
        levels = range(self.levels)
        return tuple(contribution(self.rows(level), self.answers) for level in levels)

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return the truth itself."""
        return category(symbol, 2)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the truth itself, with weight one."""
        return ((category(symbol, 2), 1),)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return the truths as ``int64``."""
        return category_array(symbols, 2)


@frozen
class WarnerLadder(SurveyLadder):
    """Warner's design, relaxed along a ladder; every rung is one."""

    name = "warner"


@frozen
class SimmonsLadder(SurveyLadder):
    """Simmons' design, relaxed along a ladder; every rung is one, with the same question."""

    name = "simmons"


@frozen
class ChristofidesLadder(SurveyLadder):
    """Christofides' design, relaxed along a ladder; every rung is one."""

    name = "christofides"

    @property
    def answers(self) -> tuple[int, ...]:
        """1 to L."""
        return tuple(range(1, self.chain.size + 1))


def warner_ladder(ladder: Sequence[int], metric: str) -> WarnerLadder:
    """Build a ladder of Warner's design; its p follows from each rung.

    Examples
    --------
    >>> warner = warner_ladder([500_000, 1_000_000], "smokes")
    >>> [warner.certified(level) for level in (0, 1)]
    [500000, 1000000]
    """
    rungs = check_ladder(ladder)
    strongest = rounded(Warner.of(Fraction(rungs[-1], MICRO)).rows, rungs[-1])
    chain = finite_chain(strongest, rungs)
    return WarnerLadder(metric, certify(rungs, _ratios(chain)), chain)


def simmons_ladder(unrelated: int, ladder: Sequence[int], metric: str) -> SimmonsLadder:
    """Build a ladder of Simmons' design; its p follows from each rung.

    Parameters
    ----------
    unrelated : int
        In [1, 99], the share of yes to the unrelated question, in percent. The device answers it
        by chance: no true attribute of anybody is used.
    ladder : sequence of int
        Micro-epsilon, weakest first.
    metric : str

    Examples
    --------
    >>> simmons = simmons_ladder(30, [500_000, 1_000_000], "smokes")
    >>> [simmons.certified(level) for level in (0, 1)]
    [500000, 1000000]
    """
    if isinstance(unrelated, bool) or not isinstance(unrelated, int) or not 1 <= unrelated <= 99:
        raise ParameterError(f"unrelated must be a percentage in [1, 99], not {unrelated!r}")
    rungs, y = check_ladder(ladder), Fraction(unrelated, 100)
    strongest = rounded(Simmons.of(Fraction(rungs[-1], MICRO), y).rows, rungs[-1])
    chain = finite_chain(strongest, rungs, _asked_again(strongest, rungs, y))
    return SimmonsLadder(metric, certify(rungs, _ratios(chain)), chain)


def christofides_ladder(
    cards: Sequence[int], ladder: Sequence[int], metric: str
) -> ChristofidesLadder:
    """Build a ladder of Christofides' design.

    Parameters
    ----------
    cards : sequence of int
        How many of each card 1 to L a full deck has, each at least 1; every respondent draws from
        a full deck. They determine the epsilon of the last rung, which may be less than the
        ladder's; :func:`mechanisms.survey.christofides.cards_of` finds cards that reach it.
    ladder : sequence of int
        Micro-epsilon, weakest first.
    metric : str

    Raises
    ------
    ParameterError
        The cards cost more than the last rung, or are none from which a share can be estimated.
    UnrelatedLevelsError
        They cost no more than the last rung but one.

    Examples
    --------
    >>> survey = christofides_ladder((40, 1, 59), [200_000, 400_000], "smokes")
    >>> [survey.certified(level) for level in (0, 1)]
    [200000, 388658]
    """
    rungs = check_ladder(ladder)
    for weight in cards:
        if isinstance(weight, bool) or not isinstance(weight, int) or not weight >= 1:
            raise ParameterError(f"cards must be integers of at least 1, not {weight!r}")
    design = Christofides(tuple(cards))
    cost = loss_micro(design.channel.ratio())
    if not cost <= rungs[-1]:
        raise ParameterError(
            f"cards {tuple(cards)} cost {cost} micro-epsilon, more than the last rung, {rungs[-1]}"
        )
    if len(rungs) > 1 and not rungs[-2] < cost:
        raise UnrelatedLevelsError(
            f"rung {len(rungs) - 1}: cards {tuple(cards)} cost {cost} micro-epsilon, which must be "
            f"more than {rungs[-2]}"
        )
    chain = finite_chain(rounded(design.rows, cost), rungs)
    return ChristofidesLadder(metric, certify(rungs, _ratios(chain)), chain)


def _ratios(chain: FiniteChain) -> list[Fraction]:
    return [chain.ratio(level) for level in range(chain.levels)]


def _asked_again(strongest: FiniteDraw, rungs: Sequence[int], y: Fraction) -> list[FiniteDraw]:
    """Return the steps that replace an answer by one to the unrelated question, weakest first.

    Each does so with the least probability that honours its rung; rounding its two flips up only
    lowers both likelihood ratios.
    """
    steps: list[FiniteDraw] = []
    for number in range(len(rungs) - 1, 0, -1):
        bound = exp_micro(rungs[number - 1])[0]
        (no_no, yes_no), (no_yes, yes_yes) = FiniteChain(strongest, tuple(steps)).channel(0).rows
        excesses = ((yes_yes - bound * yes_no, y), (no_no - bound * no_yes, 1 - y))
        noise = max(excess / (excess + share * (bound - 1)) for excess, share in excesses)
        if not 0 < noise < 1:
            raise UnrelatedLevelsError(
                f"rung {number}: 64-bit thresholds cannot place it below rung {number + 1}"
            )
        to_yes, to_no = ceil_fraction(noise * y * GRAINS), ceil_fraction(noise * (1 - y) * GRAINS)
        steps.insert(0, FiniteDraw(((GRAINS - to_yes, to_yes), (to_no, GRAINS - to_no))))
    return steps
