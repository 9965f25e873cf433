"""The audit of a plan: what each metric costs, a report, a period and a lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mechanisms.audit.claims import Auditor, Finding, examine
from mechanisms.exact import MICRO
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
    verdict,
)
from sotto.columns import table
from sotto.design.description import spent_lines
from sotto.design.spending import lifetime_of
from sotto.plan.compiled import CompiledMetric, CompiledPlan


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
        if auditor is not None and number == metric.sent:
            sampler = devices(metric)
            device = sampler, sampler.cost
            levels.append(examine(metric.mechanism, number, auditor, device))
        else:
            levels.append(examine(metric.mechanism, number))
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
