"""Rows whose metrics are numbered as other plans than those that count them give."""

from __future__ import annotations

import numpy as np
import pytest
from step_plans import category, plan

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
    n = len(before.metrics)
    ids = np.zeros((n, 2), np.uint64)
    times = np.zeros(n, np.int64)
    block = Rows(
        shard=0,
        period=0,
        widths=dict.fromkeys(range(n), 1),
        metric=np.arange(n, dtype=np.uint16),
        level=np.zeros(n, np.uint8),
        pseudonym=ids,
        chain=ids,
        event=times,
        append=times,
        countable=np.ones(n, np.bool_),
        cell=np.zeros(n, np.uint8),
        payload=np.zeros((n, 1), np.uint8),
    )
    moved = Rows.from_bytes(
        counting._renumbered(PackedRows(numbering_of(before), block.to_bytes()), now)
    )
    assert [now.metrics[at][1:] for at in moved.metric] == [each[1:] for each in before.metrics]
    assert moved.widths == dict.fromkeys(moved.metric.tolist(), 1)
