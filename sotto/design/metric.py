"""How precise the estimates of a metric will be, and what that takes: users, ladder, mechanism.

All figures are predictions of :mod:`mechanisms.planner.precision`, from the probabilities that the
sampler realises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt

from mechanisms.errors import ParameterError, check_at_least
from mechanisms.planner.targets import Assumed, Precision
from mechanisms.registry import build, mechanisms_for, supports_constant
from sotto.design.experiment import ArmUsers, Effect
from sotto.design.questions import Question
from sotto.design.segments import SegmentDesign
from sotto.design.spending import YEAR, Lifetime
from sotto.plan.choice import Asked, spec_of

#: So many users are assumed where neither they nor a target are given.
USERS = 10_000
#: The largest thousandth of epsilon that is tried.
_MOST = 16_000
#: Parameters of a mechanism that the metric itself gives.
_GIVEN = ("domain_size", "missing", "clip", "dimensions")
#: Parameters of mechanisms that are compared, where a plan would have to choose them.
_CHOSEN: Mapping[str, Mapping[str, int]] = {
    "sampled_bit": {"bits": 10},
    "sampled_bits": {"bits": 10, "count": 2},
    "split_bits": {"bits": 8},
}


@dataclass(frozen=True)
class Goal:
    """How precise an estimate should be."""

    #: ``error``, ``width`` or ``floor``.
    measure: str = "width"
    #: In the unit of the value; None where only what so many users reach is asked.
    target: float | None = None
    #: The interval's confidence, in (0, 1).
    confidence: float = 0.95


@dataclass(frozen=True)
class LevelDesign:
    """A level: what it costs, how precise it will be, and how many users the goal takes."""

    #: From 1.
    number: int
    #: Micro-epsilon.
    nominal: int
    certified: int
    #: Milliseconds.
    after: int | None
    #: With the users of the design, in the unit of the value; no floor but of shares.
    error: float
    width: float
    floor: float | None
    #: Users for the goal; None without a target.
    needed: int | None


@dataclass(frozen=True)
class Other:
    """A mechanism for the same question at the last level."""

    #: Its name and parameters.
    spec: Mapping[str, object]
    #: Predicted, in the unit of the value.
    error: float
    #: By what part it is more than that of the best.
    excess: float
    #: Bytes.
    payload: int


@dataclass(frozen=True)
class PanelDesign:
    """One number of panels."""

    #: A device answers in one budget period of so many.
    panel: int
    #: Periods a year in which it answers.
    turns: float
    #: Micro-epsilon that it loses a year, with all metrics of a plan.
    yearly: float
    #: How long the lifetime's ceiling lasts; None where it is never reached.
    years: float | None
    #: Expected in a window.
    reports: int
    #: At the last level, in the unit of the value: of the truth of those who answered.
    error: float
    width: float
    floor: float | None
    #: Standard error of the truth of all users, of whom those who answered are a random part.
    of_all: float
    #: Users for the goal; None without a target.
    needed: int | None


@dataclass(frozen=True)
class Design:
    """The answer to a question."""

    question: Question
    goal: Goal
    #: The number of users that the errors are of.
    users: int
    #: The estimated figure, and the data that is assumed.
    what: str
    data: str
    #: Those that are sent.
    levels: tuple[LevelDesign, ...]
    #: All mechanisms that could be had, best first; none where they cannot be compared.
    others: tuple[Other, ...]
    #: Micro-epsilon at which the users would reach a target that they miss.
    enough: int | None = None
    #: The design with panels, if that is asked.
    panels: tuple[PanelDesign, ...] = ()
    #: Users for an experiment, where one is asked for.
    effect: Effect | None = None
    arms: tuple[ArmUsers, ...] = ()
    #: The design by segment, if a plan has segments.
    segments: tuple[SegmentDesign, ...] = ()

    @property
    def missed(self) -> bool:
        """Whether the users miss the target even at the last level."""
        last = self.levels[-1]
        return last.needed is not None and last.needed > self.users


def design(question: Question, goal: Goal, users: int | None = None) -> Design:
    """Answer a question.

    Users that are left out are as many as the target takes at the last level, or 10,000. Raises
    ParameterError if the ladder cannot be honoured, the target cannot be had by any number of
    users, or there is no such measure of what is estimated.

    Examples
    --------
    >>> from sotto.design.questions import question_of
    >>> asked = question_of("category", [500_000, 2_000_000], {"domain_size": 5})
    >>> found = design(asked, Goal("width", 0.02))
    >>> [level.needed for level in found.levels], found.users
    ([601988, 27815], 27815)
    """
    if users is not None:
        check_at_least("users", users, 1)
    precisions = [question.precision(level) for level in range(question.sent)]
    needed = [_needed(question, each, goal) for each in precisions]
    shown = users or needed[-1] or USERS
    n = question.reports(shown)
    levels = tuple(
        LevelDesign(
            index + 1,
            question.ladder[index],
            question.mechanism.certified(index),
            question.after[index] if question.after else None,
            each.standard_error(n),
            each.width(n, goal.confidence),
            each.floor(n) if each.floors else None,
            needed[index],
        )
        for index, each in enumerate(precisions)
    )
    found = Design(
        question,
        goal,
        shown,
        precisions[-1].what,
        precisions[-1].data,
        levels,
        tuple(_others(question, n)),
    )
    return replace(found, enough=_enough(question, goal, n)) if found.missed else found


def _needed(question: Question, precision: Precision, goal: Goal) -> int | None:
    if goal.target is None:
        precision.measure(goal.measure, 1, goal.confidence)
        return None
    reports = precision.reports(goal.measure, goal.target, goal.confidence)
    return question.users(max(reports, question.published_from))


def _enough(question: Question, goal: Goal, n: int) -> int | None:
    """Return the least thousandth of epsilon, in micro-epsilon, at which n reports reach the goal.

    None if the largest that is tried is not enough.
    """
    target = inf if goal.target is None else goal.target

    def enough(thousandths: int) -> bool:
        try:
            precision = question.precision_of(question.alone(thousandths * 1000), 0)
            return precision.measure(goal.measure, n, goal.confidence) <= target
        except ParameterError:
            return False

    return 1000 * (1 + bisect_left(range(1, _MOST), True, key=enough)) if enough(_MOST) else None


def _others(question: Question, n: int) -> list[Other]:
    """Return all mechanisms for a question by the error of its own estimate, best first."""
    asked = [] if question.ratio else [question]
    if question.kind == "string":
        # Strings that are known in advance can be categories, with one more for all others.
        number = len(question.assumed.candidates)
        known = {"domain_size": number + 1}
        share = Assumed(share=1 / number)
        asked.append(replace(question, kind="category", spec=known, assumed=share))
    found = [other for each in asked for other in _of_type(each, n)]
    found.sort(key=lambda other: (float(f"{other.error:.9g}"), other.payload))
    return [replace(other, excess=max(other.error / found[0].error - 1, 0.0)) for other in found]


def _of_type(question: Question, n: int) -> Iterator[Other]:
    """Yield the mechanisms of a type that can honour the ladder."""
    ladder = question.ladder[: question.sent]
    given = {key: question.spec[key] for key in _GIVEN if key in question.spec}
    given.setdefault("missing", False)
    asked = Asked(question.kind, given, ladder, question.name)
    for name in mechanisms_for(question.kind):
        spec = spec_of(name, asked, _CHOSEN.get(name))
        if name == question.spec.get("name"):
            spec = dict(question.spec)
        if question.constant and not supports_constant(spec):
            continue
        try:
            mechanism = build(spec, ladder, question.name)
            precision = question.precision_of(mechanism, len(ladder) - 1)
        except ParameterError:
            continue
        # Bounds of a mean are not compared with a share.
        if not question.shares or precision.floors:
            yield Other(spec, precision.standard_error(n), 0.0, mechanism.payload_width)


def in_panel(found: Design, panel: int, lasts: Lifetime) -> PanelDesign:
    """Return what a design would be with another number of panels, for the same users.

    ``lasts`` is the lifetime of a plan whose metrics all have so many panels.

    A device that answers in one budget period of each N loses 1/N as much a year. An estimate then
    has 1/N of the reports, each at the full epsilon: against an answer in every period its
    standard error is sqrt(N) times as large. Against the same yearly loss spread over all periods,
    at epsilon/N each, it is smaller: the information in a report of a small epsilon goes with the
    square of that.

    References
    ----------
    X. Ren et al., "LDP-IDS: Local Differential Privacy for Infinite Data Streams", SIGMOD 2022:
    division of the population instead of the budget.

    Examples
    --------
    A share over 52 weeks at a total of epsilon 2, per square root of the number of users:

    >>> from sotto.design.questions import question_of
    >>> from mechanisms.planner.targets import Assumed
    >>> asked = question_of("boolean", [2_000_000], {}, mechanism="grr")
    >>> found = design(asked, Goal("error"), users=10**8)
    >>> row = in_panel(found, 52, Lifetime(7 * 86_400_000, 10**9, ((52, 2_000_000),)))
    >>> [round(error * 10**4, 2) for error in (row.error, row.of_all)]
    [3.07, 4.71]
    """
    question, goal = found.question.in_panel(panel), found.goal
    precision = question.precision(question.sent - 1)
    n = question.reports(found.users)
    error = precision.standard_error(n)
    return PanelDesign(
        panel,
        YEAR / lasts.period / panel,
        lasts.yearly,
        lasts.years if lasts.costs else None,
        n,
        error,
        precision.width(n, goal.confidence),
        precision.floor(n) if precision.floors else None,
        sqrt(error**2 + question.scale**2 * _spread(question) * (1 - 1 / panel) / n),
        _needed(question, precision, goal),
    )


def _spread(question: Question) -> float:
    """Return the variance of what users have, in parts of the range: the largest, if unknown."""
    values, share = question.assumed.values, question.assumed.share
    if question.ratio is not None:
        # The error of a retention counts that already.
        return 0.0 if question.ratio == "age" else 0.25 / (share or 1.0)
    if values is not None:
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / len(values)
    if share is None or question.kind in ("number", "ordinal", "vector"):
        return 0.25
    return share * (1 - share)
