"""Forged reports do to a range what they do to figures that are made again with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_ranges import Table, rows_of, together
from plan_texts import plan_head

from mechanisms.estimate import forged
from pipelines.results.fields import grouped
from pipelines.results.ranges import RangePart, compared
from sotto.plan.compile import parse_plan

REST = "window: 7d, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]"
PLAN = parse_plan(
    plan_head("forged", (60, 6000), shards=1, minimum_reports=1)
    + f"""\
  theme: {{type: category, domain: [a, b, c], outside: c, mechanism: grr, {REST}}}
  speed: {{type: number, range: [0, 60], outside: clip, mechanism: duchi, {REST}}}
  stars: {{type: ordinal, values: [low, mid, high], mechanism: grr, {REST}}}
  reply: {{type: number, range: [0, 60], outside: clip, missing: true, mechanism: duchi, {REST}}}
"""
).compile()


def part_of(name: str, tables: Sequence[Table], first: int = 0, segment: str = "") -> RangePart:
    """Return what is estimated of windows of a metric together, each made of counts by level."""
    return together(PLAN, [*rows_of(PLAN, name, tables, first, segment)])


def drawn(name: str, *by_level: tuple[int, int]) -> list[Table]:
    """Return windows of so many reports of two levels, of all outputs."""
    source, width = np.random.default_rng(5), PLAN.metric(name).mechanism.count_length
    shares = [source.dirichlet(np.ones(width)) for _ in by_level]
    return [
        np.array([source.multinomial(n, share) for n in levels])
        for levels, share in zip(by_level, shares, strict=True)
    ]


@pytest.mark.parametrize("name", ["theme", "speed", "stars"])
def test_no_report_in_a_window_moves_a_range_further_than_stated_and_the_worst_does(
    name: str,
) -> None:
    tables = drawn(name, (40, 80), (200, 30), (90, 90))
    stated = {(row.kind, row.item): row for row in part_of(name, tables).records()}
    moved: dict[tuple[str, str], list[float]] = defaultdict(list)
    for at, *cell in np.ndindex(len(tables), *tables[0].shape):
        more = [table.copy() for table in tables]
        more[at][*cell] += 1
        for row in part_of(name, more).records():
            moved[row.kind, row.item].append(row.value - stated[row.kind, row.item].value)
    for key, row in stated.items():
        for said, most in ((row.forged_down, -min(moved[key])), (row.forged_up, max(moved[key]))):
            assert said is not None, key
            assert most - 1e-12 <= said <= 1.03 * most, key


@pytest.mark.parametrize("name", ["theme", "speed", "stars"])
def test_a_share_of_forged_reports_may_be_in_the_windows_where_it_does_most(name: str) -> None:
    tables = drawn(name, (0, 300), (100, 200), (200, 0))
    windows = grouped(rows_of(PLAN, name, tables), lambda row: (row.kind, row.item))
    for found in part_of(name, tables).records(0.1):
        of = windows[found.kind, found.item]
        by_level = [n for row in of for n in row.reports_by_level]
        over, short = forged(0.1, by_level, [each for row in of for each in row.reach])
        moved = found.low - found.under_low, found.under_high - found.high
        assert moved == pytest.approx((over, short))


def test_nothing_is_stated_of_quotients_and_of_windows_that_do_not_state_it() -> None:
    tables = drawn("reply", (40, 80), (90, 90))
    reply = {row.kind: row for row in part_of("reply", tables).records(0.1)}
    fields = "forged_down", "forged_up", "under_low", "under_high"
    assert {getattr(reply["mean"], name) for name in fields} == {None}
    assert None not in {getattr(reply["missing"], name) for name in fields}
    first, *rows = rows_of(PLAN, "theme", drawn("theme", (40, 80), (90, 90)))
    old = replace(first, forged_up=None, reach=None)
    of_range = next(together(PLAN, [old, *rows]).records(0.1))
    assert {getattr(of_range, name) for name in fields} == {None}


def test_of_two_ranges_a_forger_may_be_in_both() -> None:
    tables = drawn("theme", (40, 80), (200, 30))
    one, other = part_of("theme", tables[:1]), part_of("theme", tables[1:], first=1)
    (first, *_), (second, *_) = one.records(0.1), other.records(0.1)
    (found, *_) = compared([one], [other], 0.1)
    assert found.forged_up == pytest.approx(first.forged_up + second.forged_down)
    assert found.forged_down == pytest.approx(first.forged_down + second.forged_up)
    over, short = first.low - first.under_low, second.under_high - second.high
    assert found.low - found.under_low == pytest.approx(over + short)
