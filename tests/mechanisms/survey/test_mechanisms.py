"""Surveys: certified levels, designs at every level, unbiased shares over mixed levels."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from statistical import check_at_least, check_normal, check_variance

from mechanisms.errors import ParameterError, SottoError, UnrelatedLevelsError
from mechanisms.estimate import SCORE_REPORTS, ShareRegion, two_sided
from mechanisms.levels import GRAINS
from mechanisms.registry import build
from mechanisms.survey.design import SurveyDesign, cards_of, estimate_share
from mechanisms.survey.mechanisms import Christofides, SurveyMechanism, Warner
from mechanisms.testing import SeededSource

SEED = 28284271
LADDERS = {"one": (1_000_000,), "three": (300_000, 700_000, 1_000_000), "wide": (1, 1_000_000)}
SPECS: dict[str, dict[str, Any]] = {
    "warner": {"name": "warner"},
    "simmons": {"name": "simmons", "unrelated": 50},
    "simmons, skewed": {"name": "simmons", "unrelated": 7},
    "christofides": {"name": "christofides", "cards": cards_of(1.0, 0.01)},
    "christofides, five": {"name": "christofides", "cards": (10, 13, 12, 25, 25)},
}
every_ladder = pytest.mark.parametrize("levels", LADDERS.values(), ids=LADDERS.keys())
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def made(spec: dict[str, Any], levels: tuple[int, ...] = LADDERS["three"]) -> SurveyMechanism:
    ladder = build(spec, levels, "smokes")
    assert isinstance(ladder, SurveyMechanism)
    assert ladder.name == spec["name"]
    return ladder


@every_ladder
@pytest.mark.parametrize("percent", [1, 30, 50, 99])
def test_every_level_of_simmons_is_simmons(percent: int, levels: tuple[int, ...]) -> None:
    ladder, y = made({"name": "simmons", "unrelated": percent}, levels), Fraction(percent, 100)
    for level in range(ladder.levels):
        (_, b), (_, a) = ladder.chain.channel(level).rows
        p = a - b
        assert abs(b - (1 - p) * y) < Fraction(8, GRAINS)


@every_ladder
def test_every_level_of_christofides_is_christofides(levels: tuple[int, ...]) -> None:
    ladder = made(SPECS["christofides, five"], levels)
    for level in range(ladder.levels):
        no, yes = ladder.chain.channel(level).rows
        for k, (one, other) in enumerate(zip(no, reversed(yes), strict=True)):
            assert abs(one - other) < Fraction(8, GRAINS), k


@every_spec
@every_ladder
def test_every_answer_contributes_the_truth_on_average(
    spec: dict[str, Any], levels: tuple[int, ...]
) -> None:
    ladder = made(spec, levels)
    for level in range(ladder.levels):
        part = ladder.contributions[level]
        for truth, (row, variance) in enumerate(
            zip(ladder.chain.channel(level).rows, (part.no, part.yes), strict=True)
        ):
            mean = sum(p * Fraction(s) for p, s in zip(row, part.scores, strict=True))
            square = sum(p * Fraction(s) ** 2 for p, s in zip(row, part.scores, strict=True))
            scale = max(map(abs, part.scores))
            assert abs(mean - truth) <= Fraction(1e-14) * Fraction(scale)
            assert float(square - mean**2) == pytest.approx(variance, rel=1e-9)


def collected(ladder: SurveyMechanism, truths: np.ndarray, levels: np.ndarray, seed: int) -> Any:
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
        estimate = ladder.share(table)
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
    ladder, covered, trials = made(spec, (3_000_000,)), 0, 120
    if spec["name"] == "christofides":
        ladder = made({**spec, "cards": (5, 10, 85)}, (3_000_000,))
    truths, levels = np.array([1] * yes + [0] * (60 - yes)), np.zeros(60, dtype=np.int64)
    for repeat in range(trials):
        low, high = ladder.share(collected(ladder, truths, levels, SEED + repeat)).interval(0.95)
        covered += low <= yes / 60 <= high
    check_at_least(covered, trials, 0.94, label=SEED)


def test_nothing_is_estimated_from_nothing() -> None:
    estimate = made(SPECS["warner"]).share(np.zeros((3, 2), dtype=np.int64))
    assert estimate.n == 0
    assert estimate.standard_error == np.inf
    with pytest.raises(ParameterError, match="shape"):
        made(SPECS["warner"]).share([[1, 2]])
    half = (Fraction(1, 2), Fraction(1, 2))
    with pytest.raises(ParameterError, match="mean answer"):
        SurveyDesign(half, half, (0, 1))


def test_cards_that_cost_more_than_the_last_level_are_refused() -> None:
    with pytest.raises(ParameterError, match="cost"):
        Christofides(1.0, (1, 1, 3))
    with pytest.raises(UnrelatedLevelsError, match="cards"):
        Christofides((0.39, 0.4), (40, 1, 59))
    assert Christofides(0.4, (40, 1, 59)).certified(0) == 388_658


def test_parameters_outside_their_range_are_refused() -> None:
    for percent in (0, 100, -1, True):
        with pytest.raises(SottoError):
            build({"name": "simmons", "unrelated": percent}, (1_000_000,), "smokes")
    for cards in ((), (1,), (1, 5, 1), (0, 1, 2), (1, True, 3), (1, 2.0, 3), tuple([1] * 1025)):
        with pytest.raises(ParameterError, match="cards"):
            build({"name": "christofides", "cards": cards}, (5_000_000,), "smokes")


def test_what_is_left_out_is_chosen() -> None:
    assert Christofides((0.5, 1.0)).cards == cards_of(1.0, 0.01)
    assert Warner(1.0).design().epsilon == pytest.approx(1, rel=1e-12)


#: Answers 0, 1 and 2; of a no and of a yes. Their means are 1/2 and 3/2, their variances 1/2, 1/4.
UNLIKE = SurveyDesign(
    (Fraction(5, 8), Fraction(1, 4), Fraction(1, 8)),
    (Fraction(0), Fraction(1, 2), Fraction(1, 2)),
    (0, 1, 2),
).contribution


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
