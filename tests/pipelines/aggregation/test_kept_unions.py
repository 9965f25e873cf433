"""Windows keep the unions of those before them, whatever made their values few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from test_publication import segmented, separable_plan

from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.published import PublishedWindow
from pipelines.aggregation.result_rows import published_again, rows_of_windows
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry

#: The counts of each cell of a window.
Tables = Sequence[NDArray[np.int64]]


def unions(plan: CompiledPlan, name: str, windows: Iterable[Tables]) -> list[list[str]]:
    """Return the rows of several values that a run has of windows in a row."""
    registry, metric = Registry([plan]), plan.metric(name)
    published: dict[WindowKey, PublishedWindow] = {}
    found = []
    for number, tables in enumerate(windows):
        key = WindowKey(plan.fingerprint, metric.index, number * metric.window)
        cells = [
            (key._replace(cell=cell), WindowCounts(number + 1, table, True))
            for cell, table in enumerate(tables)
        ]
        published |= published_again(cells, registry, published, number + 1)
        rows, _ = rows_of_windows(cells, registry, {}, published)
        assert rows[0]["withheld"] is None
        several = [row for row in rows if " or " in str(row["segment"])]
        assert all(row["withheld"] is None for row in several)
        found.append([str(row["segment"]) for row in several])
    return found


def by_group(metric: CompiledMetric, reports: Iterable[int]) -> NDArray[np.int64]:
    """Return counts of the last level with so many reports in each separable group."""
    mechanism = metric.mechanism
    groups = mechanism.separable(np.eye(mechanism.strata, dtype=np.int64)) > 0
    table = np.zeros((2, mechanism.strata, mechanism.chain.cells), dtype=np.int64)
    for group, number in zip(groups.T, reports, strict=True):
        table[1, np.flatnonzero(group)[0], -1] = number
    return table.reshape(2, -1)


def yes(*by_level: int) -> NDArray[np.int64]:
    """Return counts of so many answers of yes, by level."""
    return np.array([[0, number] for number in by_level])


HOST = separable_plan("os: [a, b, c]", 20)


@pytest.mark.parametrize("few", [[2, 60, 60], [60, 60, 19]])
def test_a_union_for_want_of_reports_in_one_cohort_lasts_for_four_windows(few):
    metric = HOST.metric("host")
    many = [by_group(metric, [number] * 3) for number in (70, 300, 200)]
    enough = [by_group(metric, [60] * 3), *many]
    windows = [[by_group(metric, few), *many], *[enough] * 4, [by_group(metric, few), *many]]
    assert unions(HOST, "host", windows) == [*[["os=a or b"]] * 4, [], ["os=a or b"]]


def test_a_union_for_want_of_reports_of_each_level_lasts_for_four_windows():
    """The value has thirty reports, fifteen of each level."""
    plan = segmented("os: [a, b]")
    windows = [[yes(15, 15), yes(0, 300), yes(0, 90)], *[[yes(0, 30), yes(0, 300), yes(0, 90)]] * 4]
    assert unions(plan, "dark", windows) == [*[["os=a or other"]] * 4, []]


def test_a_value_that_has_some_level_of_its_own_is_in_no_union():
    """Rows of an attribute's values never overlap: each report of a level is in one at most."""
    plan = segmented("os: [a, b]")
    windows = [[yes(5, 30), yes(7, 300), yes(80, 90)]]
    assert unions(plan, "dark", windows) == [[]]
