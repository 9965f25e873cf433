"""The survey designs as mechanisms: one answer to a yes-or-no question, relaxed over levels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import ArrayLike, Ints, np
from mechanisms.base import Epsilon
from mechanisms.category.oracle import CategoryMechanism
from mechanisms.chains.finite import FiniteChain, FiniteDraw, finite_chain, rounded
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import MICRO, ceil_fraction, exp_micro, loss_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS
from mechanisms.noise import Noise
from mechanisms.survey.design import (
    Contribution,
    SurveyDesign,
    cards_of,
    christofides,
    simmons_of,
    warner_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.estimate import Estimate
    from mechanisms.experiments import Scored, Scores
    from mechanisms.items import Context, Item
    from mechanisms.planner.targets import Assumed, Precision


class SurveyMechanism(CategoryMechanism):
    """A survey design with all its levels: values are 0 (no) and 1 (yes), counts one an answer."""

    types = ("survey",)
    gives = "share of yes to {question!r}"
    uncompared = ""
    #: No and yes.
    domain_size = 2

    @abstractmethod
    def _strongest(self) -> SurveyDesign:
        """Return the design of the last level."""

    def _steps(self, strongest: FiniteDraw) -> Sequence[FiniteDraw] | None:
        """Return what draws every other level from the next, or None for uniform noise."""
        return None

    @cached_property
    def chain(self) -> FiniteChain:
        design = self._strongest()
        cost = min(self.micros[-1], loss_micro(design.channel.ratio()))
        strongest = rounded((design.no, design.yes), cost)
        return finite_chain(strongest, self.micros, self._steps(strongest))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number that each answer is."""
        return 0, 1

    def design(self, level: int = -1) -> SurveyDesign:
        """Return the design that the sampler's integers are at a level, the last by default."""
        no, yes = self.chain.channel(level % self.levels).rows
        return SurveyDesign(no, yes, self.numbers)

    @cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """Contributions of an answer to the share of yes, by level."""
        return tuple(self.design(level).contribution for level in range(self.levels))

    def share(self, counts: ArrayLike) -> Estimate:
        """Estimate the share of yes from ``(levels, count_length)`` counts of answers."""
        from mechanisms.estimators.frequency import count_table
        from mechanisms.survey.design import estimate_share

        return estimate_share(self.contributions, count_table(self, counts).tolist())

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        from dataclasses import replace

        from mechanisms.items import Item

        yield Item("share", "yes", replace(self.share(counts), reach=self.reaches()))

    def scores(self, level: int) -> Scores:
        from mechanisms.experiments import Scores

        design = self.design(level)
        no, yes = (np.array([float(each) for each in row]) for row in (design.no, design.yes))
        return Scores(np.array(self.contributions[level].scores), no, yes)

    def scored(self, counts: Ints, level: int, context: Context) -> Iterator[Scored]:
        from mechanisms.experiments import Scored

        yield Scored("share", "yes", self.scores(level).values, counts)

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        from mechanisms.planner.targets import of_share

        part = self.contributions[level]
        return of_share("the share of yes", (part.no, part.yes), assumed)

    def noise(self, level: int) -> Noise | None:
        part = self.contributions[level]
        low, high = min(part.scores), max(part.scores)
        return Noise(part.no, part.yes, high - low, high, 1 - low)


@frozen
class Warner(SurveyMechanism):
    """Answer the sensitive question truly with probability p, and its contrary otherwise.

    p follows from epsilon; :func:`mechanisms.survey.design.warner` has the design of a given p.

    Privacy
    -------
    Yes and no are neighbours; epsilon = |ln(p/(1−p))|, exact (Theorem 5.1). That somebody answered
    is not protected.

    Relaxation
    ----------
    Always: binary randomized response; every level is one of Warner's designs.

    Utility
    -------
    Variance v + p(1−p)/(n (2p−1)²) with v = π(1−π)/n · (N−n)/(N−1). With p = e^ε/(1+e^ε) the noise
    is 1/(4n sinh²(ε/2)), the least that any answer with the same epsilon can have.

    Use
    ---
    The default for one yes-or-no question. The others here trade some of its precision for a
    question that respondents may find easier to answer.

    References
    ----------
    S. L. Warner, "Randomized Response: A Survey Technique for Eliminating Evasive Answer Bias",
    JASA 60(309), 1965. "An Improved Christofides Mechanism for Local Differential Privacy
    Framework", section 3.1, equation 1.

    Examples
    --------
    >>> survey = Warner((0.5, 1.0))
    >>> [survey.certified(level) for level in (0, 1)], survey.share([[0, 0], [620, 380]]).n
    ([500000, 1000000], 1000)
    """

    epsilon: Epsilon

    name = "warner"

    def _strongest(self) -> SurveyDesign:
        return warner_of(Fraction(self.micros[-1], MICRO))


@frozen
class Simmons(SurveyMechanism):
    """Answer the sensitive question with probability p, and an unrelated one otherwise.

    Parameters
    ----------
    unrelated : int
        In [1, 99], the known share y of yes to the unrelated question, in percent. The device
        answers it by chance: no true attribute of anybody is used. p follows from epsilon.

    Privacy
    -------
    Yes and no are neighbours; with a = p+(1−p)y and b = (1−p)y epsilon is the larger of ln(a/b) and
    ln((1−b)/(1−a)), exact (Theorem 5.2), for an adversary who does not know the respondent's answer
    to the unrelated question. A contrary report reveals the sensitive answer of somebody whose
    other one is known. Here there is no such adversary: that answer is drawn at random.

    Relaxation
    ----------
    Always, with y fixed; every level is one of Simmons' designs.

    Utility
    -------
    Variance v + [π a(1−a) + (1−π) b(1−b)]/(n p²), v as in :class:`Warner`. At a given epsilon least
    for y = 1/2, where it is Warner's (Theorem 5.3).

    Use
    ---
    Where respondents find a question with a harmless alternative easier to answer. A y other than
    1/2 only costs precision.

    References
    ----------
    B. G. Greenberg, A.-L. A. Abul-Ela, W. R. Simmons, D. G. Horvitz, "The Unrelated Question
    Randomized Response Model: Theoretical Framework", JASA 64(326), 1969. "An Improved Christofides
    Mechanism for Local Differential Privacy Framework", section 3.2, equations 2 and 4.
    """

    epsilon: Epsilon
    unrelated: int = 50

    name = "simmons"

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"unrelated": 50}

    def _check(self) -> None:
        if not 1 <= self.unrelated <= 99:
            raise ParameterError(
                f"unrelated must be a percentage in [1, 99], not {self.unrelated!r}"
            )

    def _strongest(self) -> SurveyDesign:
        return simmons_of(Fraction(self.micros[-1], MICRO), Fraction(self.unrelated, 100))

    def _steps(self, strongest: FiniteDraw) -> Sequence[FiniteDraw] | None:
        """Replace an answer by one to the unrelated question, as rarely as honours each level.

        Rounding the two flips up only lowers both likelihood ratios.
        """
        y, steps = Fraction(self.unrelated, 100), list[FiniteDraw]()
        for number in range(len(self.micros) - 1, 0, -1):
            bound = exp_micro(self.micros[number - 1])[0]
            (no_no, yes_no), (no_yes, yes_yes) = (
                FiniteChain(strongest, tuple(steps)).channel(0).rows
            )
            excesses = ((yes_yes - bound * yes_no, y), (no_no - bound * no_yes, 1 - y))
            noise = max(excess / (excess + share * (bound - 1)) for excess, share in excesses)
            if not 0 < noise < 1:
                raise UnrelatedLevelsError(
                    f"level {number}: 64-bit thresholds cannot place it below level {number + 1}"
                )
            to_yes, to_no = (
                ceil_fraction(noise * y * GRAINS),
                ceil_fraction(noise * (1 - y) * GRAINS),
            )
            steps.insert(0, FiniteDraw(((GRAINS - to_yes, to_yes), (to_no, GRAINS - to_no))))
        return steps


@frozen
class Christofides(SurveyMechanism):
    """Draw a card from 1 to L; a no answers its number k, a yes answers L + 1 − k.

    Parameters
    ----------
    cards : tuple of int
        How many of each card 1 to L a full deck has, 2 <= L <= 1024, each at least 1; every
        respondent draws from a full deck of their own. They determine the epsilon of the last
        level, which may be less than the nominal one but is more than the last but one. By default
        three that reach it, one in a hundred in the middle
        (:func:`mechanisms.survey.design.cards_of`).

    Privacy
    -------
    Yes and no are neighbours; epsilon is the largest |ln(p_k / p_{L+1−k})|, exact (Theorem 5.4).

    Relaxation
    ----------
    Always; every level is one of Christofides' designs.

    Utility
    -------
    Variance v + V/(n (L+1−2μ)²) with μ and V mean and variance of a card and v as in
    :class:`Warner` (Theorem 3.1). At a given epsilon least without middle cards, where for L = 3 it
    is Warner's (Theorem 5.5), and growing with their share.

    Use
    ---
    Where respondents answer with a number more readily than with yes or no. It costs precision
    against :class:`Warner` as soon as there are middle cards.

    References
    ----------
    T. C. Christofides, "A Generalized Randomized Response Technique", Metrika 57, 2003.
    "An Improved Christofides Mechanism for Local Differential Privacy Framework", section 3.3.
    """

    epsilon: Epsilon
    cards: tuple[int, ...] = ()

    name = "christofides"

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        last = given["last"]
        return {
            "cards": cards_of(Fraction(last, MICRO), Fraction(1, 100)) if last > 0 else (1,) * 3
        }

    def _check(self) -> None:
        for weight in self.cards:
            if isinstance(weight, bool) or not isinstance(weight, int) or not weight >= 1:
                raise ParameterError(f"cards must be integers of at least 1, not {weight!r}")

    def _strongest(self) -> SurveyDesign:
        design, micros = christofides(self.cards), self.micros
        cost = loss_micro(design.channel.ratio())
        if not cost <= micros[-1]:
            raise ParameterError(
                f"cards {self.cards} cost epsilon {cost / MICRO}, more than the last level, "
                f"{micros[-1] / MICRO}"
            )
        if len(micros) > 1 and not micros[-2] < cost:
            raise UnrelatedLevelsError(
                f"level {len(micros) - 1}: cards {self.cards} cost epsilon {cost / MICRO}, which "
                f"must be more than {micros[-2] / MICRO}"
            )
        return design

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.cards) + 1))

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        return f"card {self.output_of(payload) + 1}"
