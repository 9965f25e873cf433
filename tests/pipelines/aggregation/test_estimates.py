"""The rows that a database is given, for every type of metric and for windows with nothing left."""

from __future__ import annotations

import every_type
import numpy as np
import pytest
from every_type import KINDS, every_plan
from numpy.typing import NDArray
from step_plans import category, number, plan, string

from mechanisms.estimators.frequency import consistent_shares
from mechanisms.items import Method
from mechanisms.testing import SeededSource
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import estimate, rows_of_windows
from pipelines.results.tables import ESTIMATES, WINDOWS
from sotto.plan.compiled import CompiledMetric
from sotto.plan.registry import Registry

BITS = {"bits": 4, "missing": True}
PLAN = plan(
    1,
    100,
    category("colour", 3, 1, 2),
    {**category("shape", 4, 1, 2, mechanism="oue"), "missing": True, "domain": ["a", "b", "c"]}
    | {"outside": "a"},
    number("plain", {"name": "threshold", "missing": False}, 1, 2),
    {**number("level", {"name": "threshold", "missing": True}, 1, 2), "missing": True},
    {**number("pushed", {"name": "sampled_bit", **BITS}, 1, 2), "missing": True, "unit": "kg"},
    {**number("split", {"name": "split_bits", **BITS}, 4, 8), "missing": True},
    string("path", 64, 1, 2),
    {**string("place", 64, 1, 2), "missing": True},
)
REGISTRY = Registry([PLAN])
VALUES = {
    "colour": ["v0", "v0", "v1"],
    "shape": ["a", "c", None],
    "plain": [10, 10, 90],
    "level": [10, 90, None],
    "pushed": [10, 90, None],
    "split": [10, 90, None],
    "path": ["home", "home", "away"],
    "place": ["home", "away", None],
}
CANDIDATES = ("home", "away", "nowhere")


def counts_of(metric: CompiledMetric, devices: int) -> NDArray[np.int64]:
    """Return the counts of devices whose values are spread evenly, two thirds on the last level."""
    source, mechanism = SeededSource(51), metric.mechanism
    ids = [source.words(2 * devices).reshape(-1, 2) for _ in range(2)]
    symbols = [metric.encode(VALUES[metric.name][at % 3]) for at in range(devices)]
    if metric.type == "number":
        symbols = np.array([np.nan if s is None else s for s in symbols])
    elif metric.type == "category":
        symbols = np.array(symbols)
    payloads = mechanism.randomize(symbols, *ids, source)
    level = np.minimum(np.arange(devices) // 2 % 3, 1)
    return mechanism.accumulate(payloads[np.arange(devices), level], *ids, level, 2)


@pytest.mark.parametrize("name", KINDS)
def test_windows_with_hardly_a_report_have_rows(name):
    """A row a kind and item, the first with all reports, whatever they determine."""
    plan = every_plan()
    metric = plan.metric(name)
    key = WindowKey(plan.fingerprint, metric.index, 3 * metric.window)
    for reports in (0, 1, 2, 30):
        window = WindowCounts(9, every_type.counts_of(metric, reports, seed=271828))
        (row,), estimates = rows_of_windows([(key, window)], Registry([plan]), {})
        assert set(row) == {*WINDOWS.columns.keys(), "alarms"}
        assert (row["n"], sum(row["reports_by_level"]), row["revision"]) == (reports, reports, 9)
        assert row["window_end"] - row["window_start"] == metric.window
        assert {frozenset(each) for each in estimates} == {frozenset(ESTIMATES.columns.keys())}
        assert len({(each["kind"], each["item"]) for each in estimates}) == len(estimates)
        assert [each["position"] for each in estimates] == list(range(len(estimates)))
        assert {each["method"] for each in estimates} <= {method.value for method in Method}


def kinds(name: str) -> dict[tuple[str, str], float]:
    metric = PLAN.metric(name)
    items = estimate(metric, counts_of(metric, 3000), CANDIDATES)
    return {(item.kind, item.item): item.estimate.value for item in items}


def test_categories_have_shares_that_are_shown_as_such():
    metric = PLAN.metric("shape")
    counts = counts_of(metric, 3000)
    items = list(estimate(metric, counts, ()))
    assert [item.item for item in items] == ["a", "b", "c", "missing"]
    made = metric.mechanism.frequencies(counts)
    assert [item.estimate for item in items] == made
    shown = consistent_shares([each.value for each in made], [each.standard_error for each in made])
    assert [item.display for item in items] == shown.tolist()


def test_numbers_have_what_their_mechanism_tells():
    assert {kind for kind, _ in kinds("plain")} == {"mean", "quantile", "cdf"}
    level = kinds("level")
    assert {kind for kind, _ in level} == {"mean", "missing", "quantile", "cdf"}
    metric = PLAN.metric("level")
    made = metric.mechanism.numeric(counts_of(metric, 3000), 0.0, 100.0)
    assert level["mean", ""] == made.mean.value
    assert level["quantile", "0.5"] == made.quantiles[0.5].value
    for name in ("pushed", "split"):
        bits = {("bit", str(bit)) for bit in (1, 2, 3, 4)}
        assert set(kinds(name)) == {("mean", ""), ("missing", ""), *bits}
    pushed = PLAN.metric("pushed")
    units = {item.kind: item.unit for item in estimate(pushed, counts_of(pushed, 300), ())}
    assert units == {"mean": "kg", "missing": "share", "bit": "share"}


def test_strings_have_candidates_and_the_missing_one_is_told_apart():
    strings = {("string", text) for text in CANDIDATES}
    assert set(kinds("path")) == {("unexplained", ""), *strings}
    assert set(kinds("place")) == {("unexplained", ""), ("missing", ""), *strings}


def test_without_candidates_everything_is_unexplained():
    metric = PLAN.metric("path")
    (item,) = estimate(metric, counts_of(metric, 300), ())
    assert (item.kind, item.estimate.value, item.estimate.n) == ("unexplained", 1.0, 300)
    assert sum(item.estimate.reports_by_level) == 300
    place = PLAN.metric("place")
    assert [item.kind for item in estimate(place, counts_of(place, 300), ())] == ["missing"]


def test_candidates_given_twice_are_one():
    metric = PLAN.metric("path")
    items = estimate(metric, counts_of(metric, 300), ("home", "home"))
    assert [item.item for item in items] == ["", "home"]
