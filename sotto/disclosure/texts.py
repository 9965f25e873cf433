"""Texts for people: what a dialogue asks, and a paragraph for a privacy policy."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from sotto.disclosure import facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sotto.plan.compiled import CompiledMetric, CompiledPlan

_WIDTH = 88


def consent_text(plan: CompiledPlan) -> str:
    """Return what a person reads before agreeing: what, why, how it is hidden, and how to stop."""
    opening = [facts.sentence(text) for text in (plan.description, plan.purpose) if text]
    lines = [
        *_paragraphs(opening),
        f"If you agree, this app sends randomized answers about these questions to "
        f"{plan.collector}:",
        "",
    ]
    for name, text in plan.groups or (("", ""),):
        if name:
            lines += [f"{facts.sentence(text)} (group {name})"]
        lines += [
            line
            for each in plan.metrics
            if each.group in (name, None)
            for line in _item(plan, each)
        ]
        lines += [""]
    if plan.groups:
        lines += _paragraphs(["You can agree to each group for itself."])
    lines += ["How your answers are hidden", ""]
    lines += _paragraphs(
        [
            f"This device changes each answer at random before it is {facts.unless_stored(plan)}, "
            "so that what is sent may be true or not. Averages over many devices can still be "
            "estimated.",
            *facts.bounds(plan),
            facts.not_hidden(plan),
        ]
    )
    lines += ["For how long", ""]
    ends = f"Nothing is recorded after {plan.last_day}."
    lines += _paragraphs([" ".join([*facts.kept(plan), ends])])
    lines += ["How to stop", ""]
    lines += _paragraphs(
        [
            "You can withdraw at any time. Nothing more is recorded or sent then, but for messages "
            "that are on their way at that moment, and what waits on this device is deleted.",
            facts.taking_back(plan),
            f"Questions: {plan.owner}.",
        ]
    )
    return "\n".join(lines).rstrip() + "\n"


def policy_text(plan: CompiledPlan) -> str:
    """Return a paragraph for a privacy policy."""
    what = "; ".join(_lowered(facts.title(metric).rstrip(".")) for metric in plan.metrics)
    why = " ".join(dict.fromkeys(facts.purpose(plan, metric) for metric in plan.metrics)).strip()
    parts = [
        f"If you agree, the app sends randomized answers to {plan.collector} about: {what}.",
        why,
        f"Each answer is changed at random on your device before it is {facts.unless_stored(plan)} "
        "(local differential privacy).",
        *facts.bounds(plan),
        facts.not_hidden(plan),
        *facts.kept(plan),
        f"Nothing is recorded after {plan.last_day}. You can withdraw your consent at any "
        "time: what waits on the device is then deleted, and nothing more is sent, but for "
        "messages that are on their way at that moment.",
        facts.taking_back(plan),
        f"Contact: {plan.owner}.",
    ]
    return fill(" ".join(part for part in parts if part), _WIDTH) + "\n"


def _item(plan: CompiledPlan, metric: CompiledMetric) -> list[str]:
    own = f" {facts.sentence(metric.purpose)}" if metric.purpose else ""
    value, often = facts.value(metric), facts.how_often(plan, metric)
    text = f"* {facts.title(metric)}{own} It is {value}; reported: {often}."
    return fill(text, _WIDTH, subsequent_indent="  ").splitlines()


def _paragraphs(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in (*fill(text, _WIDTH).splitlines(), "")]


def _lowered(text: str) -> str:
    """Return a text with a small first letter, unless it begins with an abbreviation.

    >>> _lowered("Which theme"), _lowered("CPU load")
    ('which theme', 'CPU load')
    """
    return text if text[:2].isupper() else text[:1].lower() + text[1:]
