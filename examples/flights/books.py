"""Both sides' ledgers side by side, and what the quarantine says about what was planted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from pipelines.aggregation.audit import audit
from pipelines.results.tables import PERIODS, QUARANTINE
from pipelines.sinks.sql import Results
from pipelines.storage.directory import StateDirectory
from pipelines.storage.states import StoredStates
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason
from sotto_cli.simulation.devices import AuditLine

from .faults import Misbehaviour
from .findings import LedgerPeriod, Quarantined, Revocation


def audit_of(state_dir: Path, plan: CompiledPlan, period: int) -> dict[str, tuple[int, int, int]]:
    """Return accepted, observed (micro-epsilon) and reason of every pseudonym of an open period."""
    directory = StateDirectory(state_dir)
    manifest = directory.manifest()
    found: dict[str, tuple[int, int, int]] = {}
    states = StoredStates(directory.files, Registry([plan]), manifest.key)
    for (number, part), held in manifest.states.items():
        if number == period:
            seen = audit(states.read(number, part, held))
            for at, name in enumerate(seen.pseudonym.astype("<u8")):
                numbers = int(seen.accepted[at]), int(seen.observed[at]), int(seen.reason[at])
                found[name.tobytes().hex()] = numbers
    return found


def ledger_periods(
    plan: CompiledPlan,
    audit: Iterable[AuditLine],
    misbehaved: Iterable[Misbehaviour],
    database: str,
) -> list[LedgerPeriod]:
    """Compare what devices spent with what the aggregator counted, period by period."""
    revoked = {(case.device, case.period) for case in misbehaved}
    spent: Counter[int] = Counter()
    withheld: Counter[int] = Counter()
    for line in audit:
        spent[line.period] += line.spent
        if (line.device, line.period) in revoked:
            withheld[line.period] += line.spent
    with Results(database) as results:
        counted = {
            cast(int, row["period_start"]) // plan.period: cast(int, row["accepted"])
            for row in results.table(PERIODS)
        }
    return [LedgerPeriod(spent[each], counted.get(each, 0), withheld[each]) for each in spent]


def revocations(
    plan: CompiledPlan,
    audit: Iterable[AuditLine],
    misbehaved: Sequence[Misbehaviour],
    audited: Mapping[str, tuple[int, int, int]],
) -> list[Revocation]:
    lines = {(line.device, line.period): line for line in audit}
    found = []
    for case in misbehaved:
        line = lines[case.device, case.period]
        accepted, observed, reason = audited[line.pseudonym]
        why = Reason(reason).label if reason else "not revoked"
        start = case.period * plan.period
        found.append(Revocation(case.fault, start, why, line.spent, observed, accepted))
    return found


def agreeing(
    audit: Iterable[AuditLine], audited: Mapping[str, tuple[int, int, int]], period: int
) -> tuple[int, int]:
    """Count the pseudonyms of a period whose two ledgers agree, and all of them."""
    lines = [line for line in audit if line.period == period]
    equal = sum(audited.get(line.pseudonym, (-1, 0, 0))[0] == line.spent for line in lines)
    return equal, len(lines)


def quarantined(planted: Mapping[str, int], database: str) -> list[Quarantined]:
    found: Counter[str] = Counter()
    with Results(database) as results:
        for row in results.table(QUARANTINE):
            found[str(row["reason"])] += cast(int, row["rows"])
    return [
        Quarantined(
            reason.label,
            None if reason == Reason.REVOKED else planted.get(reason.label, 0),
            found[reason.label],
        )
        for reason in Reason
        if found[reason.label] or planted.get(reason.label)
    ]
