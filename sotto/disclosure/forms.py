"""Drafts of what assessments and application stores ask for.

The kinds of data are those of Apple's list (Describing data use in privacy manifests) and of
Google's (Provide information for Google Play's Data safety section).
"""

from __future__ import annotations

import csv
import io
import plistlib
import re
from typing import TYPE_CHECKING, NamedTuple

from sotto.csv_cells import csv_cell
from sotto.design.spending import value_cost
from sotto.disclosure import facts, texts
from sotto.plan.checks import amount
from sotto.templates import template

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sotto.plan.compiled import CompiledPlan

_APPLE = "NSPrivacyCollectedDataType"


class Kind(NamedTuple):
    """A kind of data, as either store calls it."""

    apple: str
    google: str


def _rows(name: str) -> list[list[str]]:
    """Return the rows of a template that is a table."""
    return list(csv.reader(io.StringIO(template(__package__, name))))


def _filled(rows: Iterable[Sequence[str]], **given: object) -> list[list[str]]:
    """Return the rows of a table whose cells name in braces what is given."""
    return [[cell.format_map(given) for cell in row] for row in rows]


#: By a metric's ``data_type``; ``other`` where it has none.
KINDS = {name: Kind(*stores) for name, *stores in _rows("kinds.csv")}


class Declared(NamedTuple):
    """A metric, segment or experiment, as the forms declare it."""

    name: str
    kind: Kind
    purpose: str


def declared(plan: CompiledPlan) -> list[Declared]:
    """Return all that a plan sends: its metrics, then what is sent in the clear, as other data."""
    found = [
        Declared(metric.name, KINDS[metric.data_type or "other"], facts.purpose(plan, metric))
        for metric in plan.metrics
    ]
    for name, values in facts.in_the_clear(plan).items():
        why = f"{name} breaks results down."
        found.append(Declared(f"{name}, sent as it is: {values}", KINDS["other"], why))
    return found


def apple_manifest(plan: CompiledPlan) -> bytes:
    """Return a ``PrivacyInfo.xcprivacy`` of what the plan collects, an XML property list.

    A comment names what each kind of data consists of, since a property list has no field for it.
    """
    named: dict[str, list[str]] = {}
    for each in declared(plan):
        named.setdefault(each.kind.apple, []).append(each.name)
    manifest = plistlib.dumps(
        {
            "NSPrivacyTracking": False,
            "NSPrivacyTrackingDomains": [],
            "NSPrivacyCollectedDataTypes": [
                {
                    _APPLE: f"{_APPLE}{kind}",
                    f"{_APPLE}Linked": False,
                    f"{_APPLE}Tracking": False,
                    f"{_APPLE}Purposes": [f"{_APPLE}PurposeAnalytics"],
                }
                for kind in sorted(named)
            ],
            "NSPrivacyAccessedAPITypes": [],
        },
        sort_keys=False,
    )
    lines = [f"{kind}: {'; '.join(named[kind])}" for kind in sorted(named)]
    # Two hyphens would end a comment of XML.
    text = re.sub("-(?=-)", "- ", "\n".join(lines))
    head, start, rest = manifest.partition(b"<plist")
    return head + f"<!--\n{text}\n-->\n".encode() + start + rest


def google_answers(plan: CompiledPlan) -> str:
    """Return answers to the questions of Google's form, as CSV: question, answer, why."""
    clear = "; ".join(facts.in_the_clear(plan))
    sent = "randomized answers leave the device" + (f", and {clear} as it is" if clear else "")
    rows = _filled(_rows("google.csv"), sent=sent, taking_back=facts.taking_back(plan))
    everything, answers = declared(plan), _rows("google_kind.csv")
    for kind in sorted({each.kind.google for each in everything}):
        these = [each for each in everything if each.kind.google == kind]
        named = "; ".join(each.name for each in these)
        why = " ".join(dict.fromkeys(each.purpose for each in these)).strip()
        why = why or "not in the plan"
        rows += _filled(answers, kind=kind, collector=plan.collector, named=named, why=why)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    return text.getvalue()


def assessment(plan: CompiledPlan) -> str:
    """Return the tables of a data protection impact assessment, in Markdown."""
    metrics = [
        [
            metric.name,
            metric.group or "",
            facts.title(metric),
            facts.purpose(plan, metric),
            facts.value(metric),
            metric.mechanism.name,
            facts.levels(metric),
            amount(value_cost(metric)),
            f"{metric.limit}" + (f", in 1 period of {metric.panel}" if metric.panel > 1 else ""),
            amount(metric.cost),
            amount(metric.permanent) if metric.permanent else "",
        ]
        for metric in plan.metrics
    ]
    head = ["metric", "group", "what", "purpose", "data type", "mechanism"]
    head += ["certified epsilon by level", "a value", "values a period", "a period", "once"]
    used = [place for place in range(len(head)) if any(row[place] for row in metrics)]
    answers = _filled(
        _rows("assessment.csv"),
        plan=plan,
        period=facts.span(plan.period),
        cost=amount(plan.cost),
        ceiling=amount(plan.ceilings.period),
        lifetime=amount(plan.ceilings.lifetime),
        bounds=" ".join(facts.bounds(plan)),
        not_hidden=facts.not_hidden(plan),
        kept=" ".join(facts.kept(plan)),
        retention=facts.span(plan.retention),
        taking_back=facts.taking_back(plan),
    )
    return template(__package__, "assessment.md").format(
        plan=plan,
        metrics=_table([head[i] for i in used], [[row[i] for i in used] for row in metrics]),
        answers=_table(answers[0], answers[1:]),
    )


def disclosure(plan: CompiledPlan, format: str) -> bytes:
    """Return a draft in a format: ``consent``, ``policy``, ``dpia``, ``apple`` or ``google``."""
    if format == "apple":
        return apple_manifest(plan)
    made = {
        "consent": texts.consent_text,
        "policy": texts.policy_text,
        "dpia": assessment,
        "google": google_answers,
    }
    return made[format](plan).encode("utf-8")


def gaps(plan: CompiledPlan, format: str) -> list[str]:
    """Return what the plan lacks for a format, and what else its reader must know, in lines."""
    found = []
    if format in ("apple", "google"):
        lacking = ", ".join(metric.name for metric in plan.metrics if metric.data_type is None)
        found += [f"no data_type, so declared as other data: {lacking}"] * bool(lacking)
        clear = ", ".join(facts.in_the_clear(plan))
        found += [f"sent as it is, and declared as other data: {clear}"] * bool(clear)
    if format == "apple":
        found.append(
            "a draft: it says that the data is not linked to a person and not used to track, as "
            "far as Sotto goes, whose reports carry a random name of a budget period; an app that "
            "sends an account or a user name beside it must say so, and it declares nothing of "
            "what else the app collects"
        )
        return found
    lacking = ", ".join(metric.name for metric in plan.metrics if not metric.description)
    found += [f"no description, so shown by name: {lacking}"] * bool(lacking)
    lacking = ", ".join(each.name for each in plan.metrics if not facts.purpose(plan, each))
    found += [f"no purpose, neither in the plan nor of: {lacking}"] * bool(lacking)
    return found


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells))
