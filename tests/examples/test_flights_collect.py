"""Figures that the demo reads from the aggregator's results."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from examples.flights.collect import Collected
from examples.flights.demo import PLAN
from examples.flights.truth import Truth
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import rows_of_windows
from sotto.plan.compile import load_plan
from sotto.plan.registry import Registry


@pytest.mark.parametrize("yes", [0, 19])
def test_nothing_is_shown_of_a_window_of_too_few_reports_but_why(yes: int) -> None:
    plan = load_plan(PLAN).compile()
    metric = plan.metric("delayed")
    counts = np.zeros((3, 2), dtype=np.int64)
    counts[0] = 19 - yes, yes
    key = WindowKey(plan.fingerprint, metric.index, metric.window)
    _, rows = rows_of_windows([(key, WindowCounts(1, counts))], Registry([plan]), {})
    # The truth is not asked for what has no estimate.
    collected = Collected(cast(Truth, None), rows)
    assert collected.withheld() == [("delayed", metric.window, "19 reports, the plan asks for 20")]
    assert collected.windows("delayed") == [metric.window]
    assert collected.compare("delayed", metric.window, "share", "true", "") is None
    assert collected.series("delayed", "share", "true", "").values == []


def test_a_window_of_which_only_bits_are_withheld_is_not_said_to_be() -> None:
    plan = load_plan(PLAN).compile()
    metric = plan.metric("distance")
    counts = np.zeros((3, metric.mechanism.count_length), dtype=np.int64)
    counts[0, :2] = 1000, 1000
    key = WindowKey(plan.fingerprint, metric.index, metric.window)
    _, rows = rows_of_windows([(key, WindowCounts(1, counts))], Registry([plan]), {})
    assert {row["kind"]: row["withheld"] is None for row in rows} == {"mean": True, "bit": False}
    assert Collected(cast(Truth, None), rows).withheld() == []
