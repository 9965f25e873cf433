"""The audit of a plan: what each metric costs, a report, a period and a lifetime."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from mechanisms.audit.claims import Attacker, Finding, examine
from mechanisms.exact import MICRO
from sotto.cli.audit_library import (
    Progress,
    attack_document,
    attacked,
    epsilon_text,
    explained,
    finding_document,
    verdict,
)
from sotto.cli.format import table
from sotto.design.spending import Lifetime
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import duration_text


@dataclass(frozen=True)
class MetricAudit:
    """What a metric costs, in micro-epsilon, from its sampler's thresholds.

    Parameters
    ----------
    metric : CompiledMetric
    levels : tuple of Finding
        Of chains up to each level, a permanent response included, which is not sent.
    problems : tuple of str
    """

    metric: CompiledMetric
    levels: tuple[Finding, ...]
    problems: tuple[str, ...]

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
    attacker: Attacker | None

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
        """The exit status: 1 if a mechanism does not keep its word, or a ceiling is exceeded."""
        over = self.period > self.plan.ceilings.period
        return int(over or any(metric.problems for metric in self.metrics))

    def text(self) -> list[str]:
        """Return the audit as tables."""
        plan = self.plan
        head = ["metric", "mechanism", "level", "claimed", "certified", "attacked", "verdict"]
        levels = [row for metric in self.metrics for row in _level_rows(metric)]
        if self.attacker is None:
            levels = [[*row[:5], row[6]] for row in levels]
            del head[5]
        costs = ["metric", "a value", "values a period", "a period", "a lifetime"]
        return [
            f"plan {plan.plan}, version {plan.version}, of collector {plan.collector}",
            f"fingerprint {plan.fingerprint_hex}",
            "",
            "A value, released up to each level:",
            "",
            *table(head, levels),
            "",
            "A device:",
            "",
            *table(costs, [*map(self._cost_row, self.metrics), self._total_row()]),
            "",
            *self._ceilings(),
            "",
            *explained(self.attacker),
        ]

    def _cost_row(self, audit: MetricAudit) -> list[str]:
        metric = audit.metric
        values = "1, constant" if audit.permanent else str(metric.limit)
        amounts = [epsilon_text(audit.chain), values, epsilon_text(audit.period)]
        return [metric.name, *amounts, self._lifetime(audit)]

    def _total_row(self) -> list[str]:
        return ["all", "", "", epsilon_text(self.period), epsilon_text(self.spent)]

    def _lifetime(self, audit: MetricAudit) -> str:
        turns = (self.lifetime.periods or 0) // audit.metric.panel
        return epsilon_text(audit.permanent or turns * audit.period)

    def _ceilings(self) -> list[str]:
        plan, unused = self.plan, self.plan.ceilings.period - self.period
        lines = [
            f"ceiling of a period ({duration_text(plan.period)}): "
            f"{epsilon_text(plan.ceilings.period)}, of which {epsilon_text(unused)} stays unused"
        ]
        lines.append(f"ceiling of a lifetime: {epsilon_text(plan.ceilings.lifetime)}")
        if self.permanent:
            lines.append(f"  permanent responses take {epsilon_text(self.permanent)} of it once")
        periods, panels = self.lifetime.periods, self.lifetime.costs
        if periods is None:
            return [*lines, "  no period takes anything of it"]
        left, time = plan.ceilings.lifetime - self.spent, duration_text(periods * plan.period)
        for panel, cost in panels:
            each = "every period" if panel == 1 else f"one period in {panel}"
            lines.append(f"  {each} takes up to {epsilon_text(cost)}")
        return [
            *lines,
            f"  spent after {periods} periods ({time}), when {epsilon_text(left)} is left and "
            "not all can be recorded any more",
        ]

    def json(self) -> list[str]:
        """Return the audit as JSON."""
        document = {
            "plan": self.plan.plan,
            "version": self.plan.version,
            "collector": self.plan.collector,
            "fingerprint": self.plan.fingerprint_hex,
            "attack": attack_document(self.attacker),
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


def audit_plan(plan: CompiledPlan, attacker: Attacker | None, progress: Progress) -> PlanAudit:
    """Audit every metric of a plan; only what is sent is attacked."""
    found = []
    for metric in plan.metrics:
        progress(f"{metric.name}: {metric.index + 1} of {len(plan.metrics)}")
        found.append(_audit(metric, attacker, len(plan.metrics)))
    progress("")
    return PlanAudit(plan, tuple(found), attacker)


def _audit(metric: CompiledMetric, attacker: Attacker | None, checks: int) -> MetricAudit:
    levels = tuple(
        examine(metric.mechanism, level + 1, attacker if level == metric.sent - 1 else None)
        for level in range(len(metric.ladder))
    )
    problems = [problem for level in levels for problem in level.problems(checks)]
    return MetricAudit(metric, levels, tuple(dict.fromkeys(problems)))


def _level_rows(audit: MetricAudit) -> list[list[str]]:
    metric, rows = audit.metric, []
    for level, found in enumerate(audit.levels):
        first, kept = level == 0, level >= metric.sent
        rows.append(
            [
                metric.name if first else "",
                metric.mechanism.name if first else "",
                f"{level + 1}, never sent" if kept else str(level + 1),
                epsilon_text(found.claimed),
                epsilon_text(found.certified),
                attacked(found.attack),
                verdict(found.problems(1)) if found.attack is None else verdict(audit.problems),
            ]
        )
    return rows


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
