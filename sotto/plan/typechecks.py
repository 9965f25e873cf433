"""What a metric of each type must say, and the parameters of its mechanism."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sotto.plan.types import CLIPPED, LISTED, MECHANISMS, WITH_MISSING, Parameter

if TYPE_CHECKING:
    from mechanisms.base import Mechanism
    from sotto.plan.compiled import CompiledMetric

MAX_DOMAIN = 1 << 17
#: Of the points of an ordinal and the coordinates of a vector.
MAX_BOUND = 1e100


def type_problems(metric: CompiledMetric) -> list[str]:
    """Return what is wrong with a metric of a known type: domain, range, mechanism."""
    problems = [*_domain_problems(metric), *_range_problems(metric), *_question_problems(metric)]
    # Labels are those of a sound domain or range, and of a number of points.
    return problems + _mechanism_problems(metric, sound=not problems)


def _domain_problems(metric: CompiledMetric) -> list[str]:
    listed = metric.type in LISTED and metric.range is None
    if not listed:
        return [f": {_named(metric.type)} has no domain"] if metric.domain is not None else []
    domain = metric.domain or ()
    if not 1 <= len(domain) <= MAX_DOMAIN:
        return [f": domain must have 1 to {MAX_DOMAIN} values, not {len(domain)}"]
    problems = []
    if not all(0 < len(value) <= 256 for value in domain):
        problems.append(": the values of a domain have 1 to 256 characters")
    seen: set[str] = set()
    twice = sorted({value for value in domain if value in seen or seen.add(value)})  # type: ignore[func-returns-value]
    if twice:
        problems.append(f": domain has {', '.join(map(repr, twice))} more than once")
    if metric.missing and "missing" in domain:
        problems.append(": a domain cannot have the value 'missing' where missing is true")
    problems += _outside_problems(metric, domain)
    if len(metric.labels) < 2:
        problems.append(
            f": {_named(metric.type)} has at least two symbols, 'other' and 'missing' included"
        )
    return problems


def _outside_problems(metric: CompiledMetric, domain: tuple[str, ...]) -> list[str]:
    """Of what becomes of a value that is not listed; among values in order there is no other."""
    place = "other" if metric.type != "ordinal" else "missing"
    if metric.outside in domain or (
        metric.outside == place and (metric.type != "ordinal" or metric.missing)
    ):
        return []
    others = f"{place!r} or " if metric.type != "ordinal" or metric.missing else ""
    return [f": outside {metric.outside!r} must be {others}a value of the domain"]


def _range_problems(metric: CompiledMetric) -> list[str]:
    clipped = metric.type in CLIPPED and metric.domain is None
    if not clipped:
        problems = []
        if metric.range is not None:
            problems.append(f": {_named(metric.type)} has no range")
        if metric.unit is not None:
            problems.append(f": {_named(metric.type)} has no unit")
        if metric.type not in LISTED and metric.outside is not None:
            problems.append(f": {_named(metric.type)} has no outside")
        return problems
    low, high = metric.range or (math.nan, math.nan)
    problems = []
    # NaN fails every comparison; the difference of two finite numbers may still overflow.
    if not (low < high and math.isfinite(high - low)):
        problems.append(f": range [{low}, {high}] must be two finite numbers, low below high")
    elif metric.type != "number" and not (
        max(-low, high) <= MAX_BOUND and high - low >= 1 / MAX_BOUND
    ):
        problems.append(
            f": range [{low}, {high}] must lie in [-{MAX_BOUND:g}, {MAX_BOUND:g}] and be at least "
            f"{1 / MAX_BOUND:g} wide for {_named(metric.type)}: its squares must be finite"
        )
    if metric.outside != "clip":
        problems.append(f": outside {metric.outside!r} must be 'clip' for {_named(metric.type)}")
    return problems


def _question_problems(metric: CompiledMetric) -> list[str]:
    if metric.type != "survey":
        return [": only a survey has a question"] if metric.question is not None else []
    if not 0 < len(metric.question or "") <= 1024:
        return [": a survey has a question of 1 to 1024 characters"]
    return []


def _mechanism_problems(metric: CompiledMetric, *, sound: bool) -> list[str]:
    from mechanisms.registry import mechanism_class

    name = metric.spec.get("name")
    allowed = MECHANISMS[metric.type]
    if name not in allowed:
        return [
            f": mechanism {name!r} must be one of {', '.join(allowed)} for {_named(metric.type)}"
        ]
    kind = mechanism_class(name)
    if metric.type == "ordinal" and metric.range is not None:
        size = metric.spec.get("domain_size")
        if type(size) is int and not 2 <= size - metric.missing <= MAX_DOMAIN:
            return [f": points {size - metric.missing} must be at least 2 and at most {MAX_DOMAIN}"]
    problems = _parameter_problems(metric, str(name), kind)
    if metric.missing and metric.type not in WITH_MISSING and "missing" not in kind.parameters():
        problems.append(f": {_named(metric.type)} by {name} cannot be missing")
    if sound and not problems:
        problems = _symbol_problems(metric)
    return problems


def _parameter_problems(metric: CompiledMetric, name: str, kind: type[Mechanism]) -> list[str]:
    spec = metric.spec
    del spec["name"]
    fields = kind.parameters()
    wanted = sorted(fields)
    if sorted(spec) != wanted:
        return [
            f": mechanism {name} has the parameters {', '.join(wanted) or '(none)'}, not "
            f"{', '.join(sorted(spec)) or '(none)'}"
        ]
    problems = []
    for key, value in spec.items():
        type_ = fields[key]
        if key == "missing":
            if value is not metric.missing:
                problems.append(f": mechanism {name}: missing must be {metric.missing}")
        elif not (type(value) is type_ and _bounded(value)):
            problems.append(f": mechanism {name}: {key} {_brief(value)} must be {_WANTED[type_]}")
    return problems


def _brief(value: Parameter) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bounded(value: Parameter) -> bool:
    if isinstance(value, tuple):
        return 0 < len(value) <= MAX_DOMAIN
    return isinstance(value, bool | str) or 0 <= value <= MAX_DOMAIN


_WANTED = {
    int: f"a number in [0, {MAX_DOMAIN}]",
    bool: "true or false",
    str: "text",
    tuple: f"a list of 1 to {MAX_DOMAIN} numbers",
}


def _symbol_problems(metric: CompiledMetric) -> list[str]:
    """Of labels and the number of symbols, which must be the mechanism's."""
    size = metric.spec.get("domain_size")
    ranged = metric.type == "ordinal" and metric.range is not None
    if ranged and len(set(metric.labels)) < len(metric.labels):
        return [f": its {len(metric.labels)} points are too close to be told apart"]
    if size is not None and size != len(metric.labels):
        return [
            f": mechanism {metric.spec['name']}: domain_size {size} must be the number of symbols, "
            f"{len(metric.labels)}"
        ]
    return []


def _named(kind: str) -> str:
    """Return a type with its article.

    >>> _named("ordinal"), _named("top_item")
    ('an ordinal', 'a top_item')
    """
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
