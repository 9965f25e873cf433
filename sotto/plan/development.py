"""Development plans: a plan at high speed, of a collector that does not exist.

All that an app does under a plan can then be watched within minutes. It is another plan and not a
mode of the SDK, so that nothing in a shipped app can be switched to it: collector and fingerprint
are others, a device's file is pinned to one collector, and a collector or aggregator of the real
plan refuses its messages as those of a plan that it does not know.
"""

from __future__ import annotations

from sotto.errors import PlanError
from sotto.plan.checks import MIN_PERIOD, MIN_RESOLUTION
from sotto.plan.compiled import CompiledPlan, check

#: The suffix of the collector's name. Nobody has a name below ``invalid`` (RFC 2606).
SUFFIX = ".development.invalid"


def development_plan(plan: CompiledPlan) -> CompiledPlan:
    """Return a plan with the same metrics and costs, whose budget period lasts one minute.

    Windows, delays and grace are shortened in proportion, and rounded up to seconds; the resolution
    is one second. Every device answers in every period (no panels), and nothing is withheld of few
    reports. Epsilons, ceilings, mechanisms and the expiry stay. Raises PlanError if ``plan`` is one
    already, or cannot be shortened.

    >>> from sotto.plan.compile import parse_plan
    >>> plan = parse_plan('''
    ... collector: fleet.example
    ... plan: departures
    ... version: 1
    ... owner: telemetry@fleet.example
    ... expires: 2027-06-30
    ... period: 7d
    ... ceilings: {period: 2, lifetime: 104}
    ... resolution: 1h
    ... metrics:
    ...   late: {type: boolean, window: 28d, ladder: [{epsilon: 0.5}, {epsilon: 2, after: 1d}]}
    ... ''').compile()
    >>> fast = development_plan(plan)
    >>> fast.collector, fast.period, fast.metric("late").delays
    ('fleet.example.development.invalid', 60000, (0, 9000))
    """
    if is_development(plan):
        raise PlanError(f"plan {plan.plan!r} of {plan.collector} is a development plan already")

    def shortened(duration: int) -> int:
        return -(-duration * MIN_PERIOD // (plan.period * MIN_RESOLUTION)) * MIN_RESOLUTION

    document = plan.document()
    for metric in document["metrics"]:
        metric.pop("panel", None)
        metric["window"] = shortened(metric["window"])
        for level in metric["ladder"]:
            level["after"] = shortened(level["after"])
    document |= {
        "collector": plan.collector + SUFFIX,
        "period": MIN_PERIOD,
        "resolution": MIN_RESOLUTION,
        "grace": shortened(plan.grace),
        "minimum_reports": 1,
    }
    fast = CompiledPlan.of_document(document)
    check(fast)
    return fast


def is_development(plan: CompiledPlan) -> bool:
    return plan.collector.endswith(SUFFIX)
