"""How many users an experiment takes: to tell two shares, or two means, of its arms apart.

Looking once, at the end, takes the fewest; looking a few times that are planned
(:mod:`mechanisms.looks`) hardly more. The intervals of :mod:`mechanisms.experiments`, which may be
looked at every day, take far more.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError, check_probability
from mechanisms.estimate import two_sided
from mechanisms.experiments import Scored, Scores, answer_scores, difference
from mechanisms.looks import drift_of

if TYPE_CHECKING:
    from sotto.design.questions import Question

#: So many users an arm are more than anyone has.
MAX_USERS = 10**12


@dataclass(frozen=True)
class Effect:
    """The effect that an experiment is to show.

    ``first`` and ``arm`` are the shares, or the means in the value's unit, in the first arm and in
    another one; ``power``, in (0, 1), the probability of noticing; ``error``, in (0, 1), that of an
    interval that is wrong, all arms together.
    """

    first: float
    arm: float
    power: float = 0.8
    error: float = 0.05
    #: At least 2: each of the others is compared with the first one.
    arms: int = 2
    #: Looks until a planned end, evenly spaced.
    looks: int = 5

    def __post_init__(self) -> None:
        if not self.arms >= 2:
            raise ParameterError(f"an experiment has at least 2 arms, not {self.arms}")
        if self.first == self.arm:
            raise ParameterError("the two arms of an experiment must differ")
        for name in ("power", "error"):
            check_probability(name, getattr(self, name))
        if not self.power > self.one_error:
            raise ParameterError(f"power must be above the error, {self.one_error:g}")

    @property
    def one_error(self) -> float:
        """The error of each of the intervals."""
        return self.error / (self.arms - 1)


@dataclass(frozen=True)
class ArmUsers:
    """Users an arm, if all reports are of one level."""

    #: From 1; None without randomization.
    level: int | None
    #: Micro-epsilon; None without randomization.
    certified: int | None
    #: Looking once, at the end; at the looks until a planned end; and always. By then, at the
    #: latest, a difference is found with the power.
    once: int
    planned: int
    always: int


def arm_users(question: Question, effect: Effect) -> tuple[ArmUsers, ...]:
    """Return how many users an arm takes: without randomization, and at each level sent.

    Looking once, with n reports an arm and standard scores z: ``n = (z(1 - error/2) + z(power))^2
    2 v / (m1 - m0)^2``; v is the variance of a report's score in the first arm, of mean m0, for a
    share ``m0 (1 - m0)`` and the noise. With planned looks the sum of scores z is the drift that
    they find (:func:`mechanisms.looks.drift_of`). Looking always, n is the least
    with which the interval of the expected counts stays so far from zero as chance moves the
    estimate with the probability 1 - power. It may well exclude zero before. A user counts with one
    report in the window, if he has that many. Raises ParameterError if the mechanism's estimate
    is no average over reports, or the effect is out of range.

    Examples
    --------
    >>> from sotto.design.questions import question_of
    >>> asked = question_of("boolean", [1_000_000, 2_000_000], {}, mechanism="grr")
    >>> [row.once for row in arm_users(asked, Effect(0.10, 0.11))]
    [14128, 158654, 42544]
    """
    if why := question.mechanism.why_not_compared:
        raise ParameterError(f"arms are not compared by {question.spec['name']}: {why}")
    first, arm = (_within(question, each) for each in (effect.first, effect.arm))
    reaches = (
        two_sided(1 - effect.one_error) + NormalDist().inv_cdf(effect.power),
        drift_of(effect.power, effect.looks, effect.one_error),
    )
    # A user with several reports counts with one: all of them say the same of him.
    per_user = min(question.per_user, 1.0)
    found = []
    for level in (None, *range(question.sent)):
        raw = level is None
        scores = answer_scores((1.0, 0.0)) if raw else question.mechanism.scores(level)
        assert scores is not None, "estimates that are compared have scores"
        variance = scores.variance(first)
        reports = [reach**2 * 2 * variance / (arm - first) ** 2 for reach in reaches]
        reports.append(_always(question, scores, first, arm, effect))
        found.append(
            ArmUsers(
                None if raw else level + 1,
                None if raw else question.mechanism.certified(level),
                *(ceil(each / per_user) for each in reports),
            )
        )
    return tuple(found)


def _within(question: Question, value: float) -> float:
    """Return a share, or a mean scaled to [0, 1]."""
    scaled = (value - question.low) / question.scale
    if not 0 <= scaled <= 1:
        high = question.low + question.scale
        raise ParameterError(f"{value:g} must lie in [{question.low:g}, {high:g}]")
    return scaled


def _always(question: Question, scores: Scores, first: float, arm: float, effect: Effect) -> int:
    """Return the reports an arm with which an interval that holds at all times excludes zero."""
    variances = scores.variance(first), scores.variance(arm)
    chance = NormalDist().inv_cdf(effect.power)

    def apart(reports: int) -> bool:
        """Whether the interval of the expected counts is as far from zero as chance moves it."""
        one, other = (
            Scored("", "", scores.values, reports * scores.law(mean)) for mean in (first, arm)
        )
        found = difference(one, other, error=effect.one_error / question.most_reports)
        distance = found.low if arm > first else -found.high
        return distance >= chance * sqrt(sum(variances) / reports)

    if not apart(MAX_USERS):
        raise ParameterError(f"{MAX_USERS:g} users an arm cannot tell the arms apart")
    return 1 + bisect_left(range(1, MAX_USERS), True, key=apart)
