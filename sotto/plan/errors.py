"""What is wrong with a plan file, in the words of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sotto.plan.fields import shown
from sotto.plan.types import MECHANISMS

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST = 20
#: What pydantic puts into an error's place to say which form of a value it tried.
_FORMS = frozenset({*MECHANISMS, "named", "bits", "sampled"})


def explain(error: ValidationError) -> str:
    """Return a line for every problem: metric, rung, key, and what is allowed."""
    lines = [_line(each) for each in error.errors(include_url=False)]
    more = len(lines) - _MOST
    return "\n".join(lines[:_MOST] + ([f"and {more} more"] if more > 0 else []))


def _line(error: Any) -> str:
    kind, context = error["type"], error.get("ctx", {})
    where, key = _where(error["loc"])
    if kind in ("missing", "union_tag_not_found"):
        name = key if kind == "missing" else "type"
        return f"{where}{name} is missing"
    if kind == "extra_forbidden":
        return f"{where}{key} is not a key that can be here"
    if kind == "union_tag_invalid":
        return f"{where}type {context['tag']!r} must be one of {context['expected_tags']}"
    named = f"{key} " if key else ""
    found = shown(error["input"])
    if kind == "literal_error":
        wanted = context["expected"].replace("True", "true")
        return f"{where}{named}{found} must be {wanted}"
    if kind == "value_error":
        return f"{where}{named}{context['error']}"
    if kind == "too_long":
        return f"{where}{named}{found} must have {context['max_length']} values"
    return f"{where}{named}{found} must be {_WANTED.get(kind) or error['msg']}"


#: What pydantic's types are called in a plan.
_MAPPING = "a mapping, such as {key: value}"
_WANTED = {
    "tuple_type": "a list, such as [a, b]",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "string_type": "text: write it in quotes",
    "int_type": "a whole number",
    "bool_type": "true or false",
}


def _where(place: tuple[str | int, ...]) -> tuple[str, str]:
    """Return the metric and rung, and the key, at which an error is."""
    rest = list(place)
    parts = []
    if rest[-1] == "[key]":
        return "", f"{rest[0]}: the name"
    if len(rest) > 1 and rest[0] == "metrics":
        parts.append(f"metric {rest[1]!r}")
        rest = rest[2:]
        if rest and rest[0] in _FORMS:
            rest = rest[1:]
        if len(rest) > 1 and rest[0] == "ladder" and isinstance(rest[1], int):
            parts.append(f"rung {rest[1] + 1}")
            rest = rest[2:]
        if len(rest) > 1 and rest[0] == "mechanism" and rest[1] in _FORMS:
            rest = [rest[0], *rest[2:]]
    words = [f"value {each + 1}" if isinstance(each, int) else str(each) for each in rest]
    where = ", ".join(parts)
    return (f"{where}: " if where else ""), ".".join(words).replace(".value", " value")
