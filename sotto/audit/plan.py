"""The audit of a plan: what each metric costs, a report, a period and a lifetime."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

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
from sotto.columns import exact, table
from sotto.design.spending import Lifetime
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import duration_text


@dataclass(frozen=True)
class _Costs:
    """The cost of a metric, in micro-epsilon, from its sampler's thresholds."""

    metric: CompiledMetric
    #: Findings on chains up to each level, a permanent response included, which is not sent.
    levels: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        return list(dict.fromkeys(each for level in self.levels for each in level.problems))

    @property
    def value(self) -> int:
        """All reports of one value."""
        return self.levels[self.metric.sent - 1].certified

    @property
    def period(self) -> int:
        """All values of a period."""
        return self.metric.limit * self.value

    @property
    def permanent(self) -> int:
        """The cost of a constant metric, once, instead of in every period; 0 for others."""
        return self.levels[-1].certified if self.metric.kind == "constant" else 0

    def document(self) -> Document:
        return {
            "metric": self.metric.name,
            "mechanism": self.metric.mechanism.name,
            "levels": [
                {**finding_document(found), "sent": level < self.metric.sent}
                for level, found in enumerate(self.levels)
            ],
            "value": self.value / MICRO,
            "values_a_period": self.metric.limit,
            "panel": self.metric.panel,
            "period": self.period / MICRO,
            "permanent": self.permanent / MICRO,
            "problems": self.problems,
        }

    def rows(self, *, attack: bool) -> list[list[str]]:
        """Return a row a level: what it costs, and the verdict."""
        rows = []
        for number, found in enumerate(self.levels, start=1):
            first = [self.metric.name, self.metric.mechanism.name] if number == 1 else ["", ""]
            level = f"{number}, never sent" if number > self.metric.sent else str(number)
            problems = self.problems if found.batch else found.problems
            shown = amounts(found) if attack else amounts(found)[:2]
            rows.append([*first, level, *shown, verdict(problems)])
        return rows


def audit_plan(
    plan: CompiledPlan, auditor: Auditor | None, progress: Progress, devices: Devices
) -> LibraryAudit:
    """Audit every metric of a plan; only what is sent is attacked."""
    auditor = auditor and replace(auditor, checks=len(plan.metrics))
    found = []
    for metric in plan.metrics:
        progress(f"{metric.name}: {metric.index + 1} of {len(plan.metrics)}")
        found.append(_Costs(metric, _levels(metric, auditor, devices)))
    progress("")
    period = sum(each.period for each in found)
    permanent = sum(each.permanent for each in found)
    turns: Counter[int] = Counter()
    for each in found:
        if not each.permanent:
            turns[each.metric.panel] += each.period
    ceiling = plan.ceilings.lifetime - permanent
    lasts = Lifetime(plan.period, ceiling, tuple(sorted(turns.items())))
    status = period > plan.ceilings.period or any(each.problems for each in found)
    document = {
        "plan": plan.plan,
        "version": plan.version,
        "collector": plan.collector,
        "fingerprint": plan.fingerprint_hex,
        "attack": attack_document(auditor),
        "metrics": [each.document() for each in found],
        "period": {"cost": period / MICRO, "ceiling": plan.ceilings.period / MICRO},
        "lifetime": {
            "permanent": permanent / MICRO,
            "a_period": sum(turns.values()) / MICRO,
            "a_year": lasts.yearly / MICRO,
            "ceiling": plan.ceilings.lifetime / MICRO,
            "periods": lasts.periods,
        },
        "status": int(status),
    }
    shown = ATTACKS if auditor else ()
    periods = lasts.periods or 0
    spent = permanent + sum(periods // panel * cost for panel, cost in lasts.costs)
    text = [
        f"plan {plan.plan}, version {plan.version}, of collector {plan.collector}",
        f"fingerprint {plan.fingerprint_hex}",
        "",
        "A value, released up to each level:",
        "",
        *table(
            ["metric", "mechanism", "level", "claimed", "certified", *shown, "verdict"],
            [row for each in found for row in each.rows(attack=auditor is not None)],
        ),
        "",
        "A device:",
        "",
        *_device_lines(found, periods, period, spent),
        "",
        *_ceiling_lines(plan, lasts, period, permanent, spent),
        "",
        *explained(auditor),
    ]
    return LibraryAudit(document, text)


def _levels(
    metric: CompiledMetric, auditor: Auditor | None, devices: Devices
) -> tuple[Finding, ...]:
    levels = []
    for number in range(1, len(metric.ladder) + 1):
        if auditor is not None and number == metric.sent:
            sampler = devices(metric)
            device = sampler, sampler.cost
            levels.append(examine(metric.mechanism, number, auditor, device))
        else:
            levels.append(examine(metric.mechanism, number))
    return tuple(levels)


def _device_lines(found: list[_Costs], periods: int, period: int, spent: int) -> list[str]:
    """Return what a value, a period and a lifetime of each metric cost, and of all together."""
    rows = [
        [
            each.metric.name,
            exact(each.value),
            "1, constant" if each.permanent else str(each.metric.limit),
            exact(each.period),
            exact(each.permanent or periods // each.metric.panel * each.period),
        ]
        for each in found
    ]
    head = ["metric", "a value", "values a period", "a period", "a lifetime"]
    return table(head, [*rows, ["all", "", "", exact(period), exact(spent)]])


def _ceiling_lines(
    plan: CompiledPlan, lasts: Lifetime, period: int, permanent: int, spent: int
) -> list[str]:
    unused = exact(plan.ceilings.period - period)
    lines = [
        f"ceiling of a period ({duration_text(plan.period)}): "
        f"{exact(plan.ceilings.period)}, of which {unused} stays unused",
        f"ceiling of a lifetime: {exact(plan.ceilings.lifetime)}",
    ]
    if permanent:
        lines.append(f"  permanent responses take {exact(permanent)} of it once")
    if lasts.periods is None:
        return [*lines, "  no period takes anything of it"]
    for panel, cost in lasts.costs:
        each = "every period" if panel == 1 else f"one period in {panel}"
        lines.append(f"  {each} takes up to {exact(cost)}")
    left, time = plan.ceilings.lifetime - spent, duration_text(lasts.periods * plan.period)
    return [
        *lines,
        f"  spent after {lasts.periods} periods ({time}), when {exact(left)} is left and "
        "not all can be recorded any more",
    ]
