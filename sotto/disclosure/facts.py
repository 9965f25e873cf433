"""A plan's promises, as sentences: what a value is, what can be learnt of it, and for how long.

Every figure follows from the compiled plan. A bound on what can be learnt is that of Bayes' rule
under the certified epsilon: whoever holds two values for equally likely, and sees all reports of
one, is at most e^ε / (1 + e^ε) sure which of them it was. A constant metric counts with its
permanent response, since every period's reports are about the same value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mechanisms.exact import MICRO
from sotto.design.spending import figure, lifetime_of, theft, value_cost
from sotto.plan.checks import amount, in_line

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

_UNITS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
#: So many values of a list are named.
_LISTED = 8


def sure(micro: int) -> str:
    """Return how sure one can become, in per cent, rounded up: to 100 where that is above 99.99.

    >>> sure(500_000), sure(2_000_000), sure(6_000_000), sure(30_000_000)
    ('63 %', '89 %', '99.8 %', '100 %')
    """
    share = 100 / (1 + math.exp(-micro / MICRO))
    for decimals in (0, 1, 2):
        rounded = math.ceil(share * 10**decimals) / 10**decimals
        if rounded < 100:
            return f"{rounded:.{decimals}f} %"
    return "100 %"


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


def levels(metric: CompiledMetric) -> str:
    """Return the certified epsilon of each level that is sent, and when it is."""
    return "; ".join(
        f"{amount(metric.mechanism.certified(level))} {when(after)}"
        for level, after in enumerate(metric.delays)
    )


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
    if metric.measure is not None:
        text = f"{metric.measure.in_words()}: {text}"
    return in_line(text + ("; or that there is none" if metric.missing else ""))


def how_often(plan: CompiledPlan, metric: CompiledMetric) -> str:
    """Return which values of a budget period are reported."""
    period = span(plan.period)
    text = {
        "first": f"the first value in {period}",
        "reservoir": f"one value in {period}, chosen at random",
        "every": f"the first {metric.limit} values in {period}",
        "constant": f"the first value after consent, in each {period} with new randomness",
    }[metric.kind]
    if metric.type == "top_item" or metric.measure is not None:
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
    period = span(plan.period)
    yield (
        f"From all that is sent under this plan about {period}, they can be at most "
        f"{sure(known(plan))} sure which of two descriptions of that time is true (epsilon "
        f"{amount(known(plan))})."
    )
    if plan.permanent:
        yield (
            f"These bounds count answers to what does not change ({_constant(plan)}) of all times "
            f"together (epsilon {amount(plan.permanent)}). Whoever withdraws and agrees again "
            "answers anew, and that epsilon is added."
        )
    lasts = lifetime_of(plan)
    life = (
        f"In its life this device spends at most epsilon {amount(plan.ceilings.lifetime)}, unless "
        "you agree to more"
    )
    if lasts.periods is None:
        yield f"{life}."
        return
    then = "answers only what does not change" if plan.permanent else "is silent"
    yield (
        f"{life}; once that is spent, at the earliest after about {_years(lasts.years)}, it "
        f"{then}. For whoever can tell that answers of several times of {period} are yours, the "
        "epsilons add up, and the bounds above do not hold for all of these answers together."
    )


def known(plan: CompiledPlan) -> int:
    """Return the micro-epsilon of all reports about a period, a permanent response's included."""
    return plan.recurring + plan.permanent


def _constant(plan: CompiledPlan) -> str:
    return ", ".join(metric.name for metric in plan.metrics if metric.permanent)


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


def unless_stored(plan: CompiledPlan) -> str:
    """Return what happens to an answer after it is randomized; some may have been stored before."""
    return "sent" if any(metric.stored for metric in plan.metrics) else "stored or sent"


def kept(plan: CompiledPlan) -> Iterator[str]:
    """Yield how long values and answers stay on the device."""
    said = {each: each.measure.in_words() for each in plan.measured if each.measure is not None}
    listed = "; ".join(f"{each.name} ({said[each]})" for each in said if each.stored)
    if listed:
        yield (
            f"This device stores true values: {listed}. Whoever can read its files learns them. "
            f"They are erased when the {span(plan.period)} are over and one answer is drawn from "
            "them, and when you withdraw; the time of the first use only when you withdraw."
        )
    held = [each for each in said if each.holds_response]
    if held:
        once, later = (
            max(map(of, held)) for of in (lambda each: each.mechanism.certified(), theft)
        )
        yield (
            f"This device keeps randomized answers until the {span(plan.period)} are over: "
            f"{'; '.join(f'{each.name} ({said[each]})' for each in held)}. Whoever reads its files "
            f"once can be at most {sure(once)} sure of one, and with what is sent later at most "
            f"{sure(later)}. Whoever reads them twice may learn for certain that it was used in "
            "between."
        )
    counted = any(metric.type == "top_item" for metric in plan.metrics)
    other = "Other true" if listed else "True"
    yield (
        f"{other} answers are not stored. Counts of items are kept in memory until the "
        f"{span(plan.period)} are over; all other true answers only until they are randomized."
        if counted
        else f"{other} answers are not stored: they are in memory only until they are randomized."
    )
    longest = span(max(metric.horizon for metric in plan.metrics))
    yield (
        "Randomized answers wait on this device until the last of them is sent. What could not be "
        f"sent within {longest} is deleted at the next attempt."
    )
    if plan.permanent:
        yield (
            f"One randomized answer about what does not change ({_constant(plan)}) is kept on this "
            "device until you withdraw."
        )


def in_the_clear(plan: CompiledPlan) -> dict[str, str]:
    """Return what no noise protects and each report shows: its values by name, as a text.

    These are the plan's segments and the arm of its experiment.
    """
    return {
        each.name: f"{', '.join(each.values[:-1])} or {each.values[-1]}" for each in plan.attributes
    }


def not_hidden(plan: CompiledPlan) -> str:
    """Return what no randomness protects."""
    text = (
        "Not hidden are: that this app sends, which questions it answers, how often, and when, to "
        f"{span(plan.resolution)}. Whoever carries the messages also sees the network address that "
        f"they come from. All answers of the same {span(plan.period)} carry one random name, and "
        "no answer names two."
    )
    clear = in_the_clear(plan)
    experiment = plan.experiment
    named = "; ".join(
        f"{name}: {values}"
        for name, values in clear.items()
        if experiment is None or name != experiment.name
    )
    if named:
        text += f" With each answer is sent, as it is, what this device is ({named})."
    if experiment is not None:
        text += (
            f" With each answer is sent, as it is, the group of an experiment ({experiment.name}: "
            f"{clear[experiment.name]}), into which this device is put by chance."
        )
    same = ["which questions are answered and when"]
    same += [f"answers to what does not change ({_constant(plan)})"] * bool(plan.permanent)
    same += [f"what is sent as it is ({', '.join(clear)})"] * bool(clear)
    return f"{text} Whoever sees several of these names may join them by {'; by '.join(same)}."


def taking_back(plan: CompiledPlan) -> str:
    """Return what becomes of reports that were sent, for a person who wants them removed."""
    return (
        f"What was sent is not removed by that. The random name of {span(plan.period)} is shown by "
        "this device as long as something under it waits to be sent, and no longer after you "
        f"withdraw. Whoever runs {plan.collector} can find your reports by that name, and take "
        "them out of the counts until those of that time are closed; to ask for it, hand the name "
        f"to {plan.owner}, which shows whose reports they are. Stored messages then go only by "
        "age, and figures that were published before may stay as they are."
    )
