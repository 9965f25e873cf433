"""The sections of the pages about plans: what is collected, how it is hidden, what it may cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pipelines.results.records import MetricKey
from pipelines.web import formats
from pipelines.web.views import PageView, PlanView
from sotto.clocks import now_ms
from sotto.design.spending import in_words, lifetime_of, value_cost
from sotto.plan.compiled import CompiledPlan


def plans(view: PageView) -> Mapping[str, object]:
    """Return all plans."""
    return {
        "plans": [
            (plan, view.links.plan(plan), _expires(plan), plan.expired(now_ms()))
            for plan in view.snapshot.plans
        ]
    }


def identity(view: PlanView) -> Mapping[str, object]:
    """Return who answers for a plan, what it is for, and until when it is."""
    return {"plan": view.plan, "expired": view.plan.expired(now_ms())}


def collected(view: PlanView) -> Mapping[str, object]:
    """Return the metrics of a plan, and what each level costs."""
    plan = view.plan
    key = MetricKey(plan.collector, plan.plan, plan.version, "")
    keys = [key._replace(metric=metric.name) for metric in plan.metrics]
    links = [view.links.metric(key) if key in view.snapshot.newest else None for key in keys]
    return {"metrics": list(zip(plan.metrics, links, strict=True)), "value_cost": value_cost}


def ceilings(view: PlanView) -> Mapping[str, object]:
    """Return what a device spends at most, and for how long that lasts."""
    return {"lasts": lifetime_of(view.plan), "words": in_words(view.plan)}


def promise(view: PlanView) -> Mapping[str, object]:
    """Return nothing: the template has the words of the disclosure from the plan in the view."""
    return {}


def _expires(plan: CompiledPlan) -> str:
    """Return the last day on which anything is recorded; ``expires`` is the end of that day."""
    last = datetime.fromtimestamp((plan.expires - 1) / 1000, UTC)
    return formats.day(last.replace(hour=0, minute=0, second=0, microsecond=0))
