"""A Python module for a plan: its metrics as attributes, their values typed, the plan inside.

The same plan gives the same bytes. The module passes mypy's strict mode, and ruff's formatter
leaves it as it is.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from sotto.disclosure import facts
from sotto.errors import PlanError
from sotto.plan.checks import amount
from sotto.templates import template

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: With more values than these a type checker would be slow, and its errors of no use.
MOST_LITERALS = 64
_WIDTH = 100
#: Bytes of the plan a line.
_CHUNK = 72
#: Characters of an attribute: at most, and so that a class may have its name too.
_LONGEST = 48
_LONG = 24


class _Names(NamedTuple):
    """A metric, and what its parts are called in the module."""

    metric: CompiledMetric
    attribute: str
    stem: str


def module_text(plan: CompiledPlan, package: str = "clientsdk") -> str:
    """Return the text of the module, which imports the SDK as ``package``.

    Raises PlanError if two metrics would have one name in Python, or one a very long one.
    """
    named = _named(plan)
    literals = [each for each in named if _values(each.metric)]
    imports = [f"from typing import {'Final, Literal' if literals else 'Final'}"]
    if any(metric.type == "vector" for metric in plan.metrics):
        imports.insert(0, "from collections.abc import Sequence")
    data = plan.to_json()
    chunks = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
    fields = [f"        self.{each.attribute}: Final = {each.stem}Metric(client)" for each in named]
    bases = {_base(each).partition("[")[0] for each in named}
    return template(__package__, "typed_module.txt").format(
        bases=", ".join(sorted(bases)),
        described="\n".join(_described(plan)),
        plan=plan,
        imports="\n".join(imports),
        package=package,
        data="\n".join(f"    {line}" for chunk in chunks for line in _bytes_lines(chunk)),
        aliases="".join(f"\n\n{_alias(each)}" for each in literals),
        classes="\n\n\n".join(_class(plan, each) for each in named),
        attributes="\n".join(fields),
    )


def identifier(name: str) -> str:
    """Return the attribute that a metric's name becomes.

    >>> identifier("startup-ms"), identifier("class"), identifier("3d.scenes")
    ('startup_ms', 'class_', 'm3d_scenes')
    """
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    text = f"m{text}" if text[0].isdigit() else text
    return f"{text}_" if keyword.iskeyword(text) or keyword.issoftkeyword(text) else text


def _named(plan: CompiledPlan) -> list[_Names]:
    named = []
    taken: dict[str, str] = {}
    stems: set[str] = set()
    for metric in plan.metrics:
        attribute = identifier(metric.name)
        if len(attribute) > _LONGEST:
            raise PlanError(
                f"metric {metric.name!r}: of {len(attribute)} characters; attributes have at most "
                f"{_LONGEST}: record it by its name, or shorten that"
            )
        if attribute in taken:
            raise PlanError(
                f"metrics {taken[attribute]!r} and {metric.name!r} would both be {attribute} in "
                f"Python: rename one"
            )
        taken[attribute] = metric.name
        stem = "".join(part[:1].upper() + part[1:] for part in attribute.split("_"))
        if stem in stems or len(attribute) > _LONG:
            stem = f"Number{metric.index + 1}"
        stems.add(stem)
        named.append(_Names(metric, attribute, stem))
    return named


def _described(plan: CompiledPlan) -> list[str]:
    """Return what stands at the head of the module, up to the fingerprint."""
    title = f"Metrics of plan {plan.plan}, version {plan.version}, of collector {plan.collector}."
    lines = textwrap.wrap(title, _WIDTH - 3)
    for text in (plan.description, plan.purpose):
        if text is not None:
            lines += ["", *_escaped(textwrap.wrap(facts.sentence(text), 84))]
    lines += ["", "Made by `sotto plan generate`: change the plan and make it anew."]
    lines += [""] if plan.attributes else []
    in_the_clear = [("Segment", segment) for segment in plan.segments]
    if plan.experiment is not None:
        in_the_clear.append(("Arms of experiment", (plan.experiment.name, plan.experiment.arms)))
    for what, (name, values) in in_the_clear:
        lines += textwrap.wrap(f"{what} {name}: {', '.join(values)}.", _WIDTH)
    return lines


def _bytes_lines(chunk: bytes) -> Iterable[str]:
    """Yield literals that fit on a line each: what is not ASCII takes four times its size."""
    text = "b" + _quoted_as(repr(chunk)[1:], chunk.decode("latin-1"))
    if len(text) + 4 <= _WIDTH:
        yield text
    else:
        middle = len(chunk) // 2
        yield from _bytes_lines(chunk[:middle])
        yield from _bytes_lines(chunk[middle:])


def _quoted(text: str) -> str:
    """Return a literal with the quotes that formatters prefer.

    >>> _quoted("dark"), _quoted('a "b"')
    ('"dark"', '\\'a "b"\\'')
    """
    return _quoted_as(repr(text), text)


def _quoted_as(literal: str, text: str) -> str:
    body = literal[1:-1]
    singles, doubles = text.count("'"), text.count('"')
    body = body.replace("\\'", "'")
    if doubles > singles:
        return "'" + body.replace("'", "\\'") + "'"
    return '"' + body.replace('"', '\\"') + '"'


def _values(metric: CompiledMetric) -> tuple[str, ...]:
    """Return the strings that may be recorded, nothing where these are not listed."""
    if metric.domain is None or metric.edges is not None:
        return ()
    if metric.measure is not None:
        return metric.domain[1:] if len(metric.domain) <= MOST_LITERALS else ()
    names = metric.labels if metric.type != "ordinal" else metric.domain
    if metric.missing and metric.type != "ordinal":
        names = names[:-1]
    return names if len(names) <= MOST_LITERALS else ()


def _alias(named: _Names) -> str:
    items = [f"    {_quoted(value)}," for value in _values(named.metric)]
    lines = [line if len(line) <= _WIDTH else f"{line}  # noqa: E501" for line in items]
    return "\n".join([f"{named.stem}Value = Literal[", *lines, "]"])


_TYPES = {
    "boolean": "bool",
    "survey": "bool",
    "number": "float",
    "vector": "Sequence[float]",
    "string": "str",
}


def _type(named: _Names) -> str:
    metric = named.metric
    if _values(metric):
        text = f"{named.stem}Value"
    elif metric.numeric:
        text = "float"
    else:
        text = _TYPES.get(metric.type, "str")
    return f"{text} | None" if metric.missing else text


def _base(named: _Names) -> str:
    """Return the class of ``clientsdk.typed`` that has the method which feeds a metric."""
    method = "record" if (measure := named.metric.measure) is None else measure.method
    base = {"record": "Metric", "count": "Counted", "reach": "Funnel", "": "Measured"}[method]
    return f"{base}[{_type(named)}]" if base in ("Metric", "Funnel") else base


def _class(plan: CompiledPlan, named: _Names) -> str:
    metric = named.metric
    given = (metric.description or metric.question, metric.purpose)
    words = [facts.sentence(text) for text in given if text is not None]
    said = [
        line
        for paragraph in (*words, _what(metric), _cost(plan, metric))
        for line in ("", *textwrap.wrap(paragraph, 84))
    ][1:]
    called = metric.measure.of if metric.measure is not None else ""
    name = f'    name = "{called or metric.name}"'
    return template(__package__, "metric_class.txt").format(
        named=named,
        base=_base(named),
        said="\n".join(f"    {line}".rstrip() for line in _escaped(said)).lstrip(),
        name=name if len(name) <= _WIDTH else f"{name}  # noqa: E501",
    )


def _escaped(lines: Iterable[str]) -> list[str]:
    """Return lines as they stand within a docstring."""
    return [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]


def _what(metric: CompiledMetric) -> str:
    """Return what may be recorded, in a sentence."""
    text = facts.value(metric)
    clipped = "; what lies outside is clipped" if metric.outside == "clip" else ""
    return f"{text[:1].upper()}{text[1:]}{clipped}."


def _cost(plan: CompiledPlan, metric: CompiledMetric) -> str:
    """Return how often it is reported, when, and at what cost."""
    text = (
        f"Reported: {facts.how_often(plan, metric)}, at epsilon {facts.levels(metric)}. That costs "
        f"at most epsilon {amount(metric.cost)} a period"
    )
    if metric.permanent:
        text += f", and {amount(metric.permanent)} once in a device's life for all periods"
    return f"{text}."
