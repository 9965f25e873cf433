"""The audit of the library: its mechanisms, and claims of papers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf

from mechanisms.audit import claims
from mechanisms.audit.cases import Case
from mechanisms.audit.claims import FALSE_ALARM, LIBRARY, Attacker, Claim, Finding
from mechanisms.audit.guessing import Attack
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.papers.claims import published
from sotto.cli.format import exact, table

Progress = Callable[[str], None]
#: Amounts of the audited chains, and of those mechanisms that are shown at more of them.
_AMOUNTS, _MORE = (1.0,), (0.5, 1.0, 2.0)
_SHOWN_AT_MORE = frozenset({"grr", "sue", "oue"})


@dataclass(frozen=True)
class Line:
    """A mechanism of the library with its finding."""

    claim: Claim
    parameters: str
    finding: Finding
    problems: list[str]


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
            return "BROKEN: an attack shows more than is certified"
        if not self.case.holds:
            return f"false: {self.case.why}"
        return f"loose: {self.case.why}" if self.case.why else "holds"


@dataclass(frozen=True)
class LibraryAudit:
    """What ``sotto audit`` prints without a plan."""

    lines: list[Line]
    others: list[CaseLine]
    published: list[CaseLine]
    attacker: Attacker | None

    @property
    def status(self) -> int:
        """The exit status: 1 if a mechanism does not keep its word."""
        broken = any(case.broken for case in (*self.others, *self.published))
        return int(broken or any(line.problems for line in self.lines))

    def text(self) -> list[str]:
        """Return the audit as tables."""
        out = ["The library, each mechanism a chain at half of the amount and at all of it:", ""]
        head = ["mechanism", "source", "claimed", "certified", "attacked", "verdict"]
        out += table(head, map(_row, self.lines))
        for title, cases in (
            ("What no plan can name:", self.others),
            ("Claims of papers, and of what breaks their conditions:", self.published),
        ):
            if cases:
                head = ["claim", "source", "claimed", "true", "attacked", "verdict"]
                out += ["", title, "", *table(head, map(_case_row, cases))]
        return [*out, "", *explained(self.attacker)]

    def json(self) -> list[str]:
        """Return the audit as JSON."""
        document = {
            "attack": attack_document(self.attacker),
            "mechanisms": [
                {
                    "mechanism": line.claim.name,
                    "parameters": line.parameters,
                    "source": line.claim.source,
                    **finding_document(line.finding),
                    "problems": line.problems,
                }
                for line in self.lines
            ],
            "others": [_case_document(line) for line in self.others],
            "published": [_case_document(line) for line in self.published],
            "status": self.status,
        }
        return [json.dumps(document, indent=1)]


def audit_library(
    attacker: Attacker | None,
    amounts: Sequence[float] | None,
    names: Sequence[str] | None,
    progress: Progress,
) -> LibraryAudit:
    """Audit the library, or some of its mechanisms."""
    known = [claim.name for claim in LIBRARY]
    for name in names or ():
        if name not in known:
            raise ParameterError(f"--mechanism must be among {', '.join(known)}, not {name!r}")
    work = [
        (claim, amount)
        for claim in LIBRARY
        if names is None or claim.name in names
        for amount in amounts or (_MORE if claim.name in _SHOWN_AT_MORE else _AMOUNTS)
    ]
    ours, theirs = ([], []) if names else (claims.others(), published())
    checks, lines, cases = len(work) + len(ours) + len(theirs), [], []
    for number, (claim, amount) in enumerate(work, start=1):
        progress(f"{claim.name} at {amount:g}: {number} of {checks}")
        ladder = claims.ladder_to(amount)
        found = claims.examine(claim.build(ladder), attacker=attacker)
        lines.append(Line(claim, _parameters(claim, ladder[-1]), found, found.problems(checks)))
    for number, case in enumerate([*ours, *theirs], start=len(work) + 1):
        progress(f"{case.name}: {number} of {checks}")
        attack = attacker.case(case) if attacker else None
        broken = attack is not None and attack.exceeds(case.true, FALSE_ALARM / checks)
        cases.append(CaseLine(case, attack, broken))
    progress("")
    return LibraryAudit(lines, cases[: len(ours)], cases[len(ours) :], attacker)


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
    amounts = [exact(found.claimed), exact(found.certified), attacked(found.attack)]
    return [name, line.claim.source, *amounts, verdict(line.problems)]


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


def finding_document(found: Finding) -> dict[str, object]:
    """Return the amounts of a finding, as epsilons."""
    return {
        "claimed": found.claimed / MICRO,
        "stated": found.stated / MICRO,
        "certified": found.certified / MICRO,
        **guesses_document(found.attack),
    }


def guesses_document(attack: Attack | None) -> dict[str, object]:
    """Return what an attack found; nothing without one."""
    if attack is None:
        return {}
    return {
        "attacked": attack.epsilon,
        "right": attack.best.right,
        "guesses": attack.best.guesses,
        "chains": attack.chains,
        "view": attack.best.view,
    }


def attack_document(attacker: Attacker | None) -> dict[str, object] | None:
    """Return how was attacked."""
    if attacker is None:
        return None
    return {"trials": attacker.trials, "confidence": attacker.confidence}


def explained(attacker: Attacker | None) -> list[str]:
    """Return what the columns mean."""
    lines = [
        "Amounts are epsilon. 'Certified' is exact, from the sampler's thresholds, rounded up."
    ]
    if attacker is not None:
        lines += [
            f"'Attacked' is a lower bound, each with confidence {attacker.confidence:g}, from "
            f"{attacker.trials:,} chains of either",
            "input of the worst pair, fewer where they take long. By chance it may",
            "exceed what is certified; of the verdicts none is wrong but once in a",
            "million times.",
        ]
    return lines
