"""The exponential mechanism and permute-and-flip: their loss, their samplers, their errors."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from statistical import check_counts

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_bounds, exp_micro, loss_micro
from mechanisms.levels import GRAINS
from mechanisms.testing import SeededSource
from mechanisms.top_item.permute_and_flip import exact_flips
from papers.selection import (
    ExponentialMechanism,
    PermuteAndFlipSelection,
    SelectionMechanism,
    Thresholds,
    exponents,
    float_flips,
)

SEED = 17320508
MECHANISMS = {"exponential": ExponentialMechanism, "permute-and-flip": PermuteAndFlipSelection}
every_mechanism = pytest.mark.parametrize("kind", MECHANISMS.values(), ids=MECHANISMS.keys())

Scores = tuple[int, ...]


def pairs(n: int, largest: int, step: int, monotone: bool) -> Iterator[tuple[Scores, Scores]]:
    """All neighbours of sorted scores, up to a common shift."""
    for scores in itertools.product(range(largest + 1), repeat=n):
        if min(scores) == 0 and all(a >= b for a, b in itertools.pairwise(scores)):
            for signs in ([1], [-1]) if monotone else ([-1, 1],):
                moves = [0, *(sign * size for sign in signs for size in range(1, step + 1))]
                for change in itertools.product(moves, repeat=n):
                    yield scores, tuple(q + d for q, d in zip(scores, change, strict=True))


def worst_ratio(mechanism: SelectionMechanism, n: int, largest: int) -> Fraction:
    """The largest likelihood ratio of a small domain, in either direction, exactly."""
    laws: dict[Scores, tuple[Fraction, ...]] = {}

    def law(scores: Scores) -> tuple[Fraction, ...]:
        shifted = tuple(q - max(scores) for q in scores)
        if shifted not in laws:
            laws[shifted] = mechanism.exact_pmf(shifted)
        return laws[shifted]

    worst = Fraction(1)
    for scores, others in pairs(n, largest, mechanism.sensitivity, mechanism.monotone):
        for p, q in zip(law(scores), law(others), strict=True):
            worst = max(worst, p / q, q / p)
    return worst


@every_mechanism
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(
    ("n", "largest", "step", "monotone"),
    [(2, 6, 1, False), (3, 4, 1, False), (2, 6, 2, False), (3, 4, 1, True), (2, 6, 2, True)],
)
def test_no_pair_of_neighbours_loses_more_than_epsilon(
    kind: type[SelectionMechanism], epsilon: float, n: int, largest: int, step: int, monotone: bool
) -> None:
    mechanism = kind(epsilon, step, monotone)
    ratio = worst_ratio(mechanism, n, largest)
    assert ratio <= exp_micro(mechanism.certified)[0]
    assert ratio <= mechanism.thresholds.worst_ratio(largest + 2 * step)
    if kind is PermuteAndFlipSelection:
        assert loss_micro(ratio) >= mechanism.certified - 1


def test_the_enumeration_notices_thresholds_that_are_too_steep() -> None:
    """Scaled for monotone scores, and used where they are not."""
    steep = PermuteAndFlipSelection(1.0, 1, True)
    object.__setattr__(steep, "monotone", False)
    assert worst_ratio(steep, 2, 4) > exp_micro(1_900_000)[0]


@pytest.mark.parametrize("micro", [1, 100_000, 1_000_000, 24_000_000, 40_000_000])
@pytest.mark.parametrize("span", [1, 2, 7])
def test_realised_thresholds_stay_within_the_amount(micro: int, span: int) -> None:
    table = Thresholds(micro, span)
    assert table(0) == GRAINS
    assert table.rate * table.deepest / span <= table.depth
    gaps = sorted({*range(60), *range(table.deepest - 1, table.deepest + 2), 10**30})
    values = [table(gap) for gap in gaps]
    assert all(value >= 78 for value in values)
    assert sorted(values, reverse=True) == values
    largest = min(200, table.deepest + span)
    assert table.worst_ratio(largest) <= exp_micro(micro)[0]
    if 100_000 <= micro <= 24_000_000:
        assert loss_micro(table.worst_ratio(largest)) >= micro - 1


@every_mechanism
@pytest.mark.parametrize("scores", [(5, 3, 1), (2, 2, 1, 0), (0, 9, 0), (4,)])
def test_realised_law_is_the_ideal_one(kind: type[SelectionMechanism], scores: Scores) -> None:
    mechanism = kind(1.0)
    exact = mechanism.exact_pmf(scores)
    assert sum(exact) == 1
    for ideal, realised in zip(mechanism.pmf(scores), exact, strict=True):
        assert math.isclose(ideal, realised, rel_tol=1e-7)


@every_mechanism
def test_samplers_draw_their_law(kind: type[SelectionMechanism]) -> None:
    mechanism, scores, source = kind(1.0), (3, 5, 5, 1), SeededSource(SEED)
    seen = Counter(mechanism.select(scores, source) for _ in range(12_000))
    counts = [seen[place] for place in range(4)]
    check_counts(counts, mechanism.exact_pmf(scores), label=SEED)
    planted = [p * Fraction(9, 10) for p in mechanism.exact_pmf(scores)]
    planted[1] += Fraction(1, 10)
    with pytest.raises(AssertionError):
        check_counts(counts, planted, label=SEED)


def test_permute_and_flip_errs_least() -> None:
    for scores in ((5, 3, 1), (2, 2, 1, 0), (9, 8, 7, 6, 5), (1, 0, 0, 0, 0, 0, 0)):
        for epsilon in (0.1, 1.0, 5.0):
            flips = PermuteAndFlipSelection(epsilon).expected_error(scores)
            weights = ExponentialMechanism(epsilon).expected_error(scores)
            assert weights / 2 <= flips <= weights


def test_scores_and_parameters_outside_their_range_are_refused() -> None:
    for epsilon in (math.nan, 0.0, 41.0, -1.0):
        with pytest.raises(ParameterError):
            PermuteAndFlipSelection(epsilon)
    for sensitivity in (0, -1, True, 1.5):
        with pytest.raises(ParameterError, match="sensitivity"):
            PermuteAndFlipSelection(1.0, sensitivity)  # type: ignore[arg-type]
    for scores in ((), (1.5, 2), (True, False)):
        with pytest.raises(ParameterError, match="scores"):
            PermuteAndFlipSelection(1.0).exact_pmf(scores)  # type: ignore[arg-type]
    for q, epsilon, delta in (([], 1, 1), ([math.nan], 1, 1), ([1], math.inf, 1), ([1], 1, 0)):
        with pytest.raises(ParameterError):
            exponents(q, epsilon, delta)


def precise(exponents: list[float]) -> tuple[Fraction, ...]:
    """The law to 49 digits, from exponentials that are a thousand bits long."""
    fine = 1 << 1100
    chances = [Fraction(round(fine / exp_bounds(Fraction(-x))[0]), fine) for x in exponents]
    return exact_flips(chances)


EXPONENTS: dict[str, list[float]] = {
    "one": [0.0],
    "two": [0.0, -1e-9],
    "far": [0.0, -700.0],
    "all alike": [0.0] * 12,
    "ties": [*[0.0] * 3, *[-1.0] * 5],
    "close": [0.0, -1e-15, -1e-12, -1e-3],
    "mixed": [0.0, 0.0, -1e-8, -30.0, -300.0],
    "stairs": [-0.5 * k for k in range(20)],
    "many ties": [*[0.0] * 40, *[-5.0] * 30],
    "near": [-0.01 * k for k in range(25)],
}


@pytest.mark.parametrize("exponents", EXPONENTS.values(), ids=EXPONENTS.keys())
def test_floats_are_accurate_to_twelve_digits(exponents: list[float]) -> None:
    got = float_flips(exponents)
    for value, true in zip(got, precise(exponents), strict=True):
        assert abs(Fraction(value) - true) <= Fraction(1, 10**12) * true


def test_many_items_sum_to_one() -> None:
    generator = random.Random(SEED)
    for powers in (
        [0.0, *(-40 * generator.random() for _ in range(5_000))],
        [*[0.0] * 1_000, *[-1.0] * 100_000, *[-745.0] * 100_000, *[-1e6] * 10],
    ):
        law = float_flips(powers)
        assert math.isclose(math.fsum(law), 1, rel_tol=1e-12)
        assert law[-1] <= law[0]


def test_exponents_that_are_none_are_refused() -> None:
    for wrong in ([], [-1.0], [0.0, 1.0]):
        with pytest.raises(ParameterError):
            float_flips(wrong)
