"""Ladders of surveys: certified rungs, designs at every rung, unbiased shares over mixed levels."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from statistical import check_at_least, check_counts, check_normal, check_variance

from mechanisms.errors import ParameterError, SottoError, UnrelatedLevelsError
from mechanisms.estimate import SCORE_REPORTS, ShareRegion, two_sided
from mechanisms.exact import loss_micro
from mechanisms.levels import GRAINS
from mechanisms.registry import build
from mechanisms.survey.christofides import cards_of
from mechanisms.survey.estimates import (
    contribution,
    estimate_share,
    of_population,
    survey_share,
)
from mechanisms.survey.ladders import SurveyLadder, christofides_ladder
from mechanisms.testing import SeededSource

SEED = 28284271
RUNGS = {"one": (1_000_000,), "three": (300_000, 700_000, 1_000_000), "wide": (1, 1_000_000)}
SPECS: dict[str, dict[str, Any]] = {
    "warner": {"name": "warner"},
    "simmons": {"name": "simmons", "unrelated": 50},
    "simmons, skewed": {"name": "simmons", "unrelated": 7},
    "christofides": {"name": "christofides", "cards": cards_of(1.0, 0.01)},
    "christofides, five": {"name": "christofides", "cards": (10, 13, 12, 25, 25)},
}
every_rungs = pytest.mark.parametrize("rungs", RUNGS.values(), ids=RUNGS.keys())
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def made(spec: dict[str, Any], rungs: tuple[int, ...] = RUNGS["three"]) -> SurveyLadder:
    ladder = build(spec, rungs, "smokes")
    assert isinstance(ladder, SurveyLadder)
    assert ladder.name == spec["name"]
    return ladder


@every_spec
@every_rungs
def test_rungs_cost_what_is_certified(spec: dict[str, Any], rungs: tuple[int, ...]) -> None:
    ladder = made(spec, rungs)
    for level in range(ladder.levels):
        no, yes = ladder.rows(level)
        assert sum(no) == sum(yes) == 1
        worst = max(max(a / b, b / a) for a, b in zip(no, yes, strict=True))
        assert loss_micro(worst) == ladder.certified(level) <= ladder.nominal(level)
        if spec["name"] != "christofides" or level < ladder.levels - 1:
            assert ladder.certified(level) == ladder.nominal(level)


@every_rungs
@pytest.mark.parametrize("percent", [1, 30, 50, 99])
def test_every_rung_of_simmons_is_simmons(percent: int, rungs: tuple[int, ...]) -> None:
    ladder, y = made({"name": "simmons", "unrelated": percent}, rungs), Fraction(percent, 100)
    for level in range(ladder.levels):
        (_, b), (_, a) = ladder.rows(level)
        p = a - b
        assert abs(b - (1 - p) * y) < Fraction(8, GRAINS)


@every_rungs
def test_every_rung_of_christofides_is_christofides(rungs: tuple[int, ...]) -> None:
    ladder = made(SPECS["christofides, five"], rungs)
    for level in range(ladder.levels):
        no, yes = ladder.rows(level)
        for k, (one, other) in enumerate(zip(no, reversed(yes), strict=True)):
            assert abs(one - other) < Fraction(8, GRAINS), k


@every_spec
@every_rungs
def test_every_answer_contributes_the_truth_on_average(
    spec: dict[str, Any], rungs: tuple[int, ...]
) -> None:
    ladder = made(spec, rungs)
    for level in range(ladder.levels):
        part = contribution(ladder.rows(level), ladder.answers)
        for truth, (row, variance) in enumerate(
            zip(ladder.rows(level), (part.no, part.yes), strict=True)
        ):
            mean = sum(p * Fraction(s) for p, s in zip(row, part.scores, strict=True))
            square = sum(p * Fraction(s) ** 2 for p, s in zip(row, part.scores, strict=True))
            scale = max(map(abs, part.scores))
            assert abs(mean - truth) <= Fraction(1e-14) * Fraction(scale)
            assert float(square - mean**2) == pytest.approx(variance, rel=1e-9)


@every_spec
def test_draws_have_the_exact_law(spec: dict[str, Any]) -> None:
    ladder, n = made(spec), 20_000
    for truth in (0, 1):
        ids = np.zeros((n, 2), dtype=np.uint64)
        drawn = ladder.randomize([truth] * n, ids, ids, SeededSource(SEED))
        source = SeededSource(SEED + 1)
        one = [ladder.draw(truth, bytes(16), bytes(16), source) for _ in range(3_000)]
        for level in range(ladder.levels):
            row = ladder.rows(level)[truth]
            check_counts(np.bincount(drawn[:, level, 0], minlength=len(row)), row, label=SEED)
            seen = Counter(payloads[level][0] for payloads in one)
            check_counts([seen[answer] for answer in range(len(row))], row, label=SEED)


@every_spec
def test_payloads_and_counts(spec: dict[str, Any]) -> None:
    ladder, n = made(spec), 90
    truths, groups = np.arange(n) % 2, np.arange(n) % 3
    ids = np.zeros((n, 2), dtype=np.uint64)
    drawn = ladder.randomize(truths, ids, ids, SeededSource(SEED))
    assert drawn.shape == (n, 3, 1)
    assert ladder.valid(drawn[:, 0]).all()
    answers = len(ladder.answers)
    assert ladder.valid(np.array([[answers - 1], [answers]], np.uint8)).tolist() == [True, False]
    counts = ladder.accumulate(drawn[:, 1], ids, ids, groups, 3)
    expected = [np.bincount(drawn[groups == g, 1, 0], minlength=answers) for g in range(3)]
    np.testing.assert_array_equal(counts, expected)
    forward = ladder.forward(1, bytes(drawn[0, 0]), 1, bytes(16), bytes(16), SeededSource(SEED))
    assert forward[0] < answers
    assert ladder == made(spec)
    assert hash(ladder) == hash(made(spec))


def collected(ladder: SurveyLadder, truths: np.ndarray, levels: np.ndarray, seed: int) -> Any:
    """Counts by level of answers to true values at chosen levels."""
    n = len(truths)
    ids = np.zeros((n, 2), dtype=np.uint64)
    payloads = ladder.randomize(truths, ids, ids, SeededSource(seed))
    newest = payloads[np.arange(n), levels]
    return ladder.accumulate(newest, ids, ids, levels, ladder.levels)


@every_spec
def test_shares_over_mixed_levels_are_unbiased(spec: dict[str, Any]) -> None:
    """The levels depend on the values; the true share is 0.3 of the whole."""
    ladder, n, errors = made(spec), 1_000, []
    truths = np.array([1] * 300 + [0] * 700)
    levels = np.array([2] * 200 + [0] * 100 + [0] * 300 + [1] * 400)
    for repeat in range(150):
        table = collected(ladder, truths, levels, SEED + repeat)
        estimate = survey_share(ladder, table)
        assert estimate.reports_by_level == (400, 400, 200)
        errors.append((estimate.value - 0.3) / estimate.standard_error)
    assert estimate.n == n
    check_normal(np.mean(errors), 0, 1 / np.sqrt(len(errors)), label=SEED)
    check_variance(np.array(errors), 1.0, label=SEED)
    biased = [error + 1 for error in errors]
    with pytest.raises(AssertionError):
        check_normal(np.mean(biased), 0, 1 / np.sqrt(len(errors)), label=SEED)


@every_spec
@pytest.mark.parametrize("yes", [0, 5, 60])
def test_intervals_of_few_reports_cover(spec: dict[str, Any], yes: int) -> None:
    ladder, covered, trials = made(spec, (3_000_000,)), 0, 300
    if spec["name"] == "christofides":
        ladder = made({**spec, "cards": (5, 10, 85)}, (3_000_000,))
    truths, levels = np.array([1] * yes + [0] * (60 - yes)), np.zeros(60, dtype=np.int64)
    for repeat in range(trials):
        low, high = survey_share(ladder, collected(ladder, truths, levels, SEED + repeat)).interval(
            0.95
        )
        covered += low <= yes / 60 <= high
    check_at_least(covered, trials, 0.94, label=SEED)


def test_nothing_is_estimated_from_nothing() -> None:
    estimate = survey_share(made(SPECS["warner"]), np.zeros((3, 2), dtype=np.int64))
    assert estimate.n == 0
    assert estimate.standard_error == np.inf
    with pytest.raises(ParameterError, match="shape"):
        survey_share(made(SPECS["warner"]), [[1, 2]])
    half = (Fraction(1, 2), Fraction(1, 2))
    with pytest.raises(ParameterError, match="mean answer"):
        contribution((half, half), (0, 1))


def test_a_share_of_the_population_is_less_sure_than_that_of_the_sample() -> None:
    """Samples of 400 of 1000, each drawn and randomized anew."""
    ladder, generator, errors = made(SPECS["warner"]), np.random.default_rng(SEED), []
    people, levels = np.array([1] * 300 + [0] * 700), np.full(400, 2)
    for repeat in range(300):
        sample = generator.choice(people, size=400, replace=False)
        estimate = survey_share(ladder, collected(ladder, sample, levels, SEED + repeat))
        wider = of_population(estimate, 1000)
        assert wider.standard_error > estimate.standard_error
        assert of_population(estimate, 400).standard_error == estimate.standard_error
        errors.append((wider.value - 0.3) / wider.standard_error)
    check_normal(np.mean(errors), 0, 1 / np.sqrt(len(errors)), label=SEED)
    check_variance(np.array(errors), 1.0, label=SEED)
    with pytest.raises(ParameterError, match="population"):
        of_population(estimate, 399)


def test_warner_is_the_most_precise_at_an_epsilon() -> None:
    counts = [[0] * 2, [0] * 2, [300, 700]]
    best = survey_share(made(SPECS["warner"]), counts).standard_error
    assert survey_share(made(SPECS["simmons"]), counts).standard_error == pytest.approx(best)
    skewed = made(SPECS["simmons, skewed"])
    assert (
        contribution(skewed.rows(2), (0, 1)).no
        > contribution(made(SPECS["warner"]).rows(2), (0, 1)).no
    )


def test_a_debias_left_out_is_noticed() -> None:
    ladder, n = made(SPECS["warner"]), 20_000
    truths = np.array([1] * (n // 10) + [0] * (n - n // 10))
    table = collected(ladder, truths, np.full(n, 2), SEED)
    error = survey_share(ladder, table).standard_error
    check_normal(survey_share(ladder, table).value, 0.1, error, label=SEED)
    with pytest.raises(AssertionError):
        check_normal(table[2, 1] / n, 0.1, error, label=SEED)


def test_cards_that_cost_more_than_the_last_rung_are_refused() -> None:
    with pytest.raises(ParameterError, match="cost"):
        christofides_ladder((1, 1, 3), (1_000_000,), "smokes")
    with pytest.raises(UnrelatedLevelsError, match="cards"):
        christofides_ladder((40, 1, 59), (390_000, 400_000), "smokes")
    survey = christofides_ladder((40, 1, 59), (400_000,), "smokes")
    assert survey.certified(0) == 388_658


def test_parameters_outside_their_range_are_refused() -> None:
    for percent in (0, 100, -1, True):
        with pytest.raises(SottoError):
            build({"name": "simmons", "unrelated": percent}, (1_000_000,), "smokes")
    for cards in ((), (1,), (1, 5, 1), (0, 1, 2), (1, True, 3), (1, 2.0, 3), tuple([1] * 1025)):
        with pytest.raises(ParameterError, match="cards"):
            christofides_ladder(cards, (5_000_000,), "smokes")  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        made(SPECS["warner"]).draw(2, bytes(16), bytes(16), SeededSource(SEED))


#: Answers 0, 1 and 2; of a no and of a yes. Their means are 1/2 and 3/2, their variances 1/2, 1/4.
UNLIKE = contribution(
    (
        (Fraction(5, 8), Fraction(1, 4), Fraction(1, 8)),
        (Fraction(0), Fraction(1, 2), Fraction(1, 2)),
    ),
    (0, 1, 2),
)


def test_the_error_takes_the_true_shares_from_where_they_can_be() -> None:
    assert UNLIKE == ((-0.5, 0.5, 1.5), 0.5, 0.25)
    for counts, value, variance in (
        ([1000, 0, 0], -0.5, 0.5),
        ([0, 0, 1000], 1.5, 0.25),
        ([500, 0, 500], 0.5, 0.375),
    ):
        estimate = estimate_share([UNLIKE], [counts])
        assert estimate.value == value
        assert estimate.standard_error == pytest.approx((variance / 1000) ** 0.5)


def test_an_interval_of_few_answers_inverts_a_test_whose_step_is_that_of_a_report() -> None:
    few, many = (estimate_share([UNLIKE], [[0, n, 0]]) for n in (SCORE_REPORTS - 1, SCORE_REPORTS))
    assert many.region is None
    assert isinstance(few.region, ShareRegion)
    assert few.region.noise.step == 2.0
    low, high = few.interval(0.95)
    for end in (low, high):
        distance = abs(0.5 - end) - 1 / few.n
        error = ((0.5 - 0.25 * end) / few.n) ** 0.5
        assert distance == pytest.approx(two_sided(0.95) * error, rel=1e-6)


@pytest.mark.parametrize("counts", [[300, 0, 0], [0, 0, 300], [150, 0, 150]])
@pytest.mark.parametrize("population", [300, 301, 450, 10**6])
def test_a_sample_of_a_population_varies_by_the_sampling_too(
    counts: list[int], population: int
) -> None:
    sample = estimate_share([UNLIKE], [counts])
    share = min(max(sample.value, 0), 1)
    sampling = share * (1 - share) / 300 * (population - 300) / (population - 1)
    wider = of_population(sample, population)
    assert wider.standard_error**2 == pytest.approx(sample.standard_error**2 + sampling)
    small = of_population(estimate_share([UNLIKE], [[50, 0, 50]]), 400)
    assert small.region is None
    assert small.detection_floor is None
