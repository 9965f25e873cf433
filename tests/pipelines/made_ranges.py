"""Ranges of windows that are made of tables of counts, by the program's own estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from step_plans import PERIOD

from pipelines.aggregation.result_rows import rows_of_sum
from pipelines.results.fields import record_of
from pipelines.results.range_windows import WindowRun
from pipelines.results.ranges import RangePart, parts_of
from pipelines.results.records import EstimateRecord, Window
from sotto.plan.compiled import CompiledMetric, CompiledPlan

Table: TypeAlias = NDArray[np.int64]


@cache
def _estimates(metric: CompiledMetric, counts: bytes) -> list[Mapping[str, Any]]:
    """Return the rows of a window without its names; those of equal windows once."""
    table = np.frombuffer(counts, dtype=np.int64).reshape(len(metric.ladder), -1)
    strata = len(metric.mechanism.joins[-1])
    return list(rows_of_sum(metric, table, (), 1, strata, 1.0))


def rows_of(
    made: CompiledPlan, name: str, tables: Sequence[Table], first: int = 0, segment: str = ""
) -> Iterator[EstimateRecord]:
    """Yield what is published of windows of a metric, each made of counts by level."""
    named = {"collector": made.collector, "plan": made.plan, "version": 1, "metric": name}
    named |= {"segment": segment, "revision": 1, "complete": True, "biased": False}
    named |= {"forged_down": None, "forged_up": None}
    for at, counts in enumerate(tables, start=2800 + first):
        times = {"window_start": at * PERIOD, "window_end": (at + 1) * PERIOD}
        for place, row in enumerate(_estimates(made.metric(name), counts.tobytes())):
            yield record_of(EstimateRecord, {**named, **times, **row, "position": place})


def together(made: CompiledPlan, rows: Sequence[EstimateRecord]) -> RangePart:
    """Return what is estimated of all windows of rows together."""
    first, of = rows[0], ("category", "grr", 100, (100,), 20, None, 1, True)
    times = {row.window_start: row.window_end for row in rows}
    windows = [Window(*first.key, *each, first.segment, *of) for each in times.items()]
    pieces = {start: [first.segment] for start in times}
    (part,) = parts_of([WindowRun(first.key, made, first.segment, windows, 0, pieces)], rows)
    return part
