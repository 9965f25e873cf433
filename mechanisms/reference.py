"""``docs/mechanisms.md``: every mechanism of the library, from its docstring and its own figures.

``python -m mechanisms.reference`` prints the page.
"""

from __future__ import annotations

import math

from mechanisms.docstrings import sections, source
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.inventory import BROKEN, GROUPS, ORIGINALS, Entry, Group, originals
from mechanisms.planner.precision import ordinal_mean, precision
from mechanisms.registry import build

#: The sections of a docstring that the page has, in this order.
SECTIONS = ("Privacy", "Relaxation", "Utility", "Use", "References")
#: Reports of which the page's standard errors are.
REPORTS = 10_000


def page() -> str:
    """Return the page."""
    lines = [*_INTRODUCTION.splitlines(), ""]
    for group in GROUPS:
        lines += [f"**{group.title}**" + (f" (of {group.question})" * bool(group.question)), ""]
        lines += _overview(group)
    lines += ["**Published, but not private** (no plan can choose them)", ""]
    lines += _broken_table()
    for group in GROUPS:
        lines += [f"## {group.title}", ""]
        for entry in group.entries:
            lines += _section(entry)
    lines += ["## Published, but not private", ""]
    for entry, _ in BROKEN:
        lines += _section(entry)
    lines += _section(ORIGINALS)
    lines += _originals_table()
    return "\n".join(lines).rstrip() + "\n"


_INTRODUCTION = f"""\
# Mechanisms

<!-- Written by `make docs` from the docstrings of `mechanisms/`: change those. -->

Everything that hides a value here, with what is certified of it. *Certified* is the exact worst
case of the loss, from the integers that the sampler compares its random words with, at a nominal
epsilon of 1 (for propose-test-release, with a δ of 1e-6). *Error* is the predicted standard error
with {REPORTS:,} reports at epsilon 1, of what stands above the table; tests hold it against
simulation. *Relaxable* mechanisms can be released again with a larger epsilon, and the whole
sequence costs the last one. *Bytes* are those of a report. `sotto design` gives the figures for
other questions, `sotto audit` attacks the certified ones."""


def _overview(group: Group) -> list[str]:
    lines = ["| mechanism | in a plan | certified at 1 | relaxable | error | bytes | source |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for entry in group.entries:
        link = f"[{entry.name}](#{entry.name.lower()})"
        name = f"`{entry.spec['name']}`" if entry.spec else ""
        cells = [link, name, _certified(entry), _relaxable(entry), *_figures(entry, group)]
        cells.append(source(entry.load()))
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _certified(entry: Entry) -> str:
    if entry.spec is not None:
        return _amount(build(entry.spec, [MICRO], "reference").certified(0) / MICRO)
    return _amount(entry.example(entry.load())) if entry.example else "of its rungs"


def _relaxable(entry: Entry) -> str:
    if entry.spec is None:
        text = sections(entry.load())["Relaxation"]
        return "no" if text.startswith(("None", "Not ")) else "yes"
    try:
        build(entry.spec, [MICRO // 2, MICRO], "reference")
    except ParameterError:
        return "no"
    return "yes"


def _figures(entry: Entry, group: Group) -> tuple[str, str]:
    if entry.spec is None:
        return "", ""
    made = build(entry.spec, [MICRO], "reference")
    if not group.question:
        return "", str(made.payload_width)
    told = ordinal_mean if group.title == "Ordered values" else precision
    error = told(made, 0, group.assumed).standard_error(REPORTS)
    return f"{error:.3g}", str(made.payload_width)


def _broken_table() -> list[str]:
    lines = ["| mechanism | nominal | certified | where |", "|---|---|---|---|"]
    for entry, where in BROKEN:
        assert entry.example is not None
        link = f"[{entry.name}](#{entry.name.lower()})"
        lines.append(f"| {link} | 1 | {_amount(entry.example(entry.load()))} | {where} |")
    link = f"[floating-point originals](#{ORIGINALS.name.lower()})"
    return [*lines, f"| {link} | 1 | infinite | any values |", ""]


def _originals_table() -> list[str]:
    lines = ["| original | variance at 0 | variance at 1 | certified |", "|---|---|---|---|"]
    for original in originals():
        made = original(1.0)
        cells = (original.__name__, f"{made.variance(0.0):.4g}", f"{made.variance(1.0):.4g}")
        lines.append(f"| {' | '.join(cells)} | {_amount(made.certified_epsilon)} |")
    return [*lines, ""]


def _section(entry: Entry) -> list[str]:
    made = entry.load()
    found = sections(made)
    lines = [f"### {entry.name}", "", found[""], ""]
    lines += [f"`mechanisms.{entry.path.replace(':', '.')}`", ""]
    for title in SECTIONS:
        if title in found:
            lines += [f"**{title}.** {found[title]}", ""]
    return lines


def _amount(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "infinite"
    return f"{epsilon:.6f}".rstrip("0").rstrip(".") if epsilon < 2 else f"{epsilon:.4g}"


if __name__ == "__main__":
    print(page(), end="")
