"""The page of experiments: one result of each over all its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from mechanisms.experiments import SAMPLE_RATIO_ERROR
from pipelines.results.records import ArmEffect, MetricKey
from pipelines.web import charts
from pipelines.web.formats import unit_apart
from pipelines.web.views import PageView, differences, told

#: The most differences that a chart and a table show.
_CHARTED, _LISTED = 25, 200


def experiments(view: PageView) -> Mapping[str, object]:
    """Return all experiments of known plans."""
    named = groupby(view.snapshot.effects, lambda row: (row.collector, row.plan, row.version))
    results = [_result(view, MetricKey(*name, ""), [*rows]) for name, rows in named]
    return {"experiments": results, "listed": _LISTED, "uneven": SAMPLE_RATIO_ERROR}


def _result(view: PageView, key: MetricKey, rows: Sequence[ArmEffect]) -> Mapping[str, object]:
    """Return an experiment's metric that decides, its other metrics, and those not compared."""
    plan = view.snapshot.plan_of(key)
    assert plan is not None, "effects are of known plans"
    assert plan.experiment is not None, "effects are of experiments"
    known = [row for row in rows if row.value is not None]
    others = [row for row in known if not row.looks]
    tested = [row for row in rows if row.arms_p_value is not None]
    return {
        "plan": plan,
        "spans": {(row.start, row.end) for row in known if row.start and row.end},
        "decisions": [row for row in known if row.looks],
        "others": others,
        "chart": _chart(known) if known else None,
        "not_compared": {row.metric: row.withheld for row in rows if row.withheld},
        "least_even": min(tested, key=lambda row: row.arms_p_value or 0.0, default=None),
        "links": {
            row.metric: view.links.metric(row.key) if row.key in view.snapshot.newest else None
            for row in rows
        },
    }


def _chart(known: Sequence[ArmEffect]) -> charts.Chart:
    """Return a chart of the differences that have the unit of the first one."""
    shown = [row for row in known if row.unit == known[0].unit][:_CHARTED]
    values, unit = {}, unit_apart(known[0].unit)
    for row in shown:
        name = f"{row.arm}: {row.metric} {row.item}".rstrip()
        looks = "all" if row.look_value is None else "planned"
        values[name] = told(name, row.told, unit, f"at {looks} looks")
    return differences("Differences from the first arm", values, unit)
