"""``docs/reference/mechanisms.md``: every mechanism, from its docstring and its own figures.

``python -m docs.writers.mechanisms`` prints the page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.planner.precision import precision
from mechanisms.planner.targets import Assumed
from mechanisms.registry import REGISTRY, build, mechanism_class

#: The sections of a docstring that the page has, in this order.
SECTIONS = ("Privacy", "Relaxation", "Utility", "Use", "References")
#: Reports of which the page's standard errors are.
REPORTS = 10_000

_UNIFORM = Assumed(values=tuple((place + 0.5) / 1000 for place in range(1000)))
_ROLE = re.compile(r":[a-z]+:`[~.]?(?:[\w.]*\.)?(\w+)`")
_UNDERLINED = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
#: A reference up to its year, which is none of an identifier's digits.
_DATED = re.compile(r".*?(?<![:.\d])(?:19|20)\d\d(?![.]\d|\d)")
#: The end of a sentence; initials are no such end.
_SENTENCE = re.compile(r"(?<=[a-z0-9)])\. |; ")


class MechanismGroup(NamedTuple):
    """A folder of mechanisms, and the question whose standard errors its table has."""

    folder: str
    title: str
    question: str = ""
    assumed: Assumed = Assumed()


GROUPS = (
    MechanismGroup(
        "category",
        "Categories",
        "the share of a category that one report in ten has, among 16",
        Assumed(share=0.1),
    ),
    MechanismGroup(
        "string",
        "Strings",
        "the share of one of 16 candidates, all alike",
        Assumed(candidates=tuple(f"candidate {number}" for number in range(16))),
    ),
    MechanismGroup("number", "Numbers", "the mean of numbers all over [0, 1]", _UNIFORM),
    MechanismGroup(
        "vector",
        "Vectors",
        "the mean of one of 16 coordinates, its values all over [0, 1]",
        _UNIFORM,
    ),
    MechanismGroup(
        "ordinal",
        "Ordered values",
        "a bound of the mean of 16 points in [0, 1], all alike",
        _UNIFORM,
    ),
    MechanismGroup("survey", "Surveys", "the share of yes, one in ten", Assumed(share=0.1)),
    MechanismGroup("top_item", "Selection"),
)
#: Parameters of each mechanism's example; all others are its defaults at epsilon 1.
_SIZES = {"domain_size": 16, "dimensions": 16, "clip": 10, "bits": 10, "count": 2, "cohorts": 16}
_OWN_SIZES = {"rappor": {"bits": 128, "hashes": 2}, "split_bits": {"bits": 8}}

_INTRODUCTION = f"""\
# Mechanisms

<!-- Written by `make docs` from the docstrings of `mechanisms/`: change those. -->

Everything that hides a value here, with what is certified of it. *Certified* is the exact worst
case of the loss, from the integers that the sampler compares its random words with, at a nominal
epsilon of 1. *Error* is the predicted standard error with {REPORTS:,} reports at epsilon 1, of
what stands above the table; tests hold it against simulation. *Relaxable* mechanisms can be
released again with a larger epsilon, and the whole sequence costs the last one. *Bytes* are those
of a report. `sotto design` gives the figures for other questions, `sotto audit` attacks the
certified ones. What published papers claim and no plan can name is in
[papers](../../papers/README.md)."""


def page() -> str:
    lines = [*_INTRODUCTION.splitlines(), ""]
    for group in GROUPS:
        lines += [f"**{group.title}**" + (f" (of {group.question})" * bool(group.question)), ""]
        head = ("mechanism", "in a plan", "certified at 1", "relaxable", "error", "bytes", "source")
        lines += _table(head, [_row(each, group) for each in documented(group.folder)])
    for group in GROUPS:
        lines += [f"## {group.title}", ""]
        for each in documented(group.folder):
            lines += _section(each)
    return "\n".join(lines).rstrip() + "\n"


def documented(folder: str) -> Iterator[type[Mechanism]]:
    """Yield the mechanisms of a folder."""
    for name, place in REGISTRY.items():
        if place.startswith(f"mechanisms.{folder}."):
            yield mechanism_class(name)


def sections(documented: type) -> dict[str, str]:
    """Return a docstring's sections as Markdown; references of a class may be its module's."""
    parts = _UNDERLINED.split(inspect.getdoc(documented) or "")
    found = {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
    if "References" not in found:
        found["References"] = _UNDERLINED.split(inspect.getmodule(documented).__doc__ or "")[-1]
    return {title: _markdown(body.strip()) for title, body in found.items()}


def source(documented: type) -> str:
    """Return who published a mechanism first, where and when."""
    text = _SENTENCE.split(" ".join(sections(documented)["References"].split()))[0].rstrip(".")
    dated = _DATED.match(text)
    return re.sub(r', "[^"]*"', "", dated[0]) if dated else text


def _markdown(text: str) -> str:
    text = _ROLE.sub(r"`\1`", text).replace("``", "`")
    return text.replace("**", r"\*\*").replace("<", "&lt;")


def example(each: type[Mechanism]) -> dict[str, Any]:
    """Return an example of a mechanism, as a plan says it."""
    given = {**_SIZES, **_OWN_SIZES.get(each.name, {}), "missing": False, "last": MICRO}
    known = given | each.defaults(MICRO, given)
    return {"name": each.name, **{key: known[key] for key in each.parameters()}}


def _row(each: type[Mechanism], group: MechanismGroup) -> tuple[str, ...]:
    link = f"[{each.__name__}](#{each.__name__.lower()})"
    spec = example(each)
    made = build(spec, [MICRO], "reference")
    error = ""
    if group.question:
        error = f"{precision(made, 0, group.assumed).standard_error(REPORTS):.3g}"
    figures = (_amount(made.certified(0) / MICRO), _relaxable(spec), error, str(made.payload_width))
    return link, f"`{spec['name']}`", *figures, source(each)


def _relaxable(spec: dict[str, Any]) -> str:
    try:
        build(spec, [MICRO // 2, MICRO], "reference")
    except ParameterError:
        return "no"
    return "yes"


def _section(each: type) -> list[str]:
    found = sections(each)
    lines = [f"### {each.__name__}", "", found[""], ""]
    lines += [f"`{each.__module__}.{each.__name__}`", ""]
    for title in SECTIONS:
        if title in found:
            lines += [f"**{title}.** {found[title]}", ""]
    return lines


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return [*(f"| {' | '.join(' '.join(c.split()) for c in cells)} |" for cells in lines), ""]


def _amount(epsilon: float) -> str:
    return f"{epsilon:.6f}".rstrip("0").rstrip(".") if epsilon < 2 else f"{epsilon:.4g}"


if __name__ == "__main__":
    print(page(), end="")
