"""The audit of the library: its mechanisms, and claims of papers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from math import isinf
from pathlib import Path

from mechanisms.audit import claims
from mechanisms.audit.cases import Case
from mechanisms.audit.claims import FALSE_ALARM, LIBRARY, Auditor, Claim
from mechanisms.audit.reports import UnexpectedReportsError
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError, did_you_mean
from sotto.audit.findings import (
    ATTACKS,
    Devices,
    Document,
    LibraryAudit,
    Progress,
    amounts,
    attack_document,
    explained,
    finding_document,
    guesses_document,
    proved,
    verdict,
)
from sotto.columns import table
from sotto.plan.compiled import CompiledMetric


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
        device = None
        if auditor is not None:
            sampler = devices(metric_of(mechanism))
            device = sampler, sampler.cost
        found = claims.examine(mechanism, auditor=auditor, device=device)
        parameters = _parameters(claim, ladder[-1])
        shown = f"{claim.name} ({parameters})" if parameters else claim.name
        rows.append([shown, claim.source, *amounts(found), verdict(found.problems)])
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
    tree = Path(__file__).parents[2]
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


def _parameters(claim: Claim, micro: int) -> str:
    return ", ".join(
        f"{key.replace('_', ' ')} {' '.join(map(str, v)) if isinstance(v, tuple) else v}"
        for key, v in claim.spec(micro).items()
        if key != "name" and v is not False
    )


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
