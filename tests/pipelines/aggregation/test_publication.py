"""No combination of a publication's figures depends on few reports of any level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from every_type import KINDS, counts_of, every_plan
from linear_forms import depends_on_few
from numpy.typing import NDArray
from plan_texts import plan_head

from mechanisms.base import Mechanism
from mechanisms.category.local_hashing import LocalHashing
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource
from pipelines.aggregation.breakdown import held_back, slices
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.publication import Publication
from pipelines.aggregation.result_rows import rows_of_windows
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

LADDER = "[{epsilon: 0.5}, {epsilon: 2, after: 1d}]"
METRICS = f"""\
  dark: {{type: boolean, window: 7d, ladder: {LADDER}}}
  colour: {{type: category, domain: [red, green], outside: other, window: 7d, ladder: {LADDER}}}
  mood: {{type: ordinal, values: [bad, good], missing: true, window: 7d, ladder: {LADDER}}}
  start: {{type: number, range: [0, 100], outside: clip, mechanism: threshold, window: 7d,
    ladder: {LADDER}}}
  bits: {{type: number, range: [0, 100], outside: clip,
    mechanism: {{sampled_bit: {{bits: 3}}}}, window: 7d, ladder: {LADDER}}}
"""
SEGMENTS = ("os: [a]", "os: [a, b]", "os: [a], app: [x]")


def segmented(segments: str, metrics: str = METRICS, **more: object) -> CompiledPlan:
    head = plan_head("levels", (30, 3000), segments=f"{{{segments}}}", **more)
    return parse_plan(head + metrics).compile()


PLAIN = segmented("")


Figures = Mapping[str, Any]


def rows_of(plan: CompiledPlan, name: str, counts: NDArray[np.int64]) -> list[Figures]:
    key = WindowKey(plan.fingerprint, plan.metric(name).index, 0)
    strings = {plan.fingerprint: {"rappor": ("home", "away")}}
    return rows_of_windows([(key, WindowCounts(1, counts))], Registry([plan]), strings)[1]


#: Columns of an estimate that come from payloads.
FIGURES = ("value", "standard_error", "low", "high", "display", "detection_floor", "p_value")


@pytest.mark.parametrize("name", KINDS)
def test_one_report_of_a_level_changes_no_figure(name):
    """With 120 others of the weaker level it was recovered exactly before, from any figure."""
    plan = every_plan(20)
    metric = plan.metric(name)
    many = counts_of(metric, 120, seed=1)
    if len(many) < 2:
        pytest.skip("one level")
    weak = np.zeros_like(many)
    weak[0] = many.sum(axis=0)
    published = []
    for seed in range(6):
        one = counts_of(metric, 1, seed=100 + seed)
        lone = np.zeros_like(many)
        lone[-1] = one.sum(axis=0)
        (row, *_), found = rows_of_windows(
            [(WindowKey(plan.fingerprint, metric.index, 0), WindowCounts(1, weak + lone))],
            Registry([plan]),
            {plan.fingerprint: {"rappor": ("home", "away")}},
        )
        assert row["reports_by_level"] == [120, *[0] * (len(many) - 2), 1]
        published.append([{k: each[k] for k in (*FIGURES, "reach", "n")} for each in found])
    assert all(each == published[0] for each in published)


def test_few_pairs_of_two_levels_change_no_alarm():
    """A chain of levels 2 and 3 was seen in the share of all successive levels before."""
    plan = every_plan(20)
    metric = plan.metric("constant")
    counts = counts_of(metric, 120, seed=1)
    found = []
    for equal in range(2):
        pairs = np.zeros((3, 6), dtype=np.int64)
        pairs[1, :2], pairs[2, 2:4] = (1000, 995), (1, equal)
        window = WindowCounts(1, np.hstack([counts, pairs]))
        key = WindowKey(plan.fingerprint, metric.index, 0)
        (row, *_), _ = rows_of_windows([(key, window)], Registry([plan]), {})
        found.append(row["alarms"])
    assert found[0]
    assert found[0] == found[1]
    for each in found[0]:
        seen = [each[name] for name in ("statistic", "expected", "threshold")]
        assert seen == [float(f"{figure:.4g}") for figure in seen]


def test_the_levels_of_a_row_are_those_that_its_estimate_is_made_of():
    (row, *_) = rows_of(PLAIN, "dark", counts_by_level(PLAIN, "dark", [120, 1], 3))
    assert (row["n"], row["reports_by_level"]) == (120, [120, 0])
    (row, *_) = rows_of(PLAIN, "dark", counts_by_level(PLAIN, "dark", [120, 20], 3))
    assert (row["n"], row["reports_by_level"]) == (140, [120, 20])
    (row, *_) = rows_of(PLAIN, "dark", counts_by_level(PLAIN, "dark", [19, 19], 3))
    assert row["withheld"] == "no level has more than 19 reports, the plan asks for 20"
    assert (row["value"], row["n"]) == (None, 38)


def counts_by_level(
    plan: CompiledPlan, name: str, reports: list[int], seed: int, says: int | None = None
) -> NDArray[np.int64]:
    mechanism = plan.metric(name).mechanism
    draw, source = np.random.default_rng(seed), SeededSource(seed)
    level = np.repeat(np.arange(len(reports)), reports)
    ids = draw.integers(0, 2**63, (len(level), 2), dtype=np.uint64)
    values: Any = draw.integers(0, 2, len(level))
    if plan.metric(name).type == "number":
        values = draw.random(len(level))
    payloads = mechanism.randomize(values, ids, ids, source)[np.arange(len(level)), level]
    if says is not None:
        payloads[:] = says
    return mechanism.accumulate(payloads, ids, ids, level, mechanism.levels)


def kept(made: Publication, held: Mapping[str, int]) -> tuple[Publication, dict[str, int]]:
    """Return a publication with the unions of the windows before it, and what it holds back."""
    found = held_back(made.plan.attributes, made.enough(), made.without, held)
    return Publication(made.plan, made.metric, made.counts, made.least, held=found), found


def forms_of(made: Publication, level: int) -> tuple[list[list[int]], list[int], int]:
    """Return what a publication's tables of a level are of: groups of reports by cell and coin."""
    mechanism, joins = made.metric.mechanism, made.metric.mechanism.joins
    answers = np.zeros((made.plan.cells, mechanism.strata), dtype=np.int64)
    for cell, matrix in made.counts.items():
        answers[cell] = mechanism.answers_by_stratum(matrix)[level]
    live = [(cell, coin) for cell, coin in np.argwhere(answers).tolist()]
    forms, finest = [], 1
    for each in (*slices(made.plan.attributes), *made.unions):
        if made.levels(each)[level]:
            assert not each.name or made.reports(each)[level] >= 20
            strata = made.strata(each)
            finest = max(finest, strata)
            (starts,) = (each for each in joins if len(each) == strata)
            place = np.searchsorted(starts, np.arange(mechanism.strata), side="right") - 1
            for number in range(strata):
                form = [int(cell in each.cells and place[coin] == number) for cell, coin in live]
                if any(form):
                    forms.append(form)
    return forms, [int(answers[each]) for each in live], finest


@pytest.mark.parametrize(("name", "segments"), [*product(("dark", "bits"), SEGMENTS)])
def test_no_combination_depends_on_few_reports_of_a_level(name, segments):
    """By brute force: every table is a sum of the reports by cell and coin.

    Each window keeps the unions of those before it.
    """
    plan = segmented(segments)
    metric, draw = plan.metric(name), np.random.default_rng(len(name) * 100 + len(segments))
    shown = hidden = strata = 0
    held: dict[str, int] = {}
    for trial in range(12 if name == "dark" else 8):
        largest = 60 if name == "dark" else 400
        reports = (draw.random((plan.cells, 2)) ** 3 * largest).astype(int)
        reports *= draw.random((plan.cells, 2)) < 0.8
        counts = {
            cell: counts_by_level(plan, name, by_level.tolist(), trial)
            for cell, by_level in enumerate(reports)
            if by_level.any()
        }
        if not counts:
            continue
        made, held = kept(Publication(plan, metric, counts, 20), held)
        for level in range(2):
            forms, weights, finest = forms_of(made, level)
            shown, strata = shown + bool(forms), strata + (finest > 1)
            hidden += sum(weights) > 0 and not forms
            if forms:
                assert not depends_on_few(forms, weights, 20), (reports.tolist(), level)
    assert shown > 5
    assert name == "dark" or strata > 2


def test_the_brute_force_finds_a_level_that_is_left_in():
    assert depends_on_few([[1, 1]], [120, 1], 20) is False
    assert depends_on_few([[1, 1], [1, 0]], [120, 1], 20)
    assert depends_on_few([[1, 1, 0], [0, 1, 1]], [120, 1, 120], 20) is False


SEPARABLE = f"""\
  city: {{type: category, domain: [{", ".join(f"c{each}" for each in range(8))}], outside: other,
    mechanism: {{local_hashing: {{buckets: 3}}}}, window: 7d, ladder: {LADDER}}}
  few: {{type: category, domain: [c0, c1, c2, c3], outside: other,
    mechanism: {{local_hashing: {{buckets: 3}}}}, window: 7d, ladder: {LADDER}}}
  host: {{type: string, bits: 3, hashes: 1, cohorts: 3, window: 7d, ladder: {LADDER}}}
"""


def separable_plan(segments: str, least: int) -> CompiledPlan:
    return segmented(segments, SEPARABLE, minimum_reports=least)


def figures_of(plan: CompiledPlan, name: str) -> list[list[list[int]]]:
    """Return the weights of what reports say in each figure, by coin: what a report adds to it.

    Less what the first answer adds, so that coins whose reports all add the same have zeros only.
    """
    mechanism: Any = plan.metric(name).mechanism
    if name == "host":
        # With enough candidates all bits of all cohorts follow.
        return [*np.eye(9, dtype=int).reshape(9, 3, 3).tolist()]
    values, coins = range(mechanism.domain_size), range(mechanism.strata)
    # The coin 0 has one bucket for all values: what its reports say is of no value.
    buckets = [[mechanism.bucket(value, coin) for coin in coins] for value in values]
    return [
        [[((own == y) - (own == 0)) * (coin > 0) for y in (1, 2)] for coin, own in enumerate(each)]
        for each in buckets
    ]


def fewest_touched(forms: Any, weights: list[int], least: int) -> bool:
    """Whether a combination of forms, by group of reports, depends on fewer than ``least``.

    A combination that is zero outside some columns is one that the projection onto the span of the
    forms leaves as it is: an eigenvector, with the eigenvalue 1, of its part with these columns.
    """
    matrix = np.array(forms, dtype=np.float64)
    matrix[:, [at for at, weight in enumerate(weights) if weight == 0]] = 0
    width = matrix.shape[2]
    _, values, basis = np.linalg.svd(matrix.reshape(len(forms), -1), full_matrices=False)
    basis = basis[values > 1e-9]
    projection = basis.T @ basis
    small = [at for at, weight in enumerate(weights) if 0 < weight < least]
    for size in range(1, least):
        few = [
            each for each in combinations(small, size) if sum(weights[at] for at in each) < least
        ]
        if few:
            at = (np.array(few)[:, :, None] * width + np.arange(width)).reshape(len(few), -1)
            parts = projection[at[:, :, None], at[:, None, :]]
            if np.linalg.eigvalsh(parts).max() > 1 - 1e-9:
                return True
    return False


def gives_a_group_away(name: str, segments: str, trials: int) -> tuple[int, int]:
    """Return how many publications of random counts there were, and how many were unsafe.

    Each keeps the unions of those before it.
    """
    plan = separable_plan(segments, 4)
    metric, draw = plan.metric(name), np.random.default_rng(len(name + segments))
    mechanism, figures = metric.mechanism, figures_of(plan, name)
    seen = unsafe = 0
    held: dict[str, int] = {}
    for _ in range(trials):
        mean = draw.choice((1, 4, 9)) * draw.random((plan.cells, 1)) ** 2
        reports = draw.poisson(mean, (plan.cells, mechanism.strata))
        counts = {}
        for cell, by_coin in enumerate(reports):
            table = np.zeros((2, mechanism.strata, mechanism.chain.cells), dtype=np.int64)
            table[1, :, -1] = by_coin
            counts[cell] = table.reshape(2, -1)
        made, held = kept(Publication(plan, metric, counts, 4), held)
        shown = [each for each in (*slices(plan.attributes), *made.unions) if made.levels(each)[1]]
        if shown:
            cells = [[cell in each.cells for cell in range(plan.cells)] for each in shown]
            forms = np.einsum("sc,fkw->sfckw", np.array(cells, dtype=int), figures)
            forms = forms.reshape(len(shown) * len(figures), reports.size, -1)
            seen, weights = seen + 1, reports.reshape(-1).tolist()
            unsafe += fewest_touched(forms.tolist(), weights, 4)
    return seen, unsafe


@pytest.mark.parametrize(
    ("name", "segments"),
    [*product(("city", "few", "host"), ("", "os: [a]")), ("host", "os: [a, b]")],
)
def test_no_combination_isolates_a_cohort_or_a_line_of_few_reports(name, segments):
    """By brute force, over every set of few reports with the same coin in a cell."""
    seen, unsafe = gives_a_group_away(name, segments, 60)
    assert (seen > 5, unsafe) == (True, 0)


@pytest.mark.parametrize("name", ["city", "few", "host"])
def test_the_brute_force_finds_cohorts_and_lines_that_are_not_looked_at(name, monkeypatch):
    monkeypatch.setattr(
        Mechanism, "separable", lambda self, answers: answers.sum(axis=-1, keepdims=True)
    )
    for kind in (LocalHashing, Rappor):
        monkeypatch.delattr(kind, "separable")
    assert gives_a_group_away(name, "", 40)[1] > 5


@pytest.mark.parametrize("name", ["city", "few", "host"])
@pytest.mark.parametrize(("short", "union"), [(2, ["os=a or b"]), (4, [])])
def test_values_with_few_reports_in_one_group_have_a_row_together(name, short, union):
    """Whatever they have in the others; the row has the reports of all of them."""
    plan = separable_plan("os: [a, b, c]", 4)
    metric = plan.metric(name)
    mechanism = metric.mechanism
    group = np.flatnonzero(mechanism.separable(np.eye(mechanism.strata, dtype=np.int64))[:, 0])
    counts = {}
    for cell, number in enumerate((10, 50, 90, 70)):
        table = np.zeros((2, mechanism.strata, mechanism.chain.cells), dtype=np.int64)
        table[1, :, -1] = number
        if cell == 0:
            table[1, group, -1] = [short, *[0] * (len(group) - 1)]
        counts[cell] = table.reshape(2, -1)
    made = Publication(plan, metric, counts, 4)
    assert [row.name for row in made.unions] == union
    # A slice that is withheld stays so once its window is complete: no reason may say until when.
    why = made.why(slices(plan.attributes)[1], np.full(2, 99))
    assert ("with too few reports in one of the" in str(why)) == bool(union)
    for row in made.unions:
        assert made.levels(row).tolist() == [False, True]
        assert made.table(row).tolist() == (counts[0] + counts[1]).tolist()


def exactly(row: Figures, p: list[Fraction], q: list[Fraction]) -> Iterator[int]:
    """Yield the last reports that agree with the value: an attack on levels of 120 and 1."""
    for ones in range(121):
        for last in range(2):
            total = (ones - 120 * q[0]) / (p[0] - q[0]) + (last - q[1]) / (p[1] - q[1])
            if math.isclose(float(total / 121), row["value"], abs_tol=1e-12):
                yield last


def test_the_attack_recovers_the_report_from_all_digits():
    """Shown once on counts that are published whole."""
    metric = PLAIN.metric("dark")
    counts = counts_by_level(PLAIN, "dark", [120, 1], 5)
    pairs = [metric.mechanism.exact(level)[0] for level in range(2)]
    p, q = [each.p for each in pairs], [each.q for each in pairs]
    items = [*metric.mechanism.estimate(counts, metric.context())]
    (found,) = exactly({"value": items[1].estimate.value}, p, q)
    assert found == counts[1, 1]
    row = rows_of(PLAIN, "dark", counts)[1]
    assert [*exactly(row, p, q)] == []


def test_figures_are_rounded_to_steps_that_do_not_depend_on_what_reports_say():
    seen, errors = set[float](), []
    for seed in range(40):
        row = rows_of(PLAIN, "dark", counts_by_level(PLAIN, "dark", [0, 1000], seed))[1]
        seen.add(row["value"])
        errors.append(row["standard_error"])
        assert row["low"] <= row["value"] <= row["high"]
        for name in ("value", "low", "high", "display", "detection_floor"):
            assert round(row[name] * 1000) == pytest.approx(row[name] * 1000, abs=1e-6)
    # The error is about .0134, and a tenth of it, .0013, is rounded down to .001.
    assert 0.0134 < min(errors) <= max(errors) < 0.0137
    assert len(seen) > 10


def test_rounding_widens_no_interval_by_more_than_a_fifth_of_an_error_and_narrows_none():
    metric = PLAIN.metric("start")
    counts = counts_by_level(PLAIN, "start", [0, 4000], 2)
    exact = next(iter(metric.mechanism.estimate(counts, metric.context(least=20)))).estimate
    row = rows_of(PLAIN, "start", counts)[0]
    low, high = exact.interval()
    # The strata of the row have twenty reports each, so that the two estimates differ a little.
    assert row["standard_error"] == pytest.approx(exact.standard_error, rel=0.1)
    assert row["high"] - row["low"] >= 0.9 * (high - low)
    assert row["high"] - row["low"] <= 1.1 * (high - low) + 0.2 * exact.standard_error


def test_a_mean_that_noise_carries_out_of_its_range_is_shown_at_the_end_of_it():
    for name, says, end in (("start", 0, 0.0), ("start", 1, 100.0), ("mood", 0, 1), ("mood", 1, 2)):
        alike = counts_by_level(PLAIN, name, [0, 400], 1, says)
        mean = next(each for each in rows_of(PLAIN, name, alike) if each["kind"] == "mean")
        assert (mean["display"], mean["value"] < end) == (end, says == 0)


def windows_of(segments: str, reports: list[list[int]], **more: object) -> list[Figures]:
    plan = segmented(segments, **more)
    given = [
        (
            WindowKey(plan.fingerprint, plan.metric("dark").index, 0, cell),
            WindowCounts(1, counts_by_level(plan, "dark", by_level, cell)),
        )
        for cell, by_level in enumerate(reports)
    ]
    windows, _ = rows_of_windows(given, Registry([plan]), {})
    return windows


def unions(segments: str, reports: list[list[int]], **more: object) -> list[Figures]:
    windows = windows_of(segments, reports, **more)
    return [row for row in windows if " or " in str(row["segment"])]


def test_a_row_says_why_its_estimate_is_withheld():
    windows = windows_of("os: [linux, mac, win]", [[0, 18], [0, 300], [0, 500], [0, 90]])
    said = {row["segment"]: row["withheld"] for row in windows if row["withheld"]}
    assert said == {
        "os=linux": "18 reports, the plan asks for 20",
        "os=other": "with it, the estimate of a segment with too few reports could be computed",
    }


def test_the_values_that_are_withheld_have_a_row_together():
    (row,) = unions("os: [linux, mac, win]", [[0, 18], [0, 300], [0, 500], [0, 90]])
    assert (row["segment"], row["n"], row["withheld"]) == ("os=linux or other", 108, None)
    # Three of few reports have enough together, so that no other value is hidden.
    (row,) = unions("os: [linux, mac, win]", [[0, 18], [0, 9], [0, 500], [0, 3]])
    assert (row["segment"], row["n"]) == ("os=linux or mac or other", 30)
    assert unions("os: [linux, mac, win]", [[0, 20], [0, 300], [0, 500], [0, 90]]) == []


def test_cells_of_two_segments_are_put_together_within_each_sum_but_never_arms():
    reports = [[0, n] for n in (300, 5, 200, 300, 300, 400, 250, 150, 90)]
    assert [row["segment"] for row in unions("os: [a, b], app: [x, y]", reports)] == [
        "os=a,app=y or other",
        "os=other,app=y or other",
        "os=a or other,app=y",
        "os=a or other,app=other",
    ]
    reports = [[0, 300], [0, 5], [0, 200], [0, 300], [0, 300], [0, 400]]
    experiment = "{name: trial, arms: [one, two], share: 1.0}"
    found = unions("os: [a, b]", reports, experiment=experiment)
    assert [row["segment"] for row in found] == ["os=a or b,trial=one", "os=a or b,trial=two"]
