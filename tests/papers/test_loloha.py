"""LOLOHA's memoization: exact, by enumeration; and what other histories cost."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from statistical import check_counts

from mechanisms.audit.guessing import fair_bits, key_of
from mechanisms.testing import SeededSource
from papers.loloha import BinaryLoloha, claims

SEED = 20_260_703
BINARY = BinaryLoloha(2.0, 1.0)


def likelihood(history: tuple[int, ...], reports: tuple[int, ...]) -> Fraction:
    """Add up over all pairs of permanent responses."""
    right, report = map(Fraction, BINARY.kept)
    total = Fraction(0)
    for responses in itertools.product((0, 1), repeat=2):
        chance = Fraction(1)
        for cell, response in enumerate(responses):
            chance *= right if response == cell else 1 - right
        for cell, said in zip(history, reports, strict=True):
            chance *= report if said == responses[cell] else 1 - report
        total += chance
    return total


def loss(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    ratios = [
        likelihood(other, reports) / likelihood(one, reports)
        for reports in itertools.product((0, 1), repeat=len(one))
    ]
    return max(abs(math.log(ratio)) for ratio in ratios)


def test_a_first_report_costs_what_is_claimed() -> None:
    assert loss((0,), (1,)) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (2, 2), (3, 3), (4, 2)])
def test_the_loss_of_one_change_is_that_of_all_reports(before: int, after: int) -> None:
    constant, changed = (1,) * (before + after), (1,) * before + (0,) * after
    assert BINARY.loss(before, after) == pytest.approx(loss(constant, changed), rel=1e-12)


def test_one_change_half_way_through_52_collections() -> None:
    """The ratio is (p/q)^26 times 0.88² if both halves say the truth of their own cell."""
    right, report = BINARY.kept
    assert BINARY.loss(26, 26) >= 36.3
    near = 26 * math.log(report / (1 - report)) + 2 * math.log(right)
    assert BINARY.loss(26, 26) == pytest.approx(near, abs=1e-6)
    [case] = claims()
    assert case.true == BINARY.loss(26, 26) > 9 * case.claimed


def test_the_sampler_draws_from_these_laws() -> None:
    n, source = 40_000, SeededSource(SEED)
    secrets = fair_bits(n, source)
    keys = BINARY.release(2, 1, secrets, source)["the counts"]
    rows = [(ones, then) for ones in range(3) for then in range(2)]
    cells = key_of(np.array(rows, dtype=np.int64))
    for secret, table in enumerate(BINARY.laws(2, 1)):
        counts = [int((keys[secrets == secret] == cell).sum()) for cell in cells]
        shares = [math.comb(2, ones) * table[ones][then] for ones, then in rows]
        check_counts(counts, shares, label=f"seed {SEED}")
