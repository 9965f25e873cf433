"""Rows whose metrics are numbered as other plans than those that count them give."""

from __future__ import annotations

import numpy as np
import pytest
from step_plans import category, plan
from step_universe import made_rows

from pipelines.aggregation.rows import Rows
from pipelines.beam import counting
from pipelines.beam.decoding import PackedRows
from pipelines.beam.plans import numbering_of
from sotto.plan.registry import Registry

ONE = plan(1, 4, category("colour", 3, 1), category("shape", 3, 1))
TWO = plan(2, 4, category("size", 3, 1), category("colour", 3, 1))


@pytest.mark.parametrize("former", [[TWO], [TWO, ONE], [ONE, TWO]])
def test_a_row_is_counted_under_its_own_plan_and_metric(former):
    before, now = Registry(former), Registry([ONE, TWO])
    metric = np.arange(len(before.metrics), dtype=np.uint16)
    block = made_rows(len(metric), widths=dict.fromkeys(metric.tolist(), 1), metric=metric)
    moved = Rows.from_bytes(
        counting._renumbered(PackedRows(numbering_of(before), block.to_bytes()), now)
    )
    assert [now.metrics[at][1:] for at in moved.metric] == [each[1:] for each in before.metrics]
    assert moved.widths == dict.fromkeys(moved.metric.tolist(), 1)
