"""The output of ``sotto design``, printed and drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import TypeVar

from mechanisms.exact import MICRO
from mechanisms.planner.targets import MEASURES
from sotto.columns import columns, epsilon, number
from sotto.design.answers import DesignAnswers
from sotto.design.description import mechanism_text
from sotto.design.experiment import Effect
from sotto.design.metric import Design, Goal
from sotto.design.spending import figure, lifetime_of
from sotto.plan.compiled import CompiledPlan
from sotto.plan.durations import duration_text

T = TypeVar("T")

#: Points of a curve.
_POINTS = 49
#: The figure whose errors are compared, if it is not the one above the table.
_RANKED = {
    "category": " of a share, for equal shares",
    "boolean": " of a share, for equal shares",
    "ordinal": " of the mean (grr alone has unbiased shares)",
    "string": " of a share, for equal shares, as if candidates were categories known in advance",
}
#: Sentences are broken after so many characters.
_WIDTH = 100


def lines(answers: DesignAnswers) -> list[str]:
    """Return what was found as text, and why nothing can be said of some metrics."""
    found: list[str] = []
    for answer in answers.designs:
        found += [*_one(answer), ""]
    for name, why in answers.refused.items():
        found += [*wrap(f"{name}: {why}.", _WIDTH), ""]
    return found[:-1] if answers.plan is None else [*found, *_budget(answers.plan)]


def _one(found: Design) -> list[str]:
    question, goal, last = found.question, found.goal, found.levels[-1]
    unit = f" ({question.unit})" if question.unit else ""
    each = "" if question.per_user == 1 else f", {question.per_user:g} reports each in a window"
    what = (
        f"Precision of {found.what}{unit}, with {found.users:,} users{each}; assumed: {found.data}."
    )
    out = [
        f"{question.name}: {question.kind}, {mechanism_text(question.spec)}",
        *wrap(what, _WIDTH),
        "",
        *columns(
            found.levels,
            {
                "level": lambda level: str(level.number),
                "sent after": lambda level: _unless_none(level.after, duration_text),
                "nominal": lambda level: epsilon(level.nominal),
                "certified": lambda level: epsilon(level.certified),
                "standard error": lambda level: number(level.error),
                f"width of {100 * goal.confidence:g} %": lambda level: number(level.width),
                "floor": lambda level: _unless_none(level.floor, number),
                _users_for(goal): lambda level: _unless_none(level.needed, "{:,}".format),
            },
        ),
    ]
    if question.mechanism.groups > 1:
        out += ["", *wrap(_published(found), _WIDTH)]
    if found.missed:
        out += ["", _instead(found)]
    if found.others:
        ranked = "" if question.shares else _RANKED.get(question.kind, "")
        out += ["", f"Mechanisms at the last level, by predicted error{ranked}:"]
        out += columns(
            found.others,
            {
                "mechanism": lambda other: mechanism_text(other.spec),
                "error": lambda other: number(other.error),
                "more than the best": lambda other: f"{100 * other.excess:.1f} %",
                "bytes": lambda other: str(other.payload),
            },
        )
    if found.segments:
        out += ["", *_segment_lines(found)]
    if found.panels:
        out += ["", *_panel_lines(found)]
    if found.effect is not None:
        out += ["", *_arm_lines(found, found.effect)]
    if goal.target is not None and (last.needed or 0) * question.per_user < 200:
        out += ["", "Below 200 reports intervals are wider than this normal approximation."]
    return out


def _unless_none(value: T | None, shown: Callable[[T], str]) -> str | None:
    return None if value is None else shown(value)


def _published(found: Design) -> str:
    """Return how many users a level takes whose groups all need the minimum of reports."""
    question, reports = found.question, found.question.published_from
    text = (
        f"A level is published once each of the {question.mechanism.groups:,} groups of "
        f"{question.spec['name']} has {question.minimum_reports:,} reports: in 95 % of windows and "
        f"segments with {reports:,} reports, of {question.users(reports):,} users."
    )
    few = [
        f"{users:,} {'of' if name else 'users'} {name}".strip()
        for name, users in [("", found.users), *((each.of, each.fewest) for each in found.segments)]
        if question.reports(users) < reports
    ]
    return f"{text} Too few: {', '.join(few)}." if few else text


def _users_for(goal: Goal) -> str:
    return "" if goal.target is None else f"users for {goal.measure} {goal.target:g}"


def _segment_lines(found: Design) -> list[str]:
    """Return what each segment can show, the smallest and the largest one."""
    return [
        f"By segment, for {found.users:,} users, if all values of a segment are equally frequent:",
        *columns(
            found.segments,
            {
                "by": lambda row: row.of,
                "rows": lambda row: str(row.slices),
                "users in the smallest": lambda row: f"{row.fewest:,}",
                "standard error": lambda row: number(row.largest_error),
                "users in the largest": lambda row: f"{row.most:,}",
                "its standard error": lambda row: number(row.least_error),
            },
        ),
    ]


def _panel_lines(found: Design) -> list[str]:
    """Return what panels are worth: a table, and what its columns mean."""
    return [
        f"A device answers in one budget period of N; {found.users:,} users, the last level:",
        *columns(
            found.panels,
            {
                "panel": lambda row: f"1/{row.panel}" if row.panel > 1 else "every period",
                "turns a year": lambda row: figure(row.turns),
                "loss a year": lambda row: figure(row.yearly / MICRO),
                "lasts years": lambda row: "" if row.years is None else figure(row.years),
                "reports": lambda row: f"{row.reports:,}",
                "standard error": lambda row: number(row.error),
                "of all users": lambda row: number(row.of_all),
                "floor": lambda row: _unless_none(row.floor, number),
                _users_for(found.goal): lambda row: _unless_none(row.needed, "{:,}".format),
            },
        ),
        "",
        *wrap(
            "'Of all users' adds that those who answered are a random part of them; the other "
            "errors are of the truth of those who did.",
            _WIDTH,
        ),
    ]


def _arm_lines(found: Design, effect: Effect) -> list[str]:
    """Return how many users an experiment takes: a table, and what its columns mean."""
    others = "an arm" if effect.arms == 2 else f"each of {effect.arms - 1} arms"
    text = (
        f"Users an arm to tell {others} of {effect.arm:g} from the first of {effect.first:g}; "
        f"power {100 * effect.power:g} %, error {100 * effect.error:g} %:"
    )
    return [
        *wrap(text, _WIDTH),
        *columns(
            found.arms,
            {
                "level": lambda row: "" if row.level is None else str(row.level),
                "certified": lambda row: (
                    "not randomized" if row.certified is None else epsilon(row.certified)
                ),
                "looking once": lambda row: f"{row.once:,}",
                f"{effect.looks} planned looks": lambda row: f"{row.planned:,}",
                "every day": lambda row: f"{row.always:,}",
            },
        ),
        "",
        *wrap(
            "Each is the most that it takes. 'Planned looks' are evenly spaced until a planned "
            "end. 'Every day' is by intervals that hold at all looks together. They count the last "
            "level alone; a level above it is shown as if it were the last. A user counts with one "
            "report, and only if he takes part.",
            _WIDTH,
        ),
    ]


def _instead(found: Design) -> str:
    """Return what would do, where the users miss the target."""
    last, goal = found.levels[-1], found.goal
    text = f"{found.users:,} users miss {goal.measure} {goal.target:g}: it takes {last.needed:,}"
    return f"{text}, or epsilon {epsilon(found.enough)}." if found.enough else f"{text}."


def _budget(plan: CompiledPlan) -> list[str]:
    ceilings, periods = plan.ceilings, lifetime_of(plan).periods
    text = f"A period of the plan costs {epsilon(plan.cost)} of {epsilon(ceilings.period)}"
    if plan.permanent:
        text += f", permanent responses {epsilon(plan.permanent)} once"
    text += f"; the lifetime's {epsilon(ceilings.lifetime)} "
    if periods is None:
        text += "are never used up"
    else:
        text += f"pay for {periods:,} periods ({duration_text(periods * plan.period)})"
    return [f"{text}. Amounts are epsilon."]


def json_lines(answers: DesignAnswers) -> list[str]:
    """Return what was found as JSON; amounts are micro-epsilon, all else in the value's unit."""
    document = {
        "metrics": [_document(answer) for answer in answers.designs],
        "refused": answers.refused,
        "budget": None if answers.plan is None else _budget_document(answers.plan),
    }
    return json.dumps(document, indent=2, ensure_ascii=False).splitlines()


def _budget_document(plan: CompiledPlan) -> dict[str, object]:
    return {
        "period": plan.cost,
        "period_ceiling": plan.ceilings.period,
        "lifetime": plan.ceilings.lifetime,
        "permanent": plan.permanent,
        "periods": lifetime_of(plan).periods,
        "period_length": plan.period,
        "recurring": plan.recurring,
    }


def _document(found: Design) -> dict[str, object]:
    question, goal = found.question, found.goal
    return {
        "name": question.name,
        "type": question.kind,
        "mechanism": dict(question.spec),
        "estimate": found.what,
        "assumed": found.data,
        "unit": question.unit or None,
        "users": found.users,
        "reports_per_user": question.per_user,
        "published_from_reports": question.published_from,
        "goal": {
            "measure": goal.measure,
            "target": goal.target,
            "confidence": goal.confidence,
            "reached": None if goal.target is None else not found.missed,
            "epsilon": found.enough,
        },
        "levels": [vars(level) for level in found.levels],
        "panels": [vars(row) for row in found.panels],
        "experiment": None if found.effect is None else vars(found.effect),
        "arms": [vars(row) for row in found.arms],
        "segments": [vars(row) for row in found.segments],
        "mechanisms": [{**vars(other), "spec": dict(other.spec)} for other in found.others],
    }


def plot(found: Design, path: Path) -> None:
    """Draw what was asked against the number of users, a curve a level, into an SVG file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    question, goal = found.question, found.goal
    span = [found.users, *(level.needed for level in found.levels if level.needed is not None)]
    low, high = max(min(span) / 10, 20.0), max(span) * 10.0
    users = [low * (high / low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]
    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = figure.subplots()
    for index, micro in enumerate(question.ladder[: question.sent]):
        precision = question.precision(index)
        heights = [
            precision.measure(goal.measure, question.reports(round(n)), goal.confidence)
            for n in users
        ]
        shade = 1 - 0.6 * (1 - (index + 1) / question.sent)
        axes.loglog(users, heights, color=(0.09, 0.34, 0.56, shade), label=f"ε {micro / MICRO:g}")
    axes.axvline(found.users, color="0.5", linestyle="--", label=f"{found.users:,} users")
    if goal.target is not None:
        axes.axhline(goal.target, color="C3", linestyle="--", label=f"target: {goal.target:g}")
        needed = [level.needed for level in found.levels if level.needed is not None]
        axes.plot(needed, [goal.target] * len(needed), "o", color="C3")
    measure = MEASURES[goal.measure]
    measure += f" of {100 * goal.confidence:g} %" if goal.measure == "width" else ""
    unit = question.unit or ("parts of one" if question.scale == 1 else "unit of the value")
    axes.set(xlabel="users in a window", ylabel=f"{measure} ({unit})", xlim=(low, high))
    axes.set_title(f"{question.name}: {measure} of {found.what} ({question.spec['name']})")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.grid(alpha=0.3)
    axes.legend()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "sotto"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
