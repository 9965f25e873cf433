"""Figures that a plan's segments and arms can show, and what they tell of a device."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, prod
from textwrap import wrap
from typing import TYPE_CHECKING

from sotto.columns import time_text
from sotto.design.small_groups import short_of
from sotto.plan.segments import crossed, label

if TYPE_CHECKING:
    from sotto.design.questions import Question
    from sotto.plan.compiled import CompiledPlan
    from sotto.plan.segments import Attribute

#: A plan with more cells is warned of.
MANY = 16
_WIDTH = 92


@dataclass(frozen=True)
class SegmentDesign:
    """A breakdown of the last level that is sent; values of a segment are taken as alike."""

    #: The attributes, such as ``os,app_version``, and how many slices they make.
    of: str
    slices: int
    #: Users of the smallest and of the largest slice, and the standard error of each.
    fewest: int
    most: int
    largest_error: float
    least_error: float


def in_segments(plan: CompiledPlan, question: Question, users: int) -> tuple[SegmentDesign, ...]:
    """Return what each breakdown of a plan shows of a question with so many users."""
    attributes = plan.attributes
    found = []
    for chosen in crossed(attributes) if question.kind != "vector" else ():
        if question.kind == "string" and len(chosen) > 1:
            continue
        shares = [_shares(plan, attributes[at]) for at in chosen]
        fewest, most = (max(int(users * prod(map(end, shares))), 1) for end in (min, max))
        precision = question.precision(question.sent - 1)
        found.append(
            SegmentDesign(
                ",".join(attributes[at].name for at in chosen),
                prod(len(each) for each in shares),
                fewest,
                most,
                precision.standard_error(question.reports(fewest)),
                precision.standard_error(question.reports(most)),
            )
        )
    return tuple(found)


def _shares(plan: CompiledPlan, attribute: Attribute) -> list[float]:
    """Return what part of the devices has each value: of a segment's they are taken as alike."""
    experiment = plan.experiment
    if experiment is None or attribute.name != experiment.name:
        return [1 / len(attribute.values)] * len(attribute.values)
    share = experiment.share / 1_000_000
    arms = [share / len(experiment.arms)] * len(experiment.arms)
    return arms + [1 - share] * (len(attribute.values) - len(arms))


def lines(plan: CompiledPlan) -> list[str]:
    """Return what a plan's segments are and tell, for people to read; nothing without any."""
    if not plan.attributes:
        return []
    named = " x ".join(f"{each.name} ({', '.join(each.values)})" for each in plan.attributes)
    said = [
        f"A cell that stays the same links a device's pseudonyms over periods: by at most "
        f"{log2(plan.cells):.1f} bits (log2 of {plan.cells}) on average over devices, and more "
        "where few devices share it. No epsilon is charged for it: it is public, and must not be "
        "derived from a value.",
        "A device hides among those of its cell, of which n of a segment's results says how many "
        f"reports it has. Results of fewer than {plan.minimum_reports:,} reports are withheld, and "
        "others from which they would follow.",
    ]
    if (least := plan.minimum_reports) > 1:
        some = [round(least * times) for times in (1.25, 1.5, 2)]
        often = ", ".join(f"{mean:,}: {100 * short_of(mean, least):.2g} %" for mean in some)
        said.append(
            f"A value with few reports shares a row with another one, such as 'linux or other', in "
            f"windows where it falls below {least:,}. How often, by its reports a window on "
            f"average: {often}."
        )
    if plan.experiment is not None:
        if planned := plan.decision:
            said.append(
                f"The experiment is decided by {planned.metric}, at {planned.looks} looks until a "
                f"planned end: {', '.join(map(time_text, planned.times))}."
            )
        said += [
            f"Arms are not compared by {each.name}: {each.mechanism.why_not_compared}."
            for each in plan.metrics
            if each.mechanism.why_not_compared
        ]
    if len(plan.attributes) > 2:
        said.append("Results cross the two segments; the arm is broken down by itself.")
    head = f"segments: {named}: {plan.cells} cells, sent in the clear with every report"
    found = wrap(head, _WIDTH, subsequent_indent="  ")
    for each in said:
        found += wrap(each, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return found


def warnings(plan: CompiledPlan) -> list[str]:
    """Return a line where combinations of segments can single out a device."""
    if plan.cells <= MANY:
        return []
    rarest = label((each.name, each.values[-1]) for each in plan.attributes)
    return [
        f"segments: {plan.cells} cells can single out a device, such as the only one with "
        f"{rarest}, in every period: list fewer values, or one segment alone"
    ]
