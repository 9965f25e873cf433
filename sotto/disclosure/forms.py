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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sotto.plan.compiled import CompiledMetric, CompiledPlan

_APPLE = "NSPrivacyCollectedDataType"


class Kind(NamedTuple):
    """A kind of data, as either store calls it."""

    apple: str
    google: str


#: By a metric's ``data_type``; ``other`` where it has none.
KINDS = {
    "performance": Kind("PerformanceData", "App info and performance: Diagnostics"),
    "crash": Kind("CrashData", "App info and performance: Crash logs"),
    "diagnostics": Kind("OtherDiagnosticData", "App info and performance: Diagnostics"),
    "interaction": Kind("ProductInteraction", "App activity: App interactions"),
    "usage": Kind("OtherUsageData", "App activity: Other actions"),
    "search": Kind("SearchHistory", "App activity: In-app search history"),
    "content": Kind("OtherUserContent", "App activity: Other user-generated content"),
    "health": Kind("Health", "Health and fitness: Health info"),
    "fitness": Kind("Fitness", "Health and fitness: Fitness info"),
    "location": Kind("CoarseLocation", "Location: Approximate location"),
    "purchases": Kind("PurchaseHistory", "Financial info: Purchase history"),
    "browsing": Kind("BrowsingHistory", "Web browsing: Web browsing history"),
    "device": Kind("DeviceID", "Device or other IDs"),
    "other": Kind("OtherDataTypes", "App info and performance: Other app performance data"),
}


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
    sent = (
        f"randomized answers leave the device, and {clear} as it is"
        if clear
        else ("randomized answers leave the device")
    )
    rows = [
        ["question", "answer", "why"],
        [
            "Does your app collect or share any of the required user data types?",
            "Yes",
            f"{sent}; whether they need to be declared is for the owner to decide",
        ],
        [
            "Is all of the user data collected by your app encrypted in transit?",
            "for the owner to answer",
            "Yes if the publisher's address begins with https:// or the broker's connection has "
            "TLS: the plan does not say",
        ],
        [
            "Do you provide a way for users to request that their data is deleted?",
            "for the owner to answer",
            f"withdrawing consent deletes what waits on the device. {facts.taking_back(plan)} Yes "
            "if the owner takes such requests",
        ],
    ]
    everything = declared(plan)
    for kind in sorted({each.kind.google for each in everything}):
        these = [each for each in everything if each.kind.google == kind]
        named = "; ".join(each.name for each in these)
        why = " ".join(dict.fromkeys(each.purpose for each in these)).strip()
        rows += [
            [
                f"{kind}: is this data collected, shared, or both?",
                "Collected",
                f"sent to {plan.collector} ({named}); also Shared if that is somebody else",
            ],
            [
                f"{kind}: is this data processed ephemerally?",
                "No",
                "reports are stored, then counted",
            ],
            [
                f"{kind}: is this data required, or can users choose whether it is collected?",
                "Users can choose whether this data is collected",
                "nothing is recorded before consent, and consent can be withdrawn",
            ],
            [
                f"{kind}: why is this user data collected?",
                "Analytics",
                why or "not in the plan",
            ],
        ]
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
            _levels(metric),
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
    lines = [
        f"# Data protection impact assessment: {plan.plan}, version {plan.version} (draft)",
        "",
        *_table([head[i] for i in used], [[row[i] for i in used] for row in metrics]),
        "",
        *_table(["question", "answer that follows from the plan"], _answers(plan)),
        "",
        "For the owner to answer, since the plan does not say: the legal basis; who runs the "
        "collector, where, and for whom; how long reports and results are kept there, beyond what "
        "is above; whether transport or the app adds anything that identifies a person; whether "
        "the randomized answers are personal data.",
    ]
    return "\n".join(lines) + "\n"


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


def _answers(plan: CompiledPlan) -> list[list[str]]:
    ceilings = plan.ceilings
    return [
        ["collector, to whom answers are sent", plan.collector],
        ["contact", plan.owner],
        ["budget period", facts.span(plan.period)],
        [
            "certified epsilon of a period",
            f"{amount(plan.cost)} for its own reports, if all is recorded; ceiling "
            f"{amount(ceilings.period)}",
        ],
        ["certified epsilon of a device's life", f"ceiling {amount(ceilings.lifetime)}"],
        ["what can be learnt at most", " ".join(facts.bounds(plan))],
        ["what is not hidden", facts.not_hidden(plan)],
        ["kept on the device", " ".join(facts.kept(plan))],
        ["last day of recording", plan.last_day],
        ["rejected reports are kept by the aggregator for", facts.span(plan.retention)],
        ["estimates are withheld below", f"{plan.minimum_reports:,} reports"],
        ["consent", "nothing is recorded before it; withdrawal deletes what waits on the device"],
        ["removal of reports that were sent", facts.taking_back(plan)],
    ]


def _levels(metric: CompiledMetric) -> str:
    return "; ".join(
        f"{amount(metric.mechanism.certified(level))} {facts.when(after)}"
        for level, after in enumerate(metric.delays)
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
