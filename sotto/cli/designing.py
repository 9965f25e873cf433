"""What ``sotto design`` prints and draws."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from mechanisms.exact import MICRO
from mechanisms.planner.targets import MEASURES
from sotto.cli.chart import LogChart
from sotto.cli.tables import table
from sotto.design.spending import figure
from sotto.plan.durations import duration_text

if TYPE_CHECKING:
    from sotto.design.metric import Design

#: Points of a curve.
_POINTS = 49
#: What the errors of mechanisms are compared of, where that is not what stands above the table.
_RANKED = {
    "category": " of a share, all being alike",
    "boolean": " of a share, both being alike",
    "string": " of a share, all being alike, as if candidates were categories known in advance",
}
#: Sentences are broken after so many characters.
_WIDTH = 100


def lines(
    answers: Sequence[Design], refused: Mapping[str, str], budget: Mapping[str, object]
) -> list[str]:
    """Return what was found as text, and why nothing can be said of some metrics."""
    found: list[str] = []
    for answer in answers:
        found += [*_one(answer), ""]
    for name, why in refused.items():
        found += [*wrap(f"{name}: {why}.", _WIDTH), ""]
    return [*found, *_budget(budget)]


def _one(found: Design) -> list[str]:
    question, goal = found.question, found.goal
    unit = f" ({question.unit})" if question.unit else ""
    each = "" if question.per_user == 1 else f", {question.per_user:g} reports each in a window"
    out = [
        f"{question.name}: {question.kind}, {mechanism_text(question.spec)}",
        *wrap(
            f"Of {found.what}{unit}, with {found.users:,} users{each}; assumed: {found.data}.",
            _WIDTH,
        ),
        "",
        *table(_head(found), _rung_rows(found)),
    ]
    if found.missed:
        out += ["", _instead(found)]
    if question.sent > 1:
        out += [
            "",
            "Relaxed beside fresh reports of the same total, each with its own best parameters:",
        ]
        out += table(
            ["rung", "total", "relaxed", "fresh", "error of fresh over relaxed"],
            [
                [
                    str(step.level + 1),
                    _epsilon(step.certified),
                    _number(step.relaxed),
                    "" if step.fresh is None else _number(step.fresh),
                    "" if step.fresh is None else f"{step.fresh / step.relaxed:.2f}",
                ]
                for step in found.steps
            ],
        )
        out += ["", "One yes or no, relaxed beside noisy samples of a permanent response:"]
        out += table(
            ["reports", "total", "relaxed", "sampled", "error of sampled over relaxed"],
            [
                [
                    str(row.samples),
                    f"{row.epsilon:.3f}",
                    _number(row.relaxation**0.5),
                    _number(row.noisy_sampling**0.5),
                    f"{(row.noisy_sampling / row.relaxation) ** 0.5:.2f}",
                ]
                for row in found.sampled
            ],
        )
    if found.others:
        ranked = _RANKED.get(question.kind, "")
        out += ["", f"Mechanisms at the last rung, by predicted error{ranked}:"]
        out += table(
            ["mechanism", "error", "more than the best", "bytes"],
            [
                [
                    mechanism_text(each.spec),
                    _number(each.error),
                    f"{100 * each.excess:.1f} %",
                    str(each.payload),
                ]
                for each in found.others
            ],
        )
    if found.panels:
        out += ["", *_panel_lines(found)]
    if goal.target is not None and (found.rungs[-1].needed or 0) * question.per_user < 200:
        out += ["", "Below 200 reports intervals are wider than this normal approximation."]
    return out


def _panel_lines(found: Design) -> list[str]:
    """Return what panels are worth: a table, and what its columns mean."""
    goal = found.goal
    head = ["panel", "turns a year", "loss a year", "lasts years", "reports", "standard error"]
    head += ["of all users", "split instead"]
    if found.rungs[-1].floor is not None:
        head.append("floor")
    if goal.target is not None:
        head.append(f"users for {goal.measure} {goal.target:g}")
    rows = []
    for row in found.panels:
        cells = [
            f"1/{row.panel}" if row.panel > 1 else "every period",
            figure(row.turns),
            figure(row.yearly / MICRO),
            "" if row.years is None else figure(row.years),
            f"{row.reports:,}",
            _number(row.error),
            _number(row.of_all),
            "" if row.split is None else _number(row.split),
        ]
        if row.floor is not None:
            cells.append(_number(row.floor))
        if row.needed is not None:
            cells.append(f"{row.needed:,}")
        rows.append(cells)
    return [
        f"A device answers in one budget period of N; {found.users:,} users, the last rung:",
        *table(head, rows),
        "",
        *wrap(
            "'Of all users' adds that those who answered are a random part of them; the other "
            "errors are of the truth of those who did. 'Split instead' is the error where the "
            "same yearly loss is spread over all periods.",
            _WIDTH,
        ),
    ]


def mechanism_text(spec: Mapping[str, object]) -> str:
    """Return a mechanism and its parameters.

    >>> mechanism_text({"name": "hybrid", "points": 65, "missing": False})
    'hybrid (points 65)'
    """
    told = [f"{key} {value}" for key, value in spec.items() if key != "name" and value is not False]
    return f"{spec['name']} ({', '.join(told)})" if told else str(spec["name"])


def _head(found: Design) -> list[str]:
    goal = found.goal
    head = [
        "rung",
        "nominal",
        "certified",
        "standard error",
        f"width of {100 * goal.confidence:g} %",
    ]
    if found.question.after:
        head.insert(1, "sent after")
    if found.rungs[-1].floor is not None:
        head.append("floor")
    if goal.target is not None:
        head.append(f"users for {goal.measure} {goal.target:g}")
    return head


def _rung_rows(found: Design) -> list[list[str]]:
    rows = []
    for rung in found.rungs:
        row = [
            str(rung.number),
            _epsilon(rung.nominal),
            _epsilon(rung.certified),
            _number(rung.error),
            _number(rung.width),
        ]
        if rung.after is not None:
            row.insert(1, duration_text(rung.after))
        if rung.floor is not None:
            row.append(_number(rung.floor))
        if rung.needed is not None:
            row.append(f"{rung.needed:,}")
        rows.append(row)
    return rows


def _instead(found: Design) -> str:
    """Return what would do, where the users miss the target."""
    last, goal = found.rungs[-1], found.goal
    text = f"{found.users:,} users miss {goal.measure} {goal.target:g}: it takes {last.needed:,}"
    return f"{text}, or epsilon {_epsilon(found.enough)}." if found.enough else f"{text}."


def _budget(budget: Mapping[str, object]) -> list[str]:
    period, ceiling, lifetime = (budget[key] for key in ("period", "period_ceiling", "lifetime"))
    whole = " of the plan" if budget["period_length"] is not None else ""
    text = f"A period{whole} costs {_epsilon(period)}"
    text += f" of {_epsilon(ceiling)}" if ceiling is not None else ""
    if budget["permanent"]:
        text += f", permanent responses {_epsilon(budget['permanent'])} once"
    periods, length = budget["periods"], budget["period_length"]
    if lifetime is not None and periods is None:
        text += f"; the lifetime's {_epsilon(lifetime)} are never used up"
    elif isinstance(periods, int):
        lasts = f" ({duration_text(periods * length)})" if isinstance(length, int) else ""
        text += f"; the lifetime's {_epsilon(lifetime)} pay for {periods:,} periods{lasts}"
    return [f"{text}. Amounts are epsilon."]


def json_lines(
    answers: Sequence[Design], refused: Mapping[str, str], budget: Mapping[str, object]
) -> list[str]:
    """Return what was found as JSON; amounts are micro-epsilon, all else in the value's unit."""
    document = {
        "metrics": [_document(answer) for answer in answers],
        "refused": dict(refused),
        "budget": dict(budget),
    }
    return json.dumps(document, indent=2, ensure_ascii=False).splitlines()


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
        "goal": {
            "measure": goal.measure,
            "target": goal.target,
            "confidence": goal.confidence,
            "reached": None if goal.target is None else not found.missed,
            "epsilon": found.enough,
        },
        "rungs": [vars(rung) for rung in found.rungs],
        "fresh": [step._asdict() for step in found.steps] if question.sent > 1 else [],
        "panels": [vars(row) for row in found.panels],
        "noisy_sampling": [
            {
                "reports": row.samples,
                "epsilon": row.epsilon,
                "relaxed": row.relaxation**0.5,
                "sampled": row.noisy_sampling**0.5,
            }
            for row in found.sampled
        ],
        "mechanisms": [{**vars(other), "spec": dict(other.spec)} for other in found.others],
    }


def plotted(found: Design) -> str:
    """Return a chart of what was asked against the number of users, a curve a rung."""
    question, goal = found.question, found.goal
    told = [question.precision(level) for level in range(question.sent)]
    needed = [rung.needed for rung in found.rungs if rung.needed is not None]
    span = [found.users, *needed]
    low, high = (max(min(span) / 10, 20.0), max(span) * 10.0)
    users = [low * (high / low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]
    curves = [
        [
            (n, each.measure(goal.measure, question.reports(round(n)), goal.confidence))
            for n in users
        ]
        for each in told
    ]
    heights = [y for curve in curves for _, y in curve] + ([goal.target] if goal.target else [])
    chart = LogChart((low, high), (min(heights) / 1.2, max(heights) * 1.2))
    measure = MEASURES[goal.measure]
    measure += f" of {100 * goal.confidence:g} %" if goal.measure == "width" else ""
    unit = question.unit or ("parts of one" if question.scale == 1 else "unit of the value")
    chart.axes("users in a window (number)", f"{measure} ({unit})", _counted, _number)
    for level, curve in enumerate(curves):
        shade = 1.0 if question.sent == 1 else level / (question.sent - 1)
        chart.curve(curve, f"ε {question.ladder[level] / MICRO:g}", shade)
    chart.users(found.users, f"{found.users:,} users")
    if goal.target is not None:
        chart.target(goal.target, f"asked for: {goal.target:g}")
        for rung in found.rungs:
            if rung.needed is not None:
                chart.dot(
                    rung.needed,
                    goal.target,
                    f"rung {rung.number}: {rung.needed:,} users",
                )
    title = f"{question.name}: {MEASURES[goal.measure]} of {found.what} ({question.spec['name']})"
    return chart.svg(title, f"{title}, by users, a curve for each of {question.sent} rungs")


def _epsilon(micro: object) -> str:
    assert isinstance(micro, int)
    return f"{micro / MICRO:g}" if micro % 1000 == 0 else f"{micro / MICRO:.6f}"


def _number(value: float) -> str:
    """Return three significant digits.

    >>> _number(0.012345), _number(1234.5), _number(0.00001)
    ('0.0123', '1,234', '1e-05')
    """
    if value >= 100 or (value and math.isclose(value, round(value), rel_tol=1e-12)):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _counted(value: float) -> str:
    """Return a number of users as an axis has it.

    >>> _counted(500), _counted(20_000), _counted(5e6)
    ('500', '20k', '5M')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
