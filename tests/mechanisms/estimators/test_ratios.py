"""Ratios: conversions of a funnel and retention, their references and what intervals cover."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from statistical import check_binomial

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.estimate import Estimate
from mechanisms.estimators.frequency import shares
from mechanisms.estimators.ratios import Ratio, conversions, covariance_of_numbers, retention

REACH = np.array([1, 0.6, 0.3, 0.15, 0.05])
STEPS = -np.diff(np.append(REACH, 0))
#: Runs of a coverage: with 400, an interval that covers .93 to .97 stays within 1e-9 of a mistake.
RUNS = 400


def expected(mechanism: GeneralizedRandomizedResponse, n: int, law: np.ndarray) -> np.ndarray:
    """Return the counts of each answer that are the most likely, ``(1, symbols)``."""
    return np.rint(n * (mechanism.q + (mechanism.p - mechanism.q) * law)).astype(np.int64)[None]


def drawn(
    mechanism: GeneralizedRandomizedResponse, held: np.ndarray, draw: np.random.Generator
) -> np.ndarray:
    """Return counts of the answers of so many devices with each value, ``(1, symbols)``."""
    return draw.multinomial(held, mechanism.matrix(0)).sum(axis=0)[None]


@pytest.mark.parametrize(("epsilon", "second", "last"), [(2, 0.0199, 0.0553), (1, 0.0503, 0.151)])
def test_conversions_are_as_sure_as_their_references(
    epsilon: float, second: float, last: float
) -> None:
    mechanism = GeneralizedRandomizedResponse(epsilon, 5)
    found = conversions(expected(mechanism, 10_000, STEPS), mechanism.pairs())
    assert [each.value for each in found] == pytest.approx([0.6, 0.5, 0.5, 1 / 3], abs=0.002)
    assert [1.96 * found[at].standard_error for at in (1, 3)] == pytest.approx(
        [second, last], rel=0.01
    )


@pytest.mark.parametrize(
    ("epsilon", "widths"), [(2, (0.1631, 0.0516, 0.0163)), (1, (0.4915, 0.1554, 0.0491))]
)
def test_retention_is_as_sure_as_its_references(epsilon: float, widths: tuple[float, ...]) -> None:
    """A share of .05 came again of the .10 that were new, of 13 ages; 10⁴ to 10⁶ reports."""
    mechanism = GeneralizedRandomizedResponse(epsilon, 13)
    law = np.array([0.1, 0.05, *[0.85 / 11] * 11])
    for n, width in zip((10**4, 10**5, 10**6), widths, strict=True):
        counts = expected(mechanism, n, law)
        then, now, *_ = shares(counts, np.array([n]), mechanism.pairs())
        found = retention([now], [then])
        assert found.value == pytest.approx(0.5, abs=0.02)
        assert 1.96 * found.standard_error == pytest.approx(width, rel=0.03)


def covered(epsilon: float) -> Iterator[tuple[str, int]]:
    """Yield what intervals are of, and how many of the runs they cover the truth in."""
    draw = np.random.default_rng(27)
    funnel = GeneralizedRandomizedResponse(epsilon, 5)
    ages = GeneralizedRandomizedResponse(epsilon, 13)
    held = (20_000 * STEPS).astype(np.int64)
    new, later = np.array([2000, *[1500] * 12]), np.array([1500, 1000, *[1591] * 11])
    reached = np.cumsum(held[::-1])[::-1]
    truths = reached[1:] / reached[:-1]
    hits, kept = np.zeros(4, dtype=np.int64), 0
    for _ in range(RUNS):
        found = conversions(drawn(funnel, held, draw), funnel.pairs())
        ends = np.array([each.interval() for each in found])
        hits += (ends[:, 0] <= truths) & (truths <= ends[:, 1])
        both = []
        for values, age in ((later, 1), (new, 0)):
            counts = drawn(ages, values, draw)
            both.append(shares(counts, counts.sum(axis=1), ages.pairs())[age])
        low, high = retention(*([each] for each in both)).interval()
        kept += low <= later[1] / new[0] <= high
    yield from zip(("cart", "address", "pay", "paid"), hits.tolist(), strict=True)
    yield "retention", kept


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_fieller_s_intervals_cover_what_they_say(epsilon: float) -> None:
    for name, hits in covered(epsilon):
        check_binomial(hits, RUNS, 0.95, label=(name, hits / RUNS))


def test_retention_of_several_windows_covers_what_it_says() -> None:
    """Four windows: new devices in three, those who came later in three, and so both in two."""
    ages, draw, hits = GeneralizedRandomizedResponse(1.0, 4), np.random.default_rng(31), 0
    weeks = np.array(
        [[3000, 0, 7000, 0], [2500, 1500, 3000, 0], [2000, 1200, 0, 0], [0, 900, 0, 9]]
    )
    ends = ages.matrix(0)[:, 0] * ages.matrix(0)[:, 1] / (ages.p - ages.q) ** 2
    known = [covariance_of_numbers(w[:2].sum() / w.sum(), [w.sum()], ages.pairs()) for w in weeks]
    assert known == pytest.approx(-weeks @ ends)
    for _ in range(RUNS):
        drawn_weeks = [drawn(ages, week, draw) for week in weeks]
        found = [shares(week, week.sum(axis=1), ages.pairs()) for week in drawn_weeks]
        new, came = [each[0] for each in found[:-1]], [each[1] for each in found[1:]]
        shared = sum(
            covariance_of_numbers(one.value + other.value, one.reports_by_level, ages.pairs())
            for one, other in zip(new[1:], came[:-1], strict=True)
        )
        low, high = retention(came, new, covariance=shared).interval()
        hits += low <= 3600 / 7500 <= high
    check_binomial(hits, RUNS, 0.95)


def test_panels_add_the_chance_of_turns() -> None:
    """Numbers of new and of returning devices whose turn it is vary, and so does their ratio."""
    draw = np.random.default_rng(13)
    devices, panel, error, hits = (40_000, 26_000), 13, 1.0, {1: 0, 13: 0}
    for _ in range(RUNS):
        turns = draw.binomial(devices, 1 / panel)
        new, back = [
            Estimate(float(count / 10_000), error / 10_000, 10_000, (10_000,)) for count in turns
        ]
        for said in hits:
            low, high = retention([back], [new], said).interval()
            hits[said] += low <= 26_000 / 40_000 <= high
    check_binomial(hits[13], RUNS, 0.95)
    assert hits[1] < RUNS / 4


def test_a_ratio_to_what_may_be_none_has_no_interval() -> None:
    unknown = Ratio(0.1, 0.01, 1e-4, 1e-4)
    assert unknown.interval(0.95) == (-math.inf, math.inf)
    assert math.isnan(unknown.estimate((10,)).value)
    none, _ = conversions(np.zeros((2, 3), dtype=np.int64), np.array([[0.8, 0.1]] * 2))
    assert math.isnan(none.value)
    # Noise can carry a share far below 0; a ratio to it would have a negative error.
    assert math.isnan(Ratio(0.0, -0.03, 1e-4, 1e-4).estimate((1000,)).value)


def test_levels_are_averaged_as_shares_are() -> None:
    mechanism = GeneralizedRandomizedResponse((1.0, 2.0), 3)
    counts = np.array([[500, 300, 250], [900, 300, 200]])
    known = shares(counts, counts.sum(axis=1), mechanism.pairs())
    first, second, third = (each.value for each in known)
    found = [each.value for each in conversions(counts, mechanism.pairs())]
    assert found == pytest.approx([second + third, third / (second + third)])
    assert first + second + third == pytest.approx(1)
