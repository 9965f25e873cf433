"""The audit of a plan: what each metric costs, a report, a period and a lifetime."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mechanisms.audit.claims import Auditor, Finding, examine
from mechanisms.exact import MICRO
from sotto.columns import columns, exact, table
from sotto.design.spending import Lifetime
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import duration_text
from sotto_cli.audit.device import DeviceSampler
from sotto_cli.audit.library import (
    ATTACKS,
    Progress,
    attack_document,
    attacks,
    explained,
    finding_document,
    verdict,
)
from sotto_cli.exit_status import ExitStatus


@dataclass(frozen=True)
class MetricAudit:
    """What a metric costs, in micro-epsilon, from its sampler's thresholds."""

    metric: CompiledMetric
    #: Of chains up to each level, a permanent response included, which is not sent.
    levels: tuple[Finding, ...]
    problems: tuple[str, ...]

    @property
    def values(self) -> str:
        """How many a period."""
        return "1, constant" if self.permanent else str(self.metric.limit)

    @property
    def chain(self) -> int:
        """All reports of one value."""
        return self.levels[self.metric.sent - 1].certified

    @property
    def period(self) -> int:
        """All values of a period."""
        return self.metric.limit * self.chain

    @property
    def permanent(self) -> int:
        """What a constant metric costs once, instead of in every period; 0 for others."""
        return self.levels[-1].certified if self.metric.kind == "constant" else 0


@dataclass(frozen=True)
class PlanAudit:
    """What ``sotto audit PLAN`` prints."""

    plan: CompiledPlan
    metrics: tuple[MetricAudit, ...]
    auditor: Auditor | None

    @property
    def period(self) -> int:
        """Micro-epsilon that a period costs at most."""
        return sum(metric.period for metric in self.metrics)

    @property
    def permanent(self) -> int:
        """Micro-epsilon that permanent responses cost once."""
        return sum(metric.permanent for metric in self.metrics)

    @property
    def recurring(self) -> int:
        """Micro-epsilon that a full period takes from the lifetime's."""
        return sum(metric.period for metric in self.metrics if not metric.permanent)

    @property
    def lifetime(self) -> Lifetime:
        """For how long the lifetime lasts, by these costs and the metrics' panels."""
        costs: Counter[int] = Counter()
        for audit in self.metrics:
            if not audit.permanent:
                costs[audit.metric.panel] += audit.period
        ceiling = self.plan.ceilings.lifetime - self.permanent
        return Lifetime(self.plan.period, ceiling, tuple(sorted(costs.items())))

    @property
    def spent(self) -> int:
        """Micro-epsilon that is spent when not all can be recorded any more."""
        periods = self.lifetime.periods or 0
        turns = sum(periods // panel * cost for panel, cost in self.lifetime.costs)
        return self.permanent + turns

    @property
    def status(self) -> int:
        """The exit status: ``FOUND`` if a mechanism breaks its word, or a ceiling is exceeded."""
        over = self.period > self.plan.ceilings.period
        return ExitStatus.found(over or any(metric.problems for metric in self.metrics))

    def text(self) -> list[str]:
        """Return the audit as tables."""
        plan = self.plan
        # The last line is of all metrics together.
        costs = columns(
            [*self.metrics, None],
            {
                "metric": lambda audit: audit.metric.name if audit else "all",
                "a value": lambda audit: exact(audit.chain) if audit else "",
                "values a period": lambda audit: audit.values if audit else "",
                "a period": lambda audit: exact(audit.period if audit else self.period),
                "a lifetime": lambda audit: exact(self._lifetime(audit) if audit else self.spent),
            },
        )
        return [
            f"plan {plan.plan}, version {plan.version}, of collector {plan.collector}",
            f"fingerprint {plan.fingerprint_hex}",
            "",
            "A value, released up to each level:",
            "",
            *_level_lines(self.metrics, attack=self.auditor is not None),
            "",
            "A device:",
            "",
            *costs,
            "",
            *self._ceilings(),
            "",
            *explained(self.auditor),
        ]

    def _lifetime(self, audit: MetricAudit) -> int:
        turns = (self.lifetime.periods or 0) // audit.metric.panel
        return audit.permanent or turns * audit.period

    def _ceilings(self) -> list[str]:
        plan, unused = self.plan, self.plan.ceilings.period - self.period
        lines = [
            f"ceiling of a period ({duration_text(plan.period)}): "
            f"{exact(plan.ceilings.period)}, of which {exact(unused)} stays unused"
        ]
        lines.append(f"ceiling of a lifetime: {exact(plan.ceilings.lifetime)}")
        if self.permanent:
            lines.append(f"  permanent responses take {exact(self.permanent)} of it once")
        periods, panels = self.lifetime.periods, self.lifetime.costs
        if periods is None:
            return [*lines, "  no period takes anything of it"]
        left, time = plan.ceilings.lifetime - self.spent, duration_text(periods * plan.period)
        for panel, cost in panels:
            each = "every period" if panel == 1 else f"one period in {panel}"
            lines.append(f"  {each} takes up to {exact(cost)}")
        return [
            *lines,
            f"  spent after {periods} periods ({time}), when {exact(left)} is left and "
            "not all can be recorded any more",
        ]

    def json(self) -> list[str]:
        """Return the audit as JSON."""
        document = {
            "plan": self.plan.plan,
            "version": self.plan.version,
            "collector": self.plan.collector,
            "fingerprint": self.plan.fingerprint_hex,
            "attack": attack_document(self.auditor),
            "metrics": [_document(metric) for metric in self.metrics],
            "period": {
                "cost": self.period / MICRO,
                "ceiling": self.plan.ceilings.period / MICRO,
            },
            "lifetime": {
                "permanent": self.permanent / MICRO,
                "a_period": self.recurring / MICRO,
                "a_year": self.lifetime.yearly / MICRO,
                "ceiling": self.plan.ceilings.lifetime / MICRO,
                "periods": self.lifetime.periods,
            },
            "status": self.status,
        }
        return [json.dumps(document, indent=1)]


def audit_plan(plan: CompiledPlan, auditor: Auditor | None, progress: Progress) -> PlanAudit:
    """Audit every metric of a plan; only what is sent is attacked."""
    found = []
    auditor = auditor and replace(auditor, checks=len(plan.metrics))
    for metric in plan.metrics:
        progress(f"{metric.name}: {metric.index + 1} of {len(plan.metrics)}")
        found.append(_audit(metric, auditor))
    progress("")
    return PlanAudit(plan, tuple(found), auditor)


def _audit(metric: CompiledMetric, auditor: Auditor | None) -> MetricAudit:
    levels = []
    for level in range(len(metric.ladder)):
        if auditor is not None and level == metric.sent - 1:
            sampler = DeviceSampler(metric)
            device = sampler, sampler.cost
            levels.append(examine(metric.mechanism, level + 1, auditor, device))
        else:
            levels.append(examine(metric.mechanism, level + 1))
    problems = [problem for level in levels for problem in level.problems]
    return MetricAudit(metric, tuple(levels), tuple(dict.fromkeys(problems)))


def _level_lines(audits: Iterable[MetricAudit], *, attack: bool) -> list[str]:
    shown = ATTACKS if attack else ()
    head = ["metric", "mechanism", "level", "claimed", "certified", *shown, "verdict"]
    rows = []
    for audit in audits:
        name, mechanism = audit.metric.name, audit.metric.mechanism.name
        for number, found in enumerate(audit.levels, start=1):
            level = f"{number}, never sent" if number > audit.metric.sent else str(number)
            amounts = [exact(found.claimed), exact(found.certified)]
            amounts += attacks(found) if attack else []
            problems = audit.problems if found.batch else found.problems
            rows.append([name, mechanism, level, *amounts, verdict(problems)])
            name = mechanism = ""
    return table(head, rows)


def _document(audit: MetricAudit) -> dict[str, object]:
    return {
        "metric": audit.metric.name,
        "mechanism": audit.metric.mechanism.name,
        "levels": [
            {**finding_document(found), "sent": level < audit.metric.sent}
            for level, found in enumerate(audit.levels)
        ],
        "value": audit.chain / MICRO,
        "values_a_period": audit.metric.limit,
        "panel": audit.metric.panel,
        "period": audit.period / MICRO,
        "permanent": audit.permanent / MICRO,
        "problems": list(audit.problems),
    }
