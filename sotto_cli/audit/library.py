"""The audit of the library: its mechanisms, and claims of papers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import isinf
from pathlib import Path

from mechanisms.audit import claims
from mechanisms.audit.cases import Case
from mechanisms.audit.claims import FALSE_ALARM, LIBRARY, Auditor, Claim, Finding
from mechanisms.audit.guessing import Attack, provable
from mechanisms.audit.reports import UnexpectedReportsError
from mechanisms.errors import ParameterError, did_you_mean
from mechanisms.exact import MICRO
from sotto.columns import exact, table
from sotto_cli.audit.device import DeviceSampler, device_cases, metric_of
from sotto_cli.exit_status import ExitStatus

Progress = Callable[[str], None]
#: Columns about code: attacks on reports of devices and of the batch code; how devices draw.
ATTACKS = ("device", "batch", "device's law")
#: Amounts of the audited chains, and of those mechanisms that are shown at more of them.
_AMOUNTS, _MORE = (1.0,), (0.5, 1.0, 2.0)
_SHOWN_AT_MORE = frozenset({"grr", "sue", "oue"})


@dataclass(frozen=True)
class Line:
    """A mechanism of the library with its finding."""

    claim: Claim
    parameters: str
    finding: Finding


@dataclass(frozen=True)
class CaseLine:
    """A release with its attack, and whether that is above what is true."""

    case: Case
    attack: Attack | None
    broken: bool

    @property
    def verdict(self) -> str:
        """What to say of the claim."""
        if self.broken:
            shown = "an attack shows more than is certified"
            return f"BROKEN: {shown if self.attack else 'a device sends other reports'}"
        if not self.case.holds:
            return f"false: {self.case.why}"
        return f"loose: {self.case.why}" if self.case.why else "holds"


@dataclass(frozen=True)
class LibraryAudit:
    """What ``sotto audit`` prints without a plan."""

    lines: list[Line]
    others: list[CaseLine]
    published: list[CaseLine]
    auditor: Auditor | None

    @property
    def status(self) -> int:
        """The exit status: ``FOUND`` if a mechanism does not keep its word."""
        broken = any(case.broken for case in (*self.others, *self.published))
        return ExitStatus.found(broken or any(line.finding.problems for line in self.lines))

    def text(self) -> list[str]:
        """Return the audit as tables."""
        out = ["The library, each mechanism a chain at half of the amount and at all of it:", ""]
        head = ["mechanism", "source", "claimed", "certified", *ATTACKS, "verdict"]
        out += table(head, map(_row, self.lines))
        for title, cases in (
            ("What devices keep beside single chains:", self.others),
            ("Claims of papers, and of what breaks their conditions:", self.published),
        ):
            if cases:
                head = ["claim", "source", "claimed", "true", "attacked", "verdict"]
                out += ["", title, "", *table(head, map(_case_row, cases))]
        return [*out, "", *explained(self.auditor)]

    def json(self) -> list[str]:
        """Return the audit as JSON."""
        document = {
            "attack": attack_document(self.auditor),
            "mechanisms": [
                {
                    "mechanism": line.claim.name,
                    "parameters": line.parameters,
                    "source": line.claim.source,
                    **finding_document(line.finding),
                    "problems": line.finding.problems,
                }
                for line in self.lines
            ],
            "others": [_case_document(line) for line in self.others],
            "published": [_case_document(line) for line in self.published],
            "status": self.status,
        }
        return [json.dumps(document, indent=1)]


def audit_library(
    auditor: Auditor | None,
    amounts: Sequence[float] | None,
    names: Sequence[str] | None,
    progress: Progress,
) -> LibraryAudit:
    """Audit the library, or some of its mechanisms."""
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
        for amount in amounts or (_MORE if claim.name in _SHOWN_AT_MORE else _AMOUNTS)
    ]
    ours, theirs = ([], []) if names else (device_cases(), published())
    checks, lines, cases = len(work) + len(ours) + len(theirs), [], []
    auditor = auditor and replace(auditor, checks=checks)
    for number, (claim, amount) in enumerate(work, start=1):
        progress(f"{claim.name} at {amount:g}: {number} of {checks}")
        ladder = claims.ladder_to(amount)
        mechanism = claim.build(ladder)
        device = None
        if auditor is not None:
            sampler = DeviceSampler(metric_of(mechanism))
            device = sampler, sampler.cost
        found = claims.examine(mechanism, auditor=auditor, device=device)
        lines.append(Line(claim, _parameters(claim, ladder[-1]), found))
    for number, case in enumerate([*ours, *theirs], start=len(work) + 1):
        progress(f"{case.name}: {number} of {checks}")
        attack, broken = None, False
        try:
            attack = auditor.case(case) if auditor else None
            broken = attack is not None and attack.exceeds(case.true, FALSE_ALARM / checks)
        except UnexpectedReportsError:
            broken = True
        cases.append(CaseLine(case, attack, broken))
    progress("")
    return LibraryAudit(lines, cases[: len(ours)], cases[len(ours) :], auditor)


def published() -> list[Case]:
    """Return the claims of ``papers/``, a folder of the source tree; none in an installed wheel."""
    tree = Path(__file__).parents[2]
    if not (tree / "papers" / "claims.py").is_file():
        return []
    if str(tree) not in sys.path:
        sys.path.append(str(tree))
    cases: list[Case] = import_module("papers.claims").published()
    return cases


def _parameters(claim: Claim, micro: int) -> str:
    spec = claim.spec(micro)
    return ", ".join(
        f"{key.replace('_', ' ')} {' '.join(map(str, v)) if isinstance(v, tuple) else v}"
        for key, v in spec.items()
        if key != "name" and v is not False
    )


def _row(line: Line) -> list[str]:
    name = f"{line.claim.name} ({line.parameters})" if line.parameters else line.claim.name
    found = line.finding
    amounts = [exact(found.claimed), exact(found.certified), *attacks(found)]
    return [name, line.claim.source, *amounts, verdict(found.problems)]


def _case_row(line: CaseLine) -> list[str]:
    case = line.case
    true = "infinite" if isinf(case.true) else f"{case.true:.3f}"
    row = [case.name, case.source, f"{case.claimed:.3f}", true]
    return [*row, attacked(line.attack), line.verdict]


def _case_document(line: CaseLine) -> dict[str, object]:
    case = line.case
    return {
        "claim": case.name,
        "source": case.source,
        "claimed": case.claimed,
        "true": "inf" if isinf(case.true) else case.true,
        **guesses_document(line.attack),
        "verdict": line.verdict,
    }


def verdict(problems: Sequence[str]) -> str:
    """Return what to say of a mechanism."""
    return f"BROKEN: {'; '.join(problems)}" if problems else "holds"


def attacked(attack: Attack | None) -> str:
    """Return a proved amount, rounded down."""
    return "" if attack is None else f"{int(attack.epsilon * 1e4) / 1e4:.4f}"


def attacks(found: Finding) -> list[str]:
    """Return the columns :data:`ATTACKS` of a finding."""
    law = "" if found.law is None else found.law.words
    return [attacked(found.device), attacked(found.batch), law]


def finding_document(found: Finding) -> dict[str, object]:
    """Return the amounts of a finding, as epsilons, and what was found of either code."""
    document: dict[str, object] = {
        "claimed": found.claimed / MICRO,
        "stated": found.stated / MICRO,
        "certified": found.certified / MICRO,
    }
    for name, attack in (("device", found.device), ("batch", found.batch)):
        if attack is not None:
            document[name] = guesses_document(attack)
    if found.law is not None:
        law = {"inputs": found.law.inputs, "followed": float(1 - found.law.left)}
        law |= {"bits": found.law.positions, "differs": found.law.differs}
        document["law"] = law | {"same_as_batch": found.same}
    return document


def guesses_document(attack: Attack | None) -> dict[str, object]:
    """Return what an attack found; nothing without one."""
    if attack is None:
        return {}
    return {
        "attacked": attack.epsilon,
        "right": attack.right,
        "guesses": attack.guesses,
        "chains": attack.chains,
        "view": attack.view,
    }


def attack_document(auditor: Auditor | None) -> dict[str, object] | None:
    """Return how was attacked."""
    if auditor is None:
        return None
    return {
        "trials": auditor.trials,
        "recordings": auditor.recordings,
        "confidence": auditor.confidence,
    }


def explained(auditor: Auditor | None) -> list[str]:
    """Return what the columns mean."""
    lines = [
        "Amounts are epsilon. 'Certified' is exact, from the sampler's thresholds, rounded up."
    ]
    if auditor is not None:
        found = provable(1.0, int(1.6 * auditor.recordings), auditor.rate)
        lines += [
            f"'Device' and 'batch' are lower bounds, each with confidence {auditor.confidence:g}.",
            f"'Device' attacks {auditor.recordings:,} recordings of either input of the worst pair",
            "through the SDK's client (fewer where they take long). They prove a loss of",
            f"{found:.2f} where 1 is certified, if every report shows it. 'Batch' attacks",
            f"{auditor.trials:,} chains of either from the code that simulations run.",
            "'Device's law' compares every outcome of a device's sampler with the certified law;",
            "the reports of device and batch are compared with each other. By chance a bound",
            "may exceed what is certified; of the verdicts none is wrong but once in a million",
            "times.",
        ]
    return lines
