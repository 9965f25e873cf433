"""Panels traded against years and users: what it is worth to answer in one period of N.

A device that answers in one budget period of each N loses 1/N as much a year. An estimate then
has 1/N of the reports, each at the full epsilon: against an answer in every period its standard
error is sqrt(N) times as large. Against the same yearly loss spread over all periods, at epsilon/N
each, it is smaller: the information in a report of a small epsilon goes with the square of that.

References
----------
X. Ren et al., "LDP-IDS: Local Differential Privacy for Infinite Data Streams", SIGMOD 2022:
division of the population instead of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from sotto.design.spending import YEAR, Lifetime
from sotto.errors import ParameterError

if TYPE_CHECKING:
    from sotto.design.metric import Design
    from sotto.design.questions import Question


@dataclass(frozen=True)
class Terms:
    """What panels are traded against.

    Parameters
    ----------
    period : int
        Milliseconds.
    recurring : int
        Micro-epsilon that a turn takes, with all metrics of a plan.
    ceiling : int or None
        Micro-epsilon that turns may take in a lifetime, if there is such a ceiling.
    """

    period: int
    recurring: int
    ceiling: int | None


@dataclass(frozen=True)
class PanelDesign:
    """One number of panels.

    Attributes
    ----------
    panel : int
        A device answers in one budget period of so many.
    turns : float
        Periods a year in which it answers.
    yearly : float
        Micro-epsilon that it loses a year, with all metrics of a plan.
    years : float or None
        How long the lifetime's ceiling lasts; None where there is none or it is never reached.
    reports : int
        Expected in a window.
    error, width, floor : float or None
        At the last level, in the unit of the value: of the truth of those who answered.
    of_all : float
        Standard error of the truth of all users, of whom those who answered are a random part.
    split : float or None
        Standard error where the same yearly loss is spread over all periods, of a report of its own
        in each; None where there is no such report, and of constant metrics, which lose nothing.
    needed : int or None
        Users for the goal; None without a target.
    """

    panel: int
    turns: float
    yearly: float
    years: float | None
    reports: int
    error: float
    width: float
    floor: float | None
    of_all: float
    split: float | None
    needed: int | None


def in_panels(found: Design, panels: tuple[int, ...], terms: Terms) -> tuple[PanelDesign, ...]:
    """Return what a design would be with other numbers of panels, for the same users.

    Examples
    --------
    A share over 52 weeks at a total of epsilon 2, per square root of the number of users:

    >>> from sotto.design.metric import Goal, design
    >>> from sotto.design.questions import question_of
    >>> from mechanisms.planner.targets import Assumed
    >>> asked = question_of("boolean", [2_000_000], {}, mechanism="grr")
    >>> found = design(asked, Goal("error"), users=10**8)
    >>> (row,) = in_panels(found, (52,), Terms(7 * 86_400_000, 2_000_000, None))
    >>> [round(error * 10**4, 2) for error in (row.error, row.of_all, row.split)]
    [3.07, 4.71, 26.0]
    """
    return tuple(_in_panel(found, panel, terms) for panel in panels)


def _in_panel(found: Design, panel: int, terms: Terms) -> PanelDesign:
    question, goal = found.question.in_panel(panel), found.goal
    precision = question.precision(question.sent - 1)
    n = question.reports(found.users)
    lasts = Lifetime(
        terms.period, terms.ceiling or 0, ((panel, terms.recurring),) if terms.recurring else ()
    )
    error = precision.standard_error(n)
    needed = None
    if goal.target is not None:
        needed = question.users(precision.reports(goal.measure, goal.target, goal.confidence))
    return PanelDesign(
        panel,
        YEAR / terms.period / panel,
        lasts.yearly,
        lasts.years if terms.ceiling is not None and terms.recurring else None,
        n,
        error,
        precision.width(n, goal.confidence),
        precision.floor(n) if precision.floors else None,
        sqrt(error**2 + question.scale**2 * _spread(question) * (1 - 1 / panel) / n),
        _split(found, panel),
        needed,
    )


def _spread(question: Question) -> float:
    """Return the variance of what users have, in parts of the range: the largest, if unknown."""
    values, share = question.assumed.values, question.assumed.share
    if values is not None:
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / len(values)
    if share is None or question.kind in ("number", "ordinal", "vector"):
        return 0.25
    return share * (1 - share)


def _split(found: Design, panel: int) -> float | None:
    """Return the standard error of a report in every period, each of 1/N of the epsilon."""
    question = found.question.in_panel(1)
    if question.constant:
        return None
    micro = question.mechanism.certified(question.sent - 1) // panel
    try:
        precision = question.precision_of(question.alone(micro), 0)
        return precision.standard_error(question.reports(found.users))
    except ParameterError:
        return None
