"""The section of a metric's page that puts windows together, and compares two runs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pipelines.results.ordinals import of_range
from pipelines.results.range_windows import names_of
from pipelines.results.ranges import ArmsComparedError
from pipelines.results.records import RangeComparison, RangeEstimate
from pipelines.web import charts
from pipelines.web.formats import unit_apart
from pipelines.web.views import MetricView, differences, name_of, told
from sotto.errors import ParameterError

_Row = TypeVar("_Row", RangeEstimate, RangeComparison)
#: The most figures that are drawn, and listed.
_DRAWN, _LISTED = 25, 200


def ranges(view: MetricView) -> Mapping[str, object] | None:
    """Return the estimates of the range that is asked for, or how they differ from another's."""
    query, reader = view.query, view.snapshot.reader
    names = view.snapshot.segments(view.shown) if query.segment else {}
    is_known = any(query.segment in (name, ",".join(names_of(name))) for name in ["", *names])
    if not query.asks and is_known:
        return None
    found: dict[str, object] = {"refused": "", "estimates": [], "comparisons": [], "chart": None}
    try:
        wanted = query.wanted(view.key)
        if not query.against:
            return {**found, "estimates": _listed(view, reader.range_estimates(wanted))}
        rows = _listed(view, reader.compared(wanted, wanted.against(query.against)))[:_LISTED]
    except ParameterError as error:
        return {**found, "refused": str(error), "arms": isinstance(error, ArmsComparedError)}
    return {**found, "comparisons": rows, "chart": _chart(view, rows)}


def _chart(view: MetricView, rows: Sequence[RangeComparison]) -> charts.Chart | None:
    """Return a chart of the differences that have the unit of the first one."""
    drawn = [each for each in rows if each.low is not None and each.unit == rows[0].unit][:_DRAWN]
    values = {}
    for each in drawn:
        name = f"{each.segment} {name_of(each)}".strip()
        values[name] = told(name, (each.difference, each.low, each.high), unit_apart(each.unit))
    if not drawn:
        return None
    return differences(f"{view.title}: differences", values, unit_apart(drawn[0].unit))


def _listed(view: MetricView, rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows that are listed: no cumulative shares or bits, no uncertain strings."""
    return [
        row
        for row in of_range(rows, view.snapshot.metric_of)
        if row.kind not in ("cdf", "bit")
        and (row.kind != "string" or row.significant or isinstance(row, RangeComparison))
    ]
