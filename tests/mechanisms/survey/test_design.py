"""Survey designs: variances over whole populations, losses, sample sizes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from mechanisms.errors import ParameterError
from mechanisms.survey.design import (
    SurveyDesign,
    cards_of,
    christofides,
    christofides_of,
    simmons,
    simmons_of,
    warner,
    warner_of,
)

DESIGNS: dict[str, SurveyDesign] = {
    "warner": warner(Fraction(2, 3)),
    "warner, turned": warner(Fraction(1, 4)),
    "simmons": simmons(Fraction(1, 3), Fraction(1, 4)),
    "christofides": christofides((2, 1, 4)),
    "christofides, four": christofides((1, 2, 3, 1)),
}
every_design = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())


def estimates(design: SurveyDesign, truths: tuple[int, ...], n: int) -> list[tuple[Fraction, ...]]:
    """Every estimate of a sample without replacement, with its probability, exactly."""
    no, yes = design.means()
    samples = list(itertools.combinations(truths, n))
    found = []
    for sample in samples:
        for answers in itertools.product(range(len(design.numbers)), repeat=n):
            chance = Fraction(1, len(samples))
            for truth, answer in zip(sample, answers, strict=True):
                chance *= (design.no, design.yes)[truth][answer]
            mean = Fraction(sum(design.numbers[answer] for answer in answers), n)
            found.append(((mean - no) / (yes - no), chance))
    return found


@every_design
@pytest.mark.parametrize("truths", [(1, 0, 0, 0), (1, 1, 1, 0), (1, 0), (1,), (0, 0, 0)])
def test_mean_and_variance_over_all_samples_and_answers(
    design: SurveyDesign, truths: tuple[int, ...]
) -> None:
    share = Fraction(sum(truths), len(truths))
    for n in range(1, min(3, len(truths)) + 1):
        every = estimates(design, truths, n)
        mean = sum(value * chance for value, chance in every)
        variance = sum((value - share) ** 2 * chance for value, chance in every)
        assert mean == share
        assert variance == design.variance(share, n, len(truths))


@every_design
def test_the_loss_is_that_of_the_channel(design: SurveyDesign) -> None:
    assert math.isclose(design.epsilon, math.log(design.channel.ratio()), rel_tol=1e-15)
    assert 0 <= design.certified - design.epsilon * 1e6 <= 1


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.01, 1.0, 40.0, 700.0])
def test_designs_of_an_epsilon_have_it(epsilon: float) -> None:
    half, skewed = simmons_of(epsilon), simmons_of(epsilon, 0.2)
    three = christofides_of(epsilon, 0.01)
    for design in (warner_of(epsilon), half, skewed, three):
        assert math.isclose(design.epsilon, epsilon, rel_tol=1e-12)
    noise = 1 / (4 * math.sinh(epsilon / 2) ** 2)
    assert math.isclose(warner_of(epsilon).noise(0.3), noise, rel_tol=1e-12)
    assert math.isclose(half.noise(0.3), noise, rel_tol=1e-12)
    assert skewed.noise(0.3) > half.noise(0.3)


def test_middle_cards_only_add_variance() -> None:
    """Theorem 5.5: without them it is Warner's, and it grows with their share."""
    for epsilon in (0.01, 0.05, 0.25, 0.5):
        noises = [christofides_of(epsilon, middle / 20).noise(0) for middle in range(20)]
        assert sorted(set(noises)) == noises
        assert math.isclose(noises[0], warner_of(epsilon).noise(0), rel_tol=1e-14)


def test_cards_reach_an_epsilon_from_below() -> None:
    for epsilon in (0.05, 0.4, 1.0, 3.0, 8.0):
        cards = cards_of(epsilon, 0.02)
        assert sum(cards) == 1_000_000
        assert epsilon - 1e-3 * epsilon <= christofides(cards).epsilon <= epsilon
    with pytest.raises(ParameterError, match="total"):
        cards_of(20.0, 0.01)


def test_losses_of_cards_that_cannot_be_covered() -> None:
    assert christofides((0, 1, 3)).epsilon == math.inf
    with pytest.raises(ParameterError):
        _ = christofides((0, 1, 3)).certified


def test_parameters_outside_their_range_are_refused() -> None:
    for p in (0, 1, 0.5, math.nan, math.inf, -0.1):
        with pytest.raises(ParameterError):
            warner(p)
    for p, y in ((0, 0.5), (0.5, 1), (math.nan, 0.5), (0.5, math.nan)):
        with pytest.raises(ParameterError):
            simmons(p, y)
    for cards in ((1,), (1, 1), (1, 5, 1), (0, 0, 0), (-1, 2, 5), (math.nan, 1)):
        with pytest.raises(ParameterError, match="cards"):
            christofides(cards)
    design = warner(0.6)
    for share, n, population in ((-0.1, 5, 9), (math.nan, 5, 9), (0.1, 0, 9), (0.1, 10, 9)):
        with pytest.raises(ParameterError):
            design.variance(share, n, population)
    for epsilon in (0, math.nan, 1001):
        with pytest.raises(ParameterError, match="epsilon"):
            warner_of(epsilon)
    with pytest.raises(ParameterError, match="answer"):
        design.estimate([0, 1, 2])
