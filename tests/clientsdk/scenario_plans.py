"""Plans, durations and epsilons as scenarios write them (``scenarios/README.md``)."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from device_plans import (
    CONSTANT,
    DAY,
    HOUR,
    LADDER,
    LATE,
    START,
    WEEK,
    items,
    metric,
    number,
    plan,
    string,
)
from plan_texts import plan_head

from sotto.plan.compile import parse_plan
from sotto.plan.compiled import Ceilings, CompiledPlan

_UNITS = {"y": 52 * WEEK, "w": WEEK, "d": DAY, "h": HOUR, "m": 60_000, "s": 1000, "ms": 1}
#: Words that begin a part of a metric, and of a plan.
_OF_METRIC = ("every", "reservoir", "constant", "items", "string", "number", "ladder", "in")
_OF_METRIC += ("panel", "clip", "domain", "outside", "grr", "sue")
_OF_PLAN = ("groups", "version", "plan", "ceilings", "expires", "collector", "period", "signed")
_OF_PLAN += ("grace", "resolution", "segments", "experiment", "measures")

#: At this epsilon an answer is another than the truth once in a hundred thousand million times.
SURE = "stored: true, window: 7d, ladder: [{epsilon: 26}]"
#: Nothing true is stored, and the last level is the response in the file.
USED = "type: boolean, measure: {used: open}, window: 7d, ladder: [{epsilon: 26}, {epsilon: 27}]"
MEASURES = {
    "exports": "type: ordinal, edges: [0, 1, 2, 5, 10], measure: {count: export}",
    "opened": "type: boolean, measure: {count: open}",
    "days": "type: ordinal, range: [0, 8], points: 9, outside: clip, measure: {days: app}",
    "busy": "type: ordinal, edges: [0, 1, 2, 3, 4, 5, 6, 7], measure: {days: export}",
    "checkout": "type: ordinal, measure: {furthest: [cart, address, paid]}",
    "age": "type: ordinal, measure: {age: 7d, up_to: 3}",
    "fortnights": "type: ordinal, measure: {age: 14d, up_to: 3}",
    "most": "type: ordinal, edges: [0, 10, 20], missing: true, measure: {max: load}",
    "least": "type: ordinal, edges: [0, 10, 20], missing: true, measure: {min: load}",
    "last": "type: ordinal, edges: [0, 10, 20], missing: true, measure: {last: load}",
    "total": "type: ordinal, edges: [0, 10, 20], measure: {sum: load}",
    "dark": "type: boolean, missing: true, measure: {last: dark}",
}


def measured_plan(*names: str, expires: str = "2036-12-31", **others: str) -> CompiledPlan:
    """A plan of measures, by name, and of others as a plan's text has them."""
    metrics = {name: f"{MEASURES[name]}, {SURE}" for name in names} | others
    head = plan_head("trial", (900, 90000), expires=expires)
    text = "".join(f"  {name}: {{{said}}}\n" for name, said in metrics.items())
    return parse_plan(head + text).compile()


@cache
def _measures() -> dict[str, dict[str, Any]]:
    """All measures as a compiled plan has them, and one of other edges."""
    wider = f"{MEASURES['exports'].replace('10]', '11]')}, {SURE}"
    known = json.loads(measured_plan(*MEASURES, used=USED, wider=wider).to_json())["metrics"]
    found = {each["name"]: each for each in known}
    return {**found, "wider": {**found["wider"], "name": "exports"}}


def _measure(word: str) -> dict[str, Any]:
    """The measure ``exports``, or ``exports@use``: one of a group."""
    name, _, group = word.partition("@")
    return {**_measures()[name], **({"group": group} if group else {})}


def duration(text: str) -> int:
    """Milliseconds of a text such as ``2d 3h`` or ``-1w``."""
    parts = re.findall(r"(-?\d+)([a-z]+)", text)
    assert "".join(number + unit for number, unit in parts) == text.replace(" ", ""), text
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def micro(text: str) -> int:
    """Micro-epsilon of a text such as ``1.5``."""
    return round(float(text) * 1_000_000)


def epsilon(amount: int) -> str:
    """Write micro-epsilon as an epsilon."""
    return f"{amount / 1_000_000:.6f}".rstrip("0").rstrip(".")


def ceilings(period: str, lifetime: str) -> Ceilings:
    """Ceilings of two epsilons."""
    return Ceilings(micro(period), micro(lifetime))


def parts(words: list[str], known: tuple[str, ...]) -> dict[str, list[str]]:
    """Words by the known word before them; those before the first are under an empty text."""
    found: dict[str, list[str]] = {"": []}
    latest = ""
    for word in words:
        if word in known:
            found[latest := word] = []
        else:
            found[latest].append(word)
    return found


def _ladder(rungs: list[str]) -> list[tuple[int, int]]:
    return [
        (micro(amount), duration(after) if after else 0)
        for amount, _, after in (rung.partition("@") for rung in rungs)
    ]


def _metric(words: list[str]) -> dict[str, Any]:
    said = parts(words, _OF_METRIC)
    (name,) = said.pop("")
    kinds = {"every", "reservoir", "constant"} & said.keys()
    kind = kinds.pop() if kinds else "first"
    limit = int(said["every"][0]) if kind == "every" else 1
    default = {"reservoir": LATE, "constant": CONSTANT}.get(kind, LADDER)
    ladder = _ladder(said["ladder"]) if "ladder" in said else default
    changes: dict[str, Any] = {"kind": kind, "limit": limit, "ladder": ladder}
    if "in" in said:
        (changes["group"],) = said["in"]
    if "panel" in said:
        changes["panel"] = int(said["panel"][0])
    if "domain" in said:
        changes["domain"] = said["domain"]
    if "outside" in said:
        (changes["outside"],) = said["outside"]
    if "sue" in said:
        changes["mechanism"] = {"name": "sue", "domain_size": 4}
    if "items" in said:
        if "ladder" not in said:
            del changes["ladder"]
        return items(name, int(said["clip"][0]) if "clip" in said else 1000, **changes)
    if "string" in said:
        # A permanent response must not depend on the pseudonym, from which the cohort follows.
        return string(name, cohorts=1 if kind == "constant" else 4, **changes)
    return number(name, **changes) if "number" in said else metric(name, **changes)


def plan_of(text: str) -> CompiledPlan:
    """Compile a plan such as ``colour every 2, late reservoir, groups look use, version 2``."""
    metrics: list[dict[str, Any]] = []
    changes: dict[str, Any] = {}
    for part in text.split(", ") if text else []:
        word, *rest = part.split()
        if word not in _OF_PLAN:
            metrics.append(_metric([word, *rest]))
        elif word == "measures":
            metrics += [_measure(each) for each in rest]
            changes.setdefault("ceilings", {"period": 900_000_000, "lifetime": 90_000_000_000})
        elif word == "groups":
            changes[word] = {name: f"What concerns {name}" for name in rest}
        elif word == "ceilings":
            changes[word] = dict(zip(("period", "lifetime"), map(micro, rest), strict=True))
        elif word == "signed":
            changes["authentication"] = "required"
        elif word == "expires":
            changes[word] = START + duration(" ".join(rest))
        elif word in ("period", "grace", "resolution"):
            changes[word] = duration(" ".join(rest))
        elif word == "version":
            changes[word] = int(rest[0])
        elif word == "segments":
            changes[word] = [{"name": rest[0], "values": rest[1:]}]
        elif word == "experiment":
            changes[word] = {"name": rest[0], "arms": rest[1:], "share": 1_000_000}
        else:
            (changes[word],) = rest
    return plan(*metrics, **changes)
