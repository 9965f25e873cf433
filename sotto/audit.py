"""Audits: what mechanisms and plans claim, are certified at, and lose to an attack.

An audit is a document for programs, and lines for people.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import isinf
from pathlib import Path
from typing import Any, TypeAlias

from mechanisms.audit import claims
from mechanisms.audit.cases import Case
from mechanisms.audit.claims import FALSE_ALARM, LIBRARY, Auditor, Finding
from mechanisms.audit.guessing import Attack, provable
from mechanisms.audit.reports import SamplerOfDevices, UnexpectedReportsError
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError, did_you_mean
from mechanisms.exact import MICRO
from sotto.columns import table
from sotto.design.description import mechanism_text, spent_lines
from sotto.design.spending import lifetime_of
from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: Columns about code: attacks on reports of devices and of the batch code; how devices draw.
ATTACKS = ("device", "batch", "device's law")
Document: TypeAlias = dict[str, Any]
#: It is called with what is audited next; with an empty text at the end.
Progress: TypeAlias = Callable[[str], None]
#: Makes the reports of devices under a metric.
Devices: TypeAlias = Callable[[CompiledMetric], SamplerOfDevices]


@dataclass(frozen=True)
class LibraryAudit:
    """An audit, as a document for programs and as lines for people."""

    document: Document
    text: list[str]

    @property
    def failed(self) -> bool:
        """Whether a mechanism breaks its word."""
        return bool(self.document["status"])


def finding_document(found: Finding) -> Document:
    """Return the amounts of a finding, as epsilons, and what was found of either code."""
    document: Document = {
        name: getattr(found, name) / MICRO for name in ("claimed", "stated", "certified")
    }
    for name, attack in (("device", found.device), ("batch", found.batch)):
        if attack is not None:
            document[name] = guesses_document(attack)
    if found.law is not None:
        document["law"] = {
            "inputs": found.law.inputs,
            "followed": float(1 - found.law.left),
            "bits": found.law.positions,
            "differs": found.law.differs,
            "same_as_batch": found.same,
        }
    return document


def guesses_document(attack: Attack | None) -> Document:
    """Return what an attack found; nothing without one."""
    names = ("right", "guesses", "chains", "view")
    if attack is None:
        return {}
    return {"attacked": attack.epsilon, **{name: getattr(attack, name) for name in names}}


def attack_document(auditor: Auditor | None) -> Document | None:
    """Return how many attacks were made, and the confidence of what they prove."""
    names = ("trials", "recordings", "confidence")
    return None if auditor is None else {name: getattr(auditor, name) for name in names}


def amounts(found: Finding) -> list[str]:
    """Return the columns claimed, certified, and :data:`ATTACKS` of a finding."""
    law = "" if found.law is None else found.law.words
    certain = [f"{micro / MICRO:.6f}" for micro in (found.claimed, found.certified)]
    return [*certain, *map(proved, map(guesses_document, (found.device, found.batch))), law]


def proved(document: Mapping[str, Any]) -> str:
    """Return the amount that an attack proves, rounded down."""
    return f"{int(document['attacked'] * 1e4) / 1e4:.4f}" if document else ""


def verdict(problems: list[str]) -> str:
    """Return what to say of a mechanism."""
    return f"BROKEN: {'; '.join(problems)}" if problems else "holds"


def explained(auditor: Auditor | None) -> list[str]:
    """Return what the columns mean."""
    first = "Amounts are epsilon. 'Certified' is exact, from the sampler's thresholds, rounded up."
    if auditor is None:
        return [first]
    found = provable(1.0, int(1.6 * auditor.recordings), auditor.rate)
    text = f"""\
{first}
'Device' and 'batch' are lower bounds, each with confidence {auditor.confidence:g}.
'Device' attacks {auditor.recordings:,} recordings of either input of the worst pair
through the SDK's client (fewer where they take long). They prove a loss of
{found:.2f} where 1 is certified, if every report shows it. 'Batch' attacks
{auditor.trials:,} chains of either from the code that simulations run.
'Device's law' compares outcomes of a device's sampler, for up to 12 inputs, with the certified law;
the reports of device and batch are compared with each other. By chance a bound
may exceed what is certified; of the verdicts none is wrong but once in a million
times."""
    return text.splitlines()


# The library, and claims of papers.


def audit_library(
    auditor: Auditor | None,
    epsilons: Sequence[float] | None,
    names: Sequence[str] | None,
    progress: Progress,
    devices: Devices,
    cases: Sequence[Case],
) -> LibraryAudit:
    """Audit the library, or some of its mechanisms; ``cases`` are what devices keep besides."""
    known = [claim.name for claim in LIBRARY]
    for name in names or ():
        if name not in known:
            near = did_you_mean(name, known)
            raise ParameterError(
                f"--mechanism must be among {', '.join(known)}; got {name!r}{near}"
            )
    work = [
        (claim, amount)
        for claim in LIBRARY
        if names is None or claim.name in names
        for amount in epsilons or claim.amounts
    ]
    ours, theirs = ([], []) if names else (list(cases), published())
    checks = len(work) + len(ours) + len(theirs)
    auditor = auditor and replace(auditor, checks=checks)
    rows, mechanisms = [], []
    for number, (claim, amount) in enumerate(work, start=1):
        progress(f"{claim.name} at {amount:g}: {number} of {checks}")
        ladder = claims.ladder_to(amount)
        mechanism = claim.build(ladder)
        device = devices(metric_of(mechanism)) if auditor is not None else None
        found = claims.examine(mechanism, auditor=auditor, device=device)
        shown = mechanism_text(claim.spec(ladder[-1]))
        rows.append([shown, claim.source, *amounts(found), verdict(found.problems)])
        parameters = shown.removeprefix(claim.name).strip(" ()")
        what = {"mechanism": claim.name, "parameters": parameters, "source": claim.source}
        mechanisms.append({**what, **finding_document(found), "problems": found.problems})
    tried = []
    for number, case in enumerate([*ours, *theirs], start=len(work) + 1):
        progress(f"{case.name}: {number} of {checks}")
        tried.append(_tried(case, auditor, FALSE_ALARM / checks))
    progress("")
    document: Document = {
        "attack": attack_document(auditor),
        "mechanisms": mechanisms,
        "others": tried[: len(ours)],
        "published": tried[len(ours) :],
    }
    broken = any(each["verdict"].startswith("BROKEN") for each in tried)
    document["status"] = int(broken or any(each["problems"] for each in mechanisms))
    head = ["mechanism", "source", "claimed", "certified", *ATTACKS, "verdict"]
    text = ["The library, each mechanism a chain at half of the amount and at all of it:", ""]
    text += table(head, rows)
    for title, some in (
        ("What devices keep beside single chains:", tried[: len(ours)]),
        ("Claims of papers, and of what breaks their conditions:", tried[len(ours) :]),
    ):
        if some:
            head = ["claim", "source", "claimed", "true", "attacked", "verdict"]
            text += ["", title, "", *table(head, map(_case_row, some))]
    return LibraryAudit(document, [*text, "", *explained(auditor)])


def published() -> list[Case]:
    """Return the claims of ``papers/``, a folder of the source tree; none in an installed wheel."""
    tree = Path(__file__).parents[1]
    if not (tree / "papers" / "claims.py").is_file():
        return []
    if str(tree) not in sys.path:
        sys.path.append(str(tree))
    cases: list[Case] = import_module("papers.claims").published()
    return cases


def metric_of(mechanism: Mechanism, kind: str = "every") -> CompiledMetric:
    """Return a metric of the first type that a mechanism is for."""
    spec: Document = {
        name: list(value) if isinstance(value := getattr(mechanism, name), tuple) else value
        for name in mechanism.parameters()
    }
    type_of_value = mechanism.types[0]
    values = [f"value {number}" for number in range(spec.get("domain_size", 0))]
    listed: Document = {"domain": values, "outside": "value 0"}
    ranged: Document = {"range": [0, 1], "outside": "clip"}
    known: dict[str, Document] = {
        **dict.fromkeys(("category", "ordinal", "top_item"), listed),
        **dict.fromkeys(("number", "vector"), ranged),
        "survey": {"question": "Did you?"},
    }
    document: Document = {
        "name": "audit",
        "type": type_of_value,
        "mechanism": {"name": mechanism.name, **spec},
        "missing": bool(spec.get("missing")),
        "window": 60_000,
        "repeat": {"kind": "first" if type_of_value == "top_item" else kind, "limit": 1},
        "ladder": [{"epsilon": micro, "after": 0} for micro in mechanism.micros],
        **known.get(type_of_value, {}),
    }
    return CompiledMetric.of_document(document, 0, 0)


def _tried(case: Case, auditor: Auditor | None, rate: float) -> Document:
    """Return a claim with its attack, and whether that shows more than is true."""
    attack, said = None, "holds"
    if not case.holds:
        said = f"false: {case.why}"
    elif case.why:
        said = f"loose: {case.why}"
    try:
        attack = auditor.case(case) if auditor else None
        if attack is not None and attack.exceeds(case.true, rate):
            said = "BROKEN: an attack shows more than is certified"
    except UnexpectedReportsError:
        said = "BROKEN: a device sends other reports"
    return {
        "claim": case.name,
        "source": case.source,
        "claimed": case.claimed,
        "true": "inf" if isinf(case.true) else case.true,
        **guesses_document(attack),
        "verdict": said,
    }


def _case_row(case: Document) -> list[str]:
    true = "infinite" if case["true"] == "inf" else f"{case['true']:.3f}"
    shown = proved(case) if "attacked" in case else ""
    return [case["claim"], case["source"], f"{case['claimed']:.3f}", true, shown, case["verdict"]]


# Plans.


def audit_plan(
    plan: CompiledPlan, auditor: Auditor | None, progress: Progress, devices: Devices
) -> LibraryAudit:
    """Audit every metric of a plan; only what is sent is attacked.

    Amounts of values, periods and the lifetime are those that devices charge: a metric of which the
    sampler's thresholds cost another amount does not keep its word.
    """
    auditor = auditor and replace(auditor, checks=len(plan.metrics))
    found = []
    for metric in plan.metrics:
        progress(f"{metric.name}: {metric.index + 1} of {len(plan.metrics)}")
        found.append(_levels(metric, auditor, devices))
    progress("")
    pairs = [*zip(plan.metrics, found, strict=True)]
    lasts = lifetime_of(plan)
    document = {
        "plan": plan.plan,
        "version": plan.version,
        "collector": plan.collector,
        "fingerprint": plan.fingerprint_hex,
        "attack": attack_document(auditor),
        "metrics": [_metric_document(*each) for each in pairs],
        "period": {"cost": plan.cost / MICRO, "ceiling": plan.ceilings.period / MICRO},
        "lifetime": {
            "permanent": plan.permanent / MICRO,
            "a_period": plan.recurring / MICRO,
            "a_year": lasts.yearly / MICRO,
            "ceiling": plan.ceilings.lifetime / MICRO,
            "periods": lasts.periods,
        },
        "status": int(any(map(_problems, found))),
    }
    shown = ATTACKS if auditor else ()
    text = [
        f"plan {plan.plan}, version {plan.version}, of collector {plan.collector}",
        f"fingerprint {plan.fingerprint_hex}",
        "",
        "A value, released up to each level:",
        "",
        *table(
            ["metric", "mechanism", "level", "claimed", "certified", *shown, "verdict"],
            [row for each in pairs for row in _rows(*each, attack=auditor is not None)],
        ),
        "",
        "A device:",
        "",
        *spent_lines(plan),
        "",
        *explained(auditor),
    ]
    return LibraryAudit(document, text)


def _levels(metric: CompiledMetric, auditor: Auditor | None, devices: Devices) -> list[Finding]:
    """Return findings on chains up to each level, a permanent response included."""
    levels = []
    for number in range(1, len(metric.ladder) + 1):
        attacking = auditor if number == metric.sent else None
        device = devices(metric) if attacking else None
        levels.append(claims.examine(metric.mechanism, number, attacking, device))
    return levels


def _problems(levels: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(each for level in levels for each in level.problems))


def _metric_document(metric: CompiledMetric, levels: Sequence[Finding]) -> Document:
    return {
        "metric": metric.name,
        "mechanism": metric.mechanism.name,
        "levels": [
            {**finding_document(found), "sent": level < metric.sent}
            for level, found in enumerate(levels)
        ],
        "value": metric.costs[-1] / MICRO,
        "values_a_period": metric.limit,
        "panel": metric.panel,
        "period": metric.cost / MICRO,
        "permanent": metric.permanent / MICRO,
        "problems": _problems(levels),
    }


def _rows(metric: CompiledMetric, levels: Sequence[Finding], *, attack: bool) -> list[list[str]]:
    """Return a row a level: what it costs, and the verdict."""
    rows = []
    for number, found in enumerate(levels, start=1):
        first = [metric.name, metric.mechanism.name] if number == 1 else ["", ""]
        level = f"{number}, never sent" if number > metric.sent else str(number)
        problems = _problems(levels) if found.batch else found.problems
        shown = amounts(found) if attack else amounts(found)[:2]
        rows.append([*first, level, *shown, verdict(problems)])
    return rows
