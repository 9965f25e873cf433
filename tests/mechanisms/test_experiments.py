"""Differences between arms: exactly on few reports, at every look on many, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small import CASES, Case
from statistical import FALSE_FAILURE_RATE

from mechanisms.arrays import Floats, Words
from mechanisms.base import Mechanism
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate
from mechanisms.experiments import Scored, answer_scores, difference, evidence, sample_ratio
from mechanisms.items import Context, Method
from mechanisms.testing import SeededSource

SEED = 20_261_122
#: Estimates that are no averages over reports, or of several answers in one.
WITHOUT_SCORES = {"brr", "rappor", "sampled_bits", "sampled_vector", "sampled_hybrid", "split_bits"}
SCORES = answer_scores((0.75, 0.25))
ERROR = 0.05


def expected(
    truths: list[tuple[int, int]], reports: int, repeats: int, values: Floats = SCORES.values
) -> float:
    """Return the mixture's exact expectation: devices of some truths, by arm, report so often."""
    effect = sum(arm - first for first, arm in truths) / len(truths)
    total = 0.0
    for arms in product((0, 1), repeat=len(truths)):
        for outputs in product((0, 1), repeat=len(truths) * reports):
            counts, chance = np.zeros((2, 2)), 0.5 ** len(truths)
            for place, output in enumerate(outputs):
                device = place % len(truths)
                truth = truths[device][arms[device]]
                chance *= float((SCORES.no, SCORES.yes)[truth][output])
                counts[arms[device], output] += 1
            found = evidence(counts[:1], counts[1:], values, effect, repeats)
            total += chance * math.exp(float(found[0]))
    return total


@pytest.mark.parametrize("truths", [[(0, 0), (1, 1), (0, 0)], [(0, 1), (1, 0), (1, 1)]])
def test_the_mixture_is_expected_to_be_one_at_most(truths: list[tuple[int, int]]) -> None:
    assert expected(truths, 1, 1) <= 1 + 1e-12


def test_without_any_effect_it_is_one() -> None:
    assert expected([(0, 0), (1, 1), (1, 1)], 1, 1) == pytest.approx(1, abs=1e-12)


def test_an_effect_of_each_device_counts_though_effects_cancel_out() -> None:
    assert expected([(0, 1), (1, 0)], 1, 1) < 1 - 1e-6


def test_several_reports_of_a_device_are_covered_if_they_are_said() -> None:
    assert expected([(1, 1), (0, 1)], 2, 2) <= 1 + 1e-12
    assert expected([(1, 1)], 4, 4) <= 1 + 1e-12
    # Planted: four reports of a device, in the same arm, taken for those of four devices.
    assert expected([(1, 1)], 4, 1) > 1.01


def test_scores_that_are_not_debiased_are_found() -> None:
    # Planted: what is reported differs less between arms than what is true.
    assert expected([(0, 1), (0, 1), (0, 1)], 1, 1, np.array([0.0, 1.0])) > 1.003


def looks(seed: int, number: int) -> tuple[Floats, Floats, Floats]:
    """Return counts at every fourth report, and effects so far: shares fall, the effect turns."""
    random = np.random.default_rng([SEED, seed])
    shares = np.linspace(0.6, 0.2, number)
    effects = np.where(np.arange(number) < number // 3, 0.2, -0.1)
    uniform = random.random(number)
    truths = np.stack((uniform < shares, uniform < shares + effects)).astype(np.int64)
    arms = random.random(number) < 0.5
    bits = GeneralizedRandomizedResponse(2.0, 2).report(
        np.where(arms, truths[1], truths[0]), SeededSource(seed)
    )[:, 0]
    each = [
        np.cumsum(np.stack((mine & (bits == 0), mine & (bits == 1)), axis=1), axis=0)
        for mine in (~arms, arms)
    ]
    effects_so_far = np.cumsum(truths[1] - truths[0]) / np.arange(1, number + 1)
    return each[0][3::4], each[1][3::4], effects_so_far[3::4]


def one_look(first: Floats, arm: Floats, values: Floats, effects: Floats) -> bool:
    """Return whether a normal interval of 95 % for one look is ever wrong, from report 100 on."""
    means, variances = [], []
    for counts in (first[24:], arm[24:]):
        reports = counts.sum(axis=1)
        means.append(counts @ values / reports)
        variances.append((counts @ values**2 / reports - means[-1] ** 2) / reports)
    distance = np.abs(means[1] - means[0] - effects[24:])
    return bool((distance > 1.96 * np.sqrt(variances[0] + variances[1])).any())


def always(first: Floats, arm: Floats, values: Floats, effects: Floats) -> bool:
    return bool(evidence(first, arm, values, effects).max() >= math.log(1 / ERROR))


@pytest.mark.parametrize(("method", "holds"), [(always, True), (one_look, False)])
def test_looking_at_every_report(method: Callable[..., bool], holds: bool) -> None:
    scores = GeneralizedRandomizedResponse(2.0, 2).scores(0)
    assert scores is not None
    seeds = 120
    wrong = 0
    for seed in range(seeds):
        first, arm, effects = looks(seed, 1200)
        wrong += method(first, arm, scores.values, effects)
    most = stats.binom.isf(FALSE_FAILURE_RATE, seeds, ERROR)
    assert (wrong <= most) == holds, f"{wrong} of {seeds} wrong, seeds from {SEED}"


def pair(first: list[int], arm: list[int]) -> tuple[Scored, Scored]:
    one, other = (Scored("share", "yes", SCORES.values, np.array(each)) for each in (first, arm))
    return one, other


def test_the_interval_is_where_there_is_no_evidence() -> None:
    first, arm = pair([5200, 4800], [5000, 5600])
    found = difference(first, arm, repeats=2)
    at = evidence(
        [first.counts] * 3, [arm.counts] * 3, SCORES.values, [found.low, 0.0, found.high], 2
    )
    most = math.log(2 / ERROR)
    assert at[[0, 2]] == pytest.approx([most, most], abs=1e-6)
    assert found.p_value == pytest.approx(min(1.0, 2 * math.exp(-at[1])))
    assert found.low < found.value < found.high
    turned = difference(arm, first, repeats=2)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_numbers_are_in_their_unit() -> None:
    counts = np.array([5000, 6000]), np.array([6000, 5000])
    unit, scaled = (
        difference(*(Scored("mean", "", SCORES.values, each, *ends) for each in counts))
        for ends in (("", 0.0, 1.0), ("ms", 100.0, 600.0))
    )
    assert scaled[:3] == pytest.approx([500 * each for each in unit[:3]])


def test_nothing_is_known_of_an_empty_arm() -> None:
    found = difference(*pair([0, 0], [0, 0]))
    assert math.isnan(found.value)
    assert found[1:] == (-1.0, 1.0, 1.0)
    assert math.isnan(difference(*pair([9, 9], [0, 0])).value)


def test_arms_of_which_all_and_none_say_yes_are_apart_whatever_the_prior() -> None:
    found = difference(*pair([10**8, 3 * 10**8], [3 * 10**8, 10**8]))
    assert found.value == found.low == -1
    assert -1 < found.high < -0.999


def test_an_effect_that_cannot_be_leaves_an_empty_interval() -> None:
    # All of one arm report yes, all of the other no: more than a share of one.
    found = difference(*pair([0, 10**6], [10**6, 0]))
    assert found.low == found.high == pytest.approx(-1, abs=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"error": 0.0}, {"error": 1.0}, {"error": math.nan}, {"repeats": 0}]
)
def test_wrong_arguments_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        difference(*pair([1, 1], [1, 1]), **wrong)  # type: ignore[arg-type]


def test_other_estimates_are_not_compared() -> None:
    first, _ = pair([1, 1], [1, 1])
    with pytest.raises(ParameterError, match="the same estimate"):
        difference(first, Scored("share", "no", SCORES.values, np.array([1, 1])))


@pytest.mark.parametrize(
    "case", [case for name, case in CASES.items() if name.endswith("three")], ids=str
)
def test_scores_average_to_the_estimate(case: Case) -> None:
    mechanism = case.build()
    size = getattr(mechanism, "domain_size", 0)
    context = Context(labels=[str(place) for place in range(size)], range=(2.0, 6.0))
    random = np.random.default_rng(SEED)
    ids = random.integers(0, 2**63, (2000, 2), dtype=np.uint64)
    values = mechanism.some_inputs(4, SeededSource(SEED))
    drawn = [values[place] for place in random.integers(0, len(values), len(ids))]
    some = drawn
    if not isinstance(drawn[0], str | bytes | tuple | list):
        some = np.array([math.nan if value is None else value for value in drawn])
    scored = list(_scored_of_one_level(mechanism, some, ids, context))
    scores = mechanism.scores(1)
    biased = mechanism.name == "permute_and_flip"
    assert bool(mechanism.why_not_compared) == (scores is None or biased)
    if mechanism.name in WITHOUT_SCORES or getattr(mechanism, "missing", False):
        assert scores is None
        assert not scored
        return
    assert scores is not None
    assert scored
    assert scores.no @ scores.values == pytest.approx(0, abs=1e-9)
    assert scores.yes @ scores.values == pytest.approx(1, abs=1e-9)
    for mine, estimate, method in scored:
        assert method in (Method.UNBIASED, Method.BIASED)
        assert mine.reports == 2000
        # Strata are put together by their weights, and here by their numbers of reports.
        most = 4 * estimate.standard_error if mechanism.strata > 1 and mine.kind == "mean" else 1e-9
        assert mine.mean == pytest.approx(estimate.value, abs=most)


def _scored_of_one_level(
    mechanism: Mechanism, values: Any, ids: Words, context: Context
) -> Iterator[tuple[Scored, Estimate, Method]]:
    """Yield what is scored at the second of three levels, beside the estimates of that level."""
    payloads = mechanism.randomize(values, ids, ids, SeededSource(SEED))[:, 1]
    level = np.full(len(ids), 1)
    counts = mechanism.accumulate(payloads, ids, ids, level, mechanism.levels)
    scored = list(mechanism.scored(counts[1], 1, context))
    if scored:
        items = {(item.kind, item.item): item for item in mechanism.estimate(counts, context)}
        for each in scored:
            item = items[each.kind, each.item]
            yield each, item.estimate, item.method


def test_the_sample_ratio_is_seldom_wrong_at_any_look() -> None:
    """The exact probability that a fair coin is ever called unfair, and one of 0.3."""
    chances = {}
    for share in (0.5, 0.3):
        open_ = {0: 1.0}
        for n in range(1, 301):
            after: dict[int, float] = {}
            for heads, chance in open_.items():
                for more, probability in ((1, share), (0, 1 - share)):
                    after[heads + more] = after.get(heads + more, 0.0) + chance * probability
            open_ = {
                heads: chance
                for heads, chance in after.items()
                if sample_ratio([heads, n - heads]) > 0.01
            }
        chances[share] = 1 - sum(open_.values())
    assert chances[0.5] <= 0.01
    assert chances[0.3] > 0.99


def test_the_sample_ratio_of_several_arms_and_reports() -> None:
    assert sample_ratio([1000, 1000, 1000]) == 1
    assert sample_ratio([1000, 1000, 1500]) < 1e-9
    # Twice as many reports, two of a device: as likely but for the union of the two.
    once, twice = sample_ratio([1000, 1200]), sample_ratio([2000, 2400], repeats=2)
    assert twice == pytest.approx(2 * once)
    with pytest.raises(ParameterError, match="two arms"):
        sample_ratio([5])
