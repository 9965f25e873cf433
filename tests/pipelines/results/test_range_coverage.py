"""Intervals of ranges and of their differences cover what they state, however noise is drawn.

A share of 13 windows, of a thousand devices each; the randomization is drawn by its own laws, and
all that follows is the program's.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_ranges import rows_of, together
from numpy.typing import NDArray
from plan_texts import plan_head
from scipy import stats
from statistical import check_at_least, check_binomial, check_variance
from step_plans import PERIOD, category, plan

from pipelines.results.ranges import RangePart, compared
from pipelines.results.records import RangeComparison
from pipelines.results.retention import estimate_of
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

pytestmark = pytest.mark.slow

SEED = 271828
SEEDS, WINDOWS, DEVICES, SHARE = 400, 13, 1000, 0.3
TRUE = round(SHARE * DEVICES)


def two_values(*epsilons: float, constant: bool, panel: int = 1) -> CompiledPlan:
    """Return the plan of a metric of two values; the last level of a constant one is not sent."""
    kind = "constant" if constant else "first"
    changes = {"repeat": {"kind": kind, "limit": 1}, "window": PERIOD}
    fields = category("colour", 2, *epsilons) | changes | ({"panel": panel} if panel > 1 else {})
    fields["ladder"] = [{"epsilon": round(1e6 * each), "after": 0} for each in epsilons]
    return plan(1, 10, fields)


def reports_of(
    made: CompiledPlan, source: np.random.Generator, devices: int = DEVICES
) -> NDArray[np.int64]:
    """Return how many reports say yes by run, window and level: ``(SEEDS, WINDOWS, levels)``.

    The same devices with the same values report in each window, as many at each level; three of
    ten have the value.
    """
    metric = made.metrics[0]
    p = metric.mechanism.pairs()[:, 0]
    true = round(SHARE * devices)
    last, sent = metric.sent, np.arange(metric.sent)
    shape = (SEEDS, WINDOWS, metric.sent)
    if metric.kind != "constant":
        yes = source.binomial(true // len(sent), p[sent], shape)
        return yes + source.binomial((devices - true) // len(sent), 1 - p[sent], shape)
    permanent = source.binomial(true, p[last], SEEDS)
    permanent += source.binomial(devices - true, 1 - p[last], SEEDS)
    kept = (p[sent] + p[last] - 1) / (2 * p[last] - 1)
    # The level that a device sends does not depend on its permanent response.
    parts = [permanent]
    for left in range(len(sent), 1, -1):
        whole, size = parts.pop(), devices // len(sent)
        drawn = source.hypergeometric(whole, devices * left // len(sent) - whole, size)
        parts += [drawn, whole - drawn]
    groups = np.stack(parts, axis=-1)[:, None, :]
    yes = source.binomial(groups, kept, shape)
    return yes + source.binomial(devices // len(sent) - groups, 1 - kept, shape)


def part_of(
    made: CompiledPlan,
    yes: NDArray[np.int64],
    devices: int = DEVICES,
    first: int = 0,
    segment: str = "",
) -> RangePart:
    """Return what is estimated of windows, ``(windows, levels)``, from their estimates."""
    metric = made.metrics[0]
    tables = np.zeros((len(yes), len(metric.ladder), 2), dtype=np.int64)
    tables[:, : metric.sent] = np.stack([devices // metric.sent - yes, yes], axis=-1)
    return together(made, [*rows_of(made, metric.name, [*tables], first, segment)])


def shares_of(made: CompiledPlan, yes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return value, standard error, low and high of the share in each run: ``(SEEDS, 4)``."""
    parts = (part_of(made, each) for each in yes)
    found = [next(r for r in part.records() if r.item == "v1") for part in parts]
    return np.array([(r.value, r.standard_error, r.low, r.high) for r in found])


def covered(ends: NDArray[np.float64], truth: float) -> int:
    return int(np.count_nonzero((ends[:, 0] <= truth) & (truth <= ends[:, 1])))


@pytest.mark.parametrize("epsilons", [(1.0,), (0.5, 2.0)], ids=["one level", "two levels"])
def test_noise_that_is_drawn_anew_is_covered_as_stated(epsilons: tuple[float, ...]) -> None:
    made = two_values(*epsilons, constant=False)
    found = shares_of(made, reports_of(made, np.random.default_rng(SEED)))
    check_binomial(covered(found[:, 2:], SHARE), SEEDS, 0.95, label=f"seed {SEED}")
    check_variance(found[:, 0], float(np.mean(found[:, 1] ** 2)), label=f"seed {SEED}")


def test_a_range_of_one_window_has_its_interval() -> None:
    made = two_values(2.0, constant=False)
    rows = [*rows_of(made, "colour", [np.array([[23, 4]])], 0, "")]
    found = {each.item: (each.low, each.high) for each in together(made, rows).records()}
    assert found == {row.item: (row.low, row.high) for row in rows}


@pytest.mark.parametrize(
    ("epsilons", "error", "if_anew"),
    [((1.0, 2.0), 0.0154, 0.0084), ((1.0, 4.0), 0.0094, 0.0084), ((0.5, 1.0, 2.0), None, None)],
    ids=["1 of 2", "1 of 4", "levels mixed"],
)
def test_a_permanent_response_is_counted_as_often_as_it_is_repeated(
    epsilons: tuple[float, ...], error: float | None, if_anew: float | None
) -> None:
    """The bound is exact for the same devices in all windows, and plain errors are too small."""
    made = two_values(*epsilons, constant=True)
    found = shares_of(made, reports_of(made, np.random.default_rng(SEED)))
    stated = float(np.mean(found[:, 1]))
    if error is not None:
        assert stated == pytest.approx(error, abs=6e-5)
    check_binomial(covered(found[:, 2:], SHARE), SEEDS, 0.95, label=f"seed {SEED}")
    check_variance(found[:, 0], stated**2, label=f"seed {SEED}")
    fresh = two_values(*epsilons[:-1], constant=False)
    plain = shares_of(fresh, reports_of(made, np.random.default_rng(SEED)))
    if if_anew is not None:
        assert float(np.mean(plain[:, 1])) == pytest.approx(if_anew, abs=6e-5)
    if epsilons == (1.0, 2.0):
        with pytest.raises(AssertionError):
            check_at_least(covered(plain[:, 2:], SHARE), SEEDS, 0.93, label="as if drawn anew")


def differences(
    made: CompiledPlan, ones: NDArray[np.int64], others: NDArray[np.int64]
) -> list[RangeComparison]:
    """Return the difference of the share in two runs of windows, one after the other."""
    found = []
    for one, other in zip(ones, others, strict=True):
        parts = [part_of(made, one, first=WINDOWS)], [part_of(made, other)]
        found.append(next(each for each in compared(*parts) if each.item == "v1"))
    return found


def test_differences_of_two_ranges_are_covered_and_found_as_stated() -> None:
    made, source = two_values(1.0, constant=False), np.random.default_rng(SEED)
    first, second = reports_of(made, source), reports_of(made, source)
    found = differences(made, first, second)
    ends = np.array([(each.low, each.high) for each in found])
    check_binomial(covered(ends, 0.0), SEEDS, 0.95, label=f"seed {SEED}")
    # A true difference of the size that is stated is found in four of five.
    smallest = float(np.mean([each.smallest_found for each in found]))
    moved = np.array([each.difference for each in found]) + smallest
    errors = np.array([each.standard_error for each in found])
    check_binomial(int(np.sum(np.abs(moved) > 1.95996 * errors)), SEEDS, 0.8, label=f"seed {SEED}")


@pytest.mark.parametrize(
    ("mechanism", "epsilon"), [("oue", 8), ("grr", 0.5), ("grr", 2), ("grr", 4)]
)
@pytest.mark.parametrize("having", [(20, 0), (0, 0), (1, 10), (1, 1), (0, 2)])
def test_few_reports_are_covered(mechanism: str, epsilon: float, having: tuple[int, int]) -> None:
    """Ranges, differences, a segment and all: every number of answers that can be is looked at.

    With oue at epsilon 8 almost all yeses are true, and half of these are not said.
    """
    made, n = plan(1, 10, category("colour", 2, epsilon, mechanism=mechanism)), 20
    [(p, q)] = made.metrics[0].mechanism.pairs()
    every, pmf = np.arange(n + 1), stats.binom.pmf
    laws = [np.convolve(pmf(every, k, p), pmf(every, n - k, q)) for k in having]
    tables = [np.array([[n - yes, yes] + [n] * (mechanism == "oue")]) for yes in every]
    places = ((0, ""), (1, ""), (0, "os=linux"))
    windows = [[[*rows_of(made, "colour", [t], *place)] for t in tables] for place in places]
    more, covering = (having[0] - having[1]) / n, np.zeros(3)
    truths = sum(having) / n / 2, more, more / 2
    for one, other in itertools.product(every, every):
        if (chance := laws[0][one] * laws[1][other]) > 1e-6:
            rows = windows[0][other], windows[1][one], windows[2][one]
            part, later, segment = (together(made, each) for each in rows)
            whole = together(made, [*rows_of(made, "colour", [tables[one] + tables[other]])])
            both, apart = together(made, rows[0] + rows[1]).records(), compared([later], [part])
            nested = compared([segment], [_all_of(whole, segment)])
            for at, each in enumerate((both, apart, nested)):
                found: Any = next(r for r in each if r.item == "v1")
                assert found.low <= getattr(found, "difference", found.value) <= found.high
                covering[at] += chance * (found.low <= truths[at] <= found.high)
    assert covering.min() >= 0.95


@pytest.mark.parametrize(("having", "others"), [(1, 2), (20, 0)])
def test_few_reports_that_may_say_nothing_of_a_value_are_covered(having: int, others: int) -> None:
    """Those of hadamard are about one block of categories: they say yes, no or nothing.

    ``having`` of 20 reports in each of two windows have the value, and ``others`` have another one
    of its block. The range holds their share, and the difference of the windows is 0.
    """
    hadamard = {"name": "hadamard", "domain_size": 16, "blocks": 8}
    made, n = plan(1, 10, category("colour", 16, 6.0) | {"mechanism": hadamard}), 20
    [(p, q)] = made.metrics[0].mechanism.pairs()
    law = np.zeros((n + 1, n + 1))
    law[0, 0] = 1
    chances = [(p, q)] * having + [((p + q) / 2,) * 2] * others + [(q, q)] * (n - having - others)
    for yes, no in chances:
        nothing = law * (1 - yes - no)
        nothing[1:] += yes * law[:-1]
        nothing[:, 1:] += no * law[:, :-1]
        law = nothing
    tables = {}
    for yes, no in np.argwhere(law > 5e-4).tolist():
        tables[yes, no] = np.zeros((1, made.metrics[0].mechanism.count_length), dtype=np.int64)
        tables[yes, no][0, [0, 1, 4]] = yes, no, n - yes - no
    covering = np.zeros(2)
    for one, other in itertools.product(tables, tables):
        first = [*rows_of(made, "colour", [tables[one]], 0)]
        later = [*rows_of(made, "colour", [tables[other]], 1)]
        both = together(made, first + later).records()
        apart = compared([together(made, later)], [together(made, first)])
        for at, (each, truth) in enumerate(((both, having / n), (apart, 0.0))):
            found: Any = next(r for r in each if r.item == "v0")
            covering[at] += law[one] * law[other] * (found.low <= truth <= found.high)
    assert covering[0] >= 0.98
    assert covering[1] >= 0.994


def test_points_of_distributions_are_compared_by_normal_intervals() -> None:
    """They are estimated from added counts, and their own intervals end at 0 and 1."""
    made, found = two_values(2.0, constant=False), []
    for first, yes in ((1, 20), (0, 0)):
        part = part_of(made, np.full((1, 1), yes), 20, first=first)
        table = np.array([[20 - yes, yes]])
        row = next(each for each in rows_of(made, "colour", [table]) if each.item == "v1")
        point = replace(part.items["share", "v1"], drawn=estimate_of(row))
        found.append(replace(part, items={**part.items, ("cdf", "v1"): point}))
    [apart] = [r for r in compared([found[0]], [found[1]]) if r.kind == "cdf"]
    points = (each.items["cdf", "v1"].drawn for each in found)
    reach = math.hypot(*(1.959964 * each.standard_error + each.half for each in points))
    assert apart.high == pytest.approx(apart.difference + reach)


def test_means_whose_intervals_do_not_end_at_the_range_are_compared_by_these() -> None:
    """Outputs of hybrid at epsilon 8 are close together: a normal interval is far longer."""
    line = "  v: {type: number, range: [0, 1], outside: clip, mechanism: {hybrid: {points: 33}},"
    head = plan_head("means", (1000, 100000))
    made = parse_plan(head + line + " window: 7d, ladder: [{epsilon: 8}]}\n").compile()
    length = made.metrics[0].mechanism.count_length
    parts = []
    for first, places in enumerate([(9, 10), (14, 20), (0, 0)]):
        table = np.zeros((1, length), dtype=np.int64)
        np.add.at(table[0], [length // 32 * at for at in places], 30)
        parts.append(together(made, [*rows_of(made, "v", [table], first)]))
    one, *others = (next(r for r in each.records() if r.kind == "mean") for each in parts)
    longer = []
    for other, part in zip(others, parts[1:], strict=True):
        found = next(r for r in compared(parts[:1], [part]) if r.kind == "mean")
        up = math.hypot(one.high - one.value, other.value - other.low)
        longer.append(found.high - found.difference - up)
    assert longer[0] == pytest.approx(0, abs=1e-6)
    assert longer[1] > 0.01


def test_differences_of_constant_metrics_are_covered_and_too_wide_by_no_more_than_stated() -> None:
    """The same devices on both sides share what the bound counts twice."""
    made, source = two_values(1.0, 2.0, constant=True), np.random.default_rng(SEED)
    both = _twice(made, source)
    found = differences(made, both[:, WINDOWS:], both[:, :WINDOWS])
    ends = np.array([(each.low, each.high) for each in found])
    check_at_least(covered(ends, 0.0), SEEDS, 0.95, label=f"seed {SEED}")
    rho = 0.1966
    anew = [each.standard_error / np.sqrt(1 + WINDOWS * rho / (1 - rho)) for each in found]
    values = np.array([each.difference for each in found])
    check_variance(values, float(np.mean(np.square(anew))), label=f"seed {SEED}")


def _twice(made: CompiledPlan, source: np.random.Generator) -> NDArray[np.int64]:
    """Return two runs of windows of the same devices, with their permanent responses."""
    p = made.metrics[0].mechanism.pairs()[:, 0]
    permanent = source.binomial(TRUE, p[1], SEEDS) + source.binomial(
        DEVICES - TRUE, 1 - p[1], SEEDS
    )
    kept = (p[0] + p[1] - 1) / (2 * p[1] - 1)
    shape, yes = (SEEDS, 2 * WINDOWS, 1), permanent[:, None, None]
    return source.binomial(yes, kept, shape) + source.binomial(DEVICES - yes, 1 - kept, shape)


@pytest.mark.parametrize("constant", [False, True])
def test_a_segment_is_compared_with_all_reports_of_which_it_is_a_part(constant: bool) -> None:
    made = two_values(1.0, *([2.0] if constant else []), constant=constant)
    source, own = np.random.default_rng(SEED), 300
    inside = reports_of(made, source, own)
    rest = reports_of(made, source, DEVICES - own)
    found = []
    for one, other in zip(inside, inside + rest, strict=True):
        segment = part_of(made, one, own, segment="os=linux")
        comparisons = compared([segment], [_all_of(part_of(made, other), segment)])
        found.append(next(each for each in comparisons if each.item == "v1"))
    ends = np.array([(each.low, each.high) for each in found])
    check_binomial(covered(ends, 0.0), SEEDS, 0.95, label=f"seed {SEED}")
    errors = np.array([each.standard_error for each in found])
    values = np.array([each.difference for each in found])
    check_variance(values, float(np.mean(errors**2)), label=f"seed {SEED}")


def _all_of(whole: RangePart, segment: RangePart) -> RangePart:
    """Return all reports of the windows of a segment, which are named as one of all reports."""
    return replace(whole, run=replace(whole.run, windows=segment.run.windows))


def test_a_small_segment_differs_from_all_by_its_part_of_how_it_differs_from_the_others() -> None:
    """Its own interval is that of a test, and that of the many others is normal."""
    made = plan(1, 10, category("colour", 2, 0.5))
    few, many = np.array([[13, 7]]), np.array([[300, 300]])
    windows = (few, 0, "os=linux"), (few + many, 0, ""), (few, 1, ""), (many, 2, "")
    segment, whole, alone, others = (
        together(made, [*rows_of(made, "colour", [table], first, name)])
        for table, first, name in windows
    )
    nested: Any = compared([segment], [_all_of(whole, segment)])
    for found, apart in zip(nested, compared([alone], [others]), strict=True):
        assert found.low == pytest.approx(600 / 620 * apart.low)
        assert found.high == pytest.approx(600 / 620 * apart.high)


def test_a_permanent_response_of_few_reports_is_compared_by_normal_intervals() -> None:
    """The interval of a test would be of noise that is drawn anew."""
    made, none = two_values(1.0, 2.0, constant=True), np.zeros((5, 1), dtype=np.int64)
    few, more = part_of(made, none, 20), part_of(made, none + 10, 20, first=5)
    segment, whole = part_of(made, none, 20, segment="os=linux"), part_of(made, none + 15, 30)
    for each in compared([few], [more]), compared([segment], [_all_of(whole, segment)]):
        found: Any = next(r for r in each if r.item == "v1")
        assert found.high - found.low > 3.9 * found.standard_error


def test_devices_of_different_panels_are_not_counted_as_the_same() -> None:
    """A device answers in one of 13 windows: no noise is shared, and the bound is exact."""
    made = two_values(1.0, 2.0, constant=True, panel=WINDOWS)
    # The first window of a cycle, so that all of them are in one.
    first = -2800 % WINDOWS
    fresh = two_values(1.0, constant=False)
    yes = reports_of(fresh, np.random.default_rng(SEED))
    one, same = part_of(made, yes[0], first=first), part_of(fresh, yes[0], first=first)
    errors = [[each.standard_error for each in part.records()] for part in (one, same)]
    assert errors[0] == pytest.approx(errors[1])
    across = part_of(made, yes[0], first=first + 1)
    assert next(across.records()).standard_error > next(one.records()).standard_error
