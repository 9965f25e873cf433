"""What a plan promises, as sentences: what a value is, what can be learnt of it, and for how long.

Every figure follows from the compiled plan. A bound on what can be learnt is that of Bayes' rule
under the certified epsilon: whoever holds two values for equally likely, and sees all reports of
one, is at most e^ε / (1 + e^ε) sure which of them it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mechanisms.exact import MICRO
from sotto.design.spending import figure, lifetime_of, value_cost
from sotto.plan.checks import amount
from sotto.plan.segments import OTHER

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

_UNITS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
#: So many values of a list are named.
_LISTED = 8


def sure(micro: int) -> str:
    """Return how sure one can become, in per cent, rounded up and never to 100.

    >>> sure(500_000), sure(2_000_000), sure(6_000_000), sure(30_000_000)
    ('63 %', '89 %', '99.8 %', 'more than 99.99 %')
    """
    share = 100 / (1 + math.exp(-micro / MICRO))
    for decimals in (0, 1, 2):
        rounded = math.ceil(share * 10**decimals) / 10**decimals
        if rounded < 100:
            return f"{rounded:.{decimals}f} %"
    return "more than 99.99 %"


def span(milliseconds: int) -> str:
    """Return a duration in words, in the largest unit of which it has whole ones.

    >>> span(7 * 86_400_000), span(3_600_000), span(90_000), span(0)
    ('7 days', '1 hour', '90 seconds', '0 milliseconds')
    """
    name = next(
        name
        for name, unit in _UNITS.items()
        if unit == 1 or (milliseconds >= unit and milliseconds % unit == 0)
    )
    count = milliseconds // _UNITS[name]
    return f"{count:,} {name}{'s' * (count != 1)}"


def when(after: int) -> str:
    """Return in words when a level is sent: milliseconds after the value was recorded."""
    return f"after {span(after)}" if after else "at once"


def sentence(text: str) -> str:
    """Return a text with a full stop, if it has no end.

    >>> sentence("How it starts"), sentence("Why?")
    ('How it starts.', 'Why?')
    """
    return text if text.endswith((".", "!", "?")) else f"{text}."


def title(metric: CompiledMetric) -> str:
    """Return what a metric is, as the plan describes it, or its question, or its name."""
    return sentence(metric.description or metric.question or metric.name)


def purpose(plan: CompiledPlan, metric: CompiledMetric) -> str:
    """Return what a metric is for, as it or its plan says; empty where neither does."""
    text = metric.purpose or plan.purpose
    return sentence(text) if text else ""


def value(metric: CompiledMetric) -> str:
    """Return what one value is: the data type in the sense of an assessment."""
    unit = f" {metric.unit}" if metric.unit else ""
    limits = "" if metric.range is None else f"{metric.range[0]:g} to {metric.range[1]:g}{unit}"
    domain = metric.domain or ()
    listed = f"{len(domain)} values" if len(domain) > _LISTED else ", ".join(domain)
    text = {
        "category": f"one of {listed}; any other counts as {metric.outside}",
        "boolean": "true or false",
        "string": "a text",
        "number": f"a number from {limits}",
        "ordinal": f"a number from {limits}" if limits else f"one of {listed}, in this order",
        "survey": "yes or no",
        "vector": f"{metric.spec.get('dimensions')} numbers from {limits}",
        "top_item": f"which was most frequent of {listed}",
    }[metric.type]
    return text + ("; or that there is none" if metric.missing else "")


def how_often(plan: CompiledPlan, metric: CompiledMetric) -> str:
    """Return which values of a budget period are reported."""
    period = span(plan.period)
    text = {
        "first": f"the first value in {period}",
        "reservoir": f"one value in {period}, chosen at random",
        "every": f"the first {metric.limit} values in {period}",
        "constant": f"the first value ever, in each {period} with new randomness",
    }[metric.kind]
    if metric.type == "top_item":
        text = f"once in {period}"
    return text + (f", in one such period of {metric.panel}" if metric.panel > 1 else "")


def bounds(plan: CompiledPlan) -> Iterator[str]:
    """Yield what can be learnt at most: from a value, from a period, from a life."""
    least, most = (pick(map(value_cost, plan.metrics)) for pick in (min, max))
    single = sure(most) if least == most else f"{sure(least)} to {sure(most)}, by question,"
    yield (
        "Suppose that somebody considers two possible answers of yours equally likely, and then "
        f"sees all that is sent about that answer: they can be at most {single} sure which of the "
        "two is true. A guess would be right in 50 % of cases."
    )
    whole = sum(metric.permanent or metric.cost for metric in plan.metrics)
    later = ", and later about what does not change," if plan.permanent else ","
    yield (
        f"From all that is sent under this plan about {span(plan.period)}{later} they can be at "
        f"most {sure(whole)} sure which of two descriptions of that time is true (epsilon "
        f"{amount(whole)})."
    )
    lasts = lifetime_of(plan)
    life = f"In its life this device spends at most epsilon {amount(plan.ceilings.lifetime)}"
    if lasts.periods is None:
        yield f"{life}."
        return
    yield (
        f"{life}, and is silent once that is spent, after about {_years(lasts.years)}. For "
        "whoever can tell that answers of several such times are yours, the epsilons add up, and "
        f"the bounds above no longer hold; each {span(plan.period)} therefore have a random name "
        "of their own, which is not joined to the one before."
    )


def _years(count: float) -> str:
    """Return a time in years, or what is below two in months, in days below two months.

    >>> _years(18.7123), _years(0.958), _years(0.05)
    ('18.7 years', '11 months', '18 days')
    """
    if count >= 2:
        return f"{figure(count)} years"
    if count * 12 >= 2:
        return f"{count * 12:.0f} months"
    return span(max(1, round(count * 365.25)) * 86_400_000)


def kept(plan: CompiledPlan) -> Iterator[str]:
    """Yield how long values and answers stay on the device."""
    if any(metric.type == "top_item" for metric in plan.metrics):
        yield (
            "True answers are not stored. Counts of items are kept in memory until the "
            f"{span(plan.period)} are over; all other true answers only until they are randomized."
        )
    else:
        yield "True answers are not stored: they are in memory only until they are randomized."
    longest = span(max(metric.horizon for metric in plan.metrics))
    yield (
        "Randomized answers wait on this device until the last of them is sent. What could not be "
        f"sent within {longest} is deleted at the next attempt."
    )
    if plan.permanent:
        yield (
            "Of what does not change, one randomized answer is kept on this device until you "
            "withdraw."
        )


def last_day(plan: CompiledPlan) -> str:
    """Return the last day on which anything is recorded."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp((plan.expires - 1) // 1000, UTC).strftime("%Y-%m-%d")


def sent_as_it_is(plan: CompiledPlan) -> list[str]:
    """Return what each report has in the clear: the segments, and the group of an experiment."""
    found = [f"{name}: {', '.join(values)} or {OTHER}" for name, values in plan.segments]
    if (experiment := plan.experiment) is not None:
        found.append(f"group of the experiment {experiment.name}: {', '.join(experiment.arms)}")
    return found


def not_hidden(plan: CompiledPlan) -> str:
    """Return what no randomness protects."""
    text = (
        "Not hidden are: that this app sends, which questions it answers, how often, and when, to "
        f"{span(plan.resolution)}. Whoever carries the messages also sees the network address that "
        "they come from."
    )
    if plan.segments:
        named = "; ".join(
            f"{name}: {', '.join(values)} or {OTHER}" for name, values in plan.segments
        )
        text += f" With each answer is sent, as it is, what this device is ({named})."
    if (experiment := plan.experiment) is not None:
        text += (
            f" So is the group of an experiment ({experiment.name}: "
            f"{', '.join(experiment.arms)}), into which this device is put by chance."
        )
    return text
