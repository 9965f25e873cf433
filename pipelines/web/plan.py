"""The sections of the pages about plans: what is collected, how it is hidden, what it may cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pipelines.web import formats
from pipelines.web.snapshot import MetricKey
from pipelines.web.views import PageView, PlanView
from sotto.clocks import now_ms
from sotto.design.spending import in_words, lifetime_of, value_cost
from sotto.disclosure import facts
from sotto.plan.compiled import CompiledMetric, CompiledPlan

_MICRO = 1e6


class LadderLevel(NamedTuple):
    """A level of a metric; amounts in epsilon."""

    number: int
    after: str
    nominal: str
    certified: str
    #: By how much a forged report counts; None where no bound is known.
    influence: float | None


class Collected(NamedTuple):
    """A metric, as people read it."""

    name: str
    title: str
    purpose: str
    value: str
    often: str
    mechanism: str
    window: str
    panel: int
    #: Epsilon of one value, and of a period.
    value_cost: str
    cost: str
    levels: list[LadderLevel]
    link: str | None


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
    plan = view.plan
    terms = [
        ("collector", plan.collector),
        ("questions to", plan.owner),
        ("nothing is recorded after", plan.last_day),
        ("budget period", facts.span(plan.period)),
        ("times are known to", facts.span(plan.resolution)),
        ("fewest reports of an estimate", f"{plan.minimum_reports:,}"),
        ("messages are signed", "yes" if plan.signed else "no"),
    ]
    if plan.attributes:
        said = "; ".join(f"{each.name} ({', '.join(each.values)})" for each in plan.attributes)
        terms.append(("in the clear with each report", said))
    return {"plan": plan, "terms": terms, "expired": plan.expired(now_ms())}


def collected(view: PlanView) -> Mapping[str, object]:
    """Return the metrics of a plan, and what each level costs."""
    plan = view.plan
    return {"metrics": [_collected(view, plan, metric) for metric in plan.metrics]}


def _collected(view: PlanView, plan: CompiledPlan, metric: CompiledMetric) -> Collected:
    key = MetricKey(plan.collector, plan.plan, plan.version, metric.name)
    counted = key in view.snapshot.newest
    return Collected(
        metric.name,
        facts.title(metric),
        facts.purpose(plan, metric),
        facts.value(metric),
        facts.how_often(plan, metric),
        metric.mechanism.name,
        facts.span(metric.window),
        metric.panel,
        formats.epsilon(value_cost(metric) / _MICRO),
        formats.epsilon(metric.cost / _MICRO),
        list(levels_of(metric)),
        view.links.metric(key) if counted else None,
    )


def levels_of(metric: CompiledMetric) -> Iterator[LadderLevel]:
    """Yield the levels of a metric, weakest first."""
    for at, level in enumerate(metric.ladder):
        yield LadderLevel(
            at + 1,
            facts.when(level.after) if at < metric.sent else "never",
            formats.epsilon(level.epsilon / _MICRO),
            formats.epsilon(metric.mechanism.certified(at) / _MICRO),
            metric.mechanism.influence(at),
        )


def ceilings(view: PlanView) -> Mapping[str, object]:
    """Return what a device spends at most, and for how long that lasts."""
    plan = view.plan
    lasts = lifetime_of(plan)
    return {
        "period": formats.epsilon(plan.ceilings.period / _MICRO),
        "cost": formats.epsilon(plan.cost / _MICRO),
        "lifetime": formats.epsilon(plan.ceilings.lifetime / _MICRO),
        "permanent": formats.epsilon(plan.permanent / _MICRO) if plan.permanent else "",
        "yearly": formats.epsilon(round(lasts.yearly / _MICRO, 1)) if lasts.costs else "",
        "lasts": in_words(plan),
        "length": facts.span(plan.period),
    }


def promise(view: PlanView) -> Mapping[str, object]:
    """Return what a person is told, in the words of the disclosure."""
    plan = view.plan
    return {
        "bounds": list(facts.bounds(plan)),
        "not_hidden": facts.not_hidden(plan),
        "kept": list(facts.kept(plan)),
    }


def _expires(plan: CompiledPlan) -> str:
    """Return the last day on which anything is recorded; ``expires`` is the end of that day."""
    last = datetime.fromtimestamp((plan.expires - 1) / 1000, UTC)
    return formats.day(last.replace(hour=0, minute=0, second=0, microsecond=0))
