"""The section of a metric's page about an experiment: how its arms differ in the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from pipelines.results.records import EstimateRecord
from pipelines.web import charts, formats
from pipelines.web.views import MetricView

#: Differences that a chart and a table show at most.
_CHARTED, _LISTED = 25, 200


class Arm(NamedTuple):
    """An arm: its name, and its share of all arms' reports."""

    name: str
    row: EstimateRecord


class ArmComparison(NamedTuple):
    """How an arm differs from the first one: what is compared, and by how much."""

    arm: str
    of: str
    row: EstimateRecord


def experiment(view: MetricView) -> Mapping[str, object] | None:
    """Return the arms, and how they differ from the first one; None without an experiment."""
    arms = [Arm(_arm(row), row) for row in view.all_rows if row.kind == "arm_share"]
    if not arms:
        return None
    differences = [
        ArmComparison(_arm(row), row.item or "mean", row)
        for row in view.all_rows
        if row.kind == "difference"
    ]
    known = [each for each in differences if each.row.value is not None]
    return {
        "name": arms[0].row.segment.partition("=")[0],
        "first": view.plan.experiment.arms[0] if view.plan and view.plan.experiment else None,
        "arms": arms,
        "uneven": next((each.row for each in arms if each.row.significant), None),
        "chart": _chart(known[:_CHARTED]) if known else None,
        "differences": differences[:_LISTED],
        "more": max(len(differences) - _LISTED, 0),
    }


def _arm(row: EstimateRecord) -> str:
    return row.segment.partition("=")[2]


def _chart(shown: Sequence[ArmComparison]) -> Markup:
    unit = shown[0].row.unit or ""
    names = [f"{each.arm}: {each.of}" for each in shown]
    values = []
    for name, each in zip(names, shown, strict=True):
        row = each.row
        ends = None if row.low is None or row.high is None else (row.low, row.high)
        text = f"{name}: {formats.quantity(row.value, row.unit)}"
        if ends is not None:
            text += f", at all looks {formats.interval(*ends, row.unit)}"
        values.append((row.value, ends, text))
    label = (
        "difference of shares, in percentage points"
        if unit == "share"
        else f"difference, {unit}".rstrip(", ")
    )
    return charts.intervals("Differences from the first arm", names, values, unit, label)
