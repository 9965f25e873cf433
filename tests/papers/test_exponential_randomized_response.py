"""Exponential randomized response as published, and everything that is wrong with it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from statistical import check_counts

from mechanisms.errors import ParameterError
from mechanisms.testing import SeededSource
from papers.exponential_randomized_response import (
    ExponentialRandomizedResponse,
    disclosure_risk,
    staircase,
    worst_case_errors,
)
from papers.selection import expected_error, permute_and_flip_pmf

SEED = 22360679


WORST = {
    (0.1, 0.1): (0.160, 0.232, 0.314),
    (0.1, 1.0): (0.922, 1.056, 1.176),
    (0.5, 0.1): (0.758, 0.975, 1.150),
    (0.5, 1.0): (1.571, 1.900, 2.176),
    (0.9, 0.1): (2.378, 2.728, 2.986),
    (0.9, 1.0): (3.286, 3.714, 4.076),
}


@pytest.mark.parametrize(("p", "epsilon"), WORST)
def test_the_worst_losses_of_small_domains(p: float, epsilon: float) -> None:
    published = ExponentialRandomizedResponse(p, epsilon)
    for items, known in zip((2, 3, 4), WORST[p, epsilon], strict=True):
        worst = published.worst_loss(items, 6)
        assert abs(worst.loss - known) <= 6e-4
        assert worst.loss > epsilon or (p, items) == (0.1, 2)
        assert math.isclose(published.loss(worst.scores, worst.others), worst.loss)
        assert max(abs(a - b) for a, b in zip(worst.scores, worst.others, strict=True)) <= 1


def test_the_loss_grows_along_a_staircase() -> None:
    published = ExponentialRandomizedResponse(0.5, 1.0)
    known = {2: 1.18, 10: 3.40, 20: 7.67, 50: 21.7, 100: 46.1, 200: 95.4}
    for items, loss in known.items():
        assert abs(published.loss(*staircase(items)) / loss - 1) < 3e-3
    assert abs(published.loss(*staircase(2_000)) / 1_000 - 1) < 0.01
    tiny = ExponentialRandomizedResponse(1e-6, 1.0)
    assert (published.certified_epsilon, tiny.certified_epsilon) == (math.inf, math.inf)
    assert ExponentialRandomizedResponse(0.0, 1.0).certified_epsilon == 1.0
    assert min(n for n in range(2, 60) if tiny.loss(*staircase(n)) > 1) == 35


def test_more_score_can_mean_less_probability() -> None:
    """Lemma 2 says that it cannot: here the score of a competitor falls."""
    published = ExponentialRandomizedResponse(0.5, 0.1)
    before, after = published.pmf([10, 10, 8])[0], published.pmf([10, 9, 8])[0]
    assert (round(before, 4), round(after, 4)) == (0.4221, 0.3417)


def test_the_disclosure_risk_exceeds_its_bound() -> None:
    published = ExponentialRandomizedResponse(0.9, 0.1)
    risk = disclosure_risk([published.pmf([2, 0]), published.pmf([1, 0])])
    assert (round(risk, 3), round(1 / (1 + math.exp(-0.1)), 3)) == (0.913, 0.525)


def test_algorithm_3_may_never_end() -> None:
    published = ExponentialRandomizedResponse(1.0, 0.5)
    assert published.endless([5, 4, 1]) == 0.25
    assert math.isclose(math.fsum(published.algorithm_pmf([5, 4, 1])), 0.75)
    assert published.endless([5, 1]) == 0
    assert published.algorithm_pmf([5, 1]) == [1, 0]
    assert published.loss([5, 1], [4, 3]) == math.inf


def test_the_sampler_is_algorithm_3() -> None:
    published, scores, source = (
        ExponentialRandomizedResponse(0.5, 0.1),
        [5, 4, 1],
        SeededSource(SEED),
    )
    seen = Counter(published.select(scores, source) for _ in range(30_000))
    counts = [seen[place] for place in range(3)]
    check_counts(counts, published.algorithm_pmf(scores), label=SEED)
    with pytest.raises(AssertionError):
        check_counts(counts, published.pmf(scores), label=SEED)
    with pytest.raises(ParameterError, match="below 1"):
        ExponentialRandomizedResponse(1.0, 0.1).select(scores, source)


@pytest.mark.parametrize("n", [1, 2, 5, 40, 1_000])
@pytest.mark.parametrize("v", [0.0, -1e-9, -0.5, -1.0, -1.0000001, -3.0, -60.0, -5_000.0])
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 20.0])
def test_closed_forms_are_the_means_of_the_laws(n: int, v: float, epsilon: float) -> None:
    scores, p = [v] * (n - 1) + [0.0], 0.3
    errors = worst_case_errors(n, v, p, epsilon)
    published = ExponentialRandomizedResponse(p, epsilon)
    flips = expected_error(scores, permute_and_flip_pmf(scores, epsilon))
    assert math.isclose(errors.permute_and_flip, flips, rel_tol=1e-11, abs_tol=1e-300)
    random = expected_error(scores, published.pmf(scores))
    assert math.isclose(errors.randomized_response, random, rel_tol=1e-11, abs_tol=1e-300)
