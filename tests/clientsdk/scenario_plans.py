"""Plans, durations and epsilons as scenarios write them (``scenarios/README.md``)."""

from __future__ import annotations

import re
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

from sotto.plan.compiled import Ceilings, CompiledPlan

_UNITS = {"y": 52 * WEEK, "w": WEEK, "d": DAY, "h": HOUR, "m": 60_000, "s": 1000, "ms": 1}
#: Words that begin a part of a metric, and of a plan.
_OF_METRIC = ("every", "reservoir", "constant", "items", "string", "number", "ladder", "in")
_OF_METRIC += ("panel", "clip", "domain", "outside", "grr", "sue")
_OF_PLAN = ("groups", "version", "plan", "ceilings", "expires", "collector", "period", "signed")
_OF_PLAN += ("grace", "resolution", "segments", "experiment")


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
    metrics, changes = [], {}
    for part in text.split(", ") if text else []:
        word, *rest = part.split()
        if word not in _OF_PLAN:
            metrics.append(_metric([word, *rest]))
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
