"""The most frequent item of a device: exact loss, draws and estimates of both mechanisms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sources import ScriptedSource
from statistical import check_counts, check_normal

from mechanisms.errors import ParameterError, SottoError, UnrelatedLevelsError
from mechanisms.exact import exp_micro, loss_micro
from mechanisms.levels import GRAINS
from mechanisms.registry import build
from mechanisms.testing import SeededSource
from mechanisms.top_item.mechanism import TopItemMechanism, uniforms_below
from mechanisms.top_item.permute_and_flip import (
    PermuteAndFlip,
    acceptance_table,
    extremes,
    last_threshold,
)
from mechanisms.top_item.top_response import TopResponse

SEED = 31622776
LADDERS = {"one": (1_000_000,), "three": (500_000, 1_000_000, 2_000_000), "wide": (1, 9_000_000)}
every_ladder = pytest.mark.parametrize("ladder", LADDERS.values(), ids=LADDERS.keys())
both = pytest.mark.parametrize("kind", [PermuteAndFlip, TopResponse])
Kind = type[TopItemMechanism]


def made(kind: Kind, items: int, clip: int, ladder: tuple[int, ...]) -> Any:
    return build({"name": kind.name, "domain_size": items, "clip": clip}, ladder, "screen")


def laws(mechanism: TopItemMechanism, counts: tuple[int, ...]) -> list[tuple[Fraction, ...]]:
    """The laws of all levels, weakest first."""
    return [tuple(mechanism.law(counts, level).values()) for level in range(mechanism.levels)]


def vectors_of(items: int, clip: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(clip + 1), repeat=items))


@both
@every_ladder
@pytest.mark.parametrize(("items", "clip"), [(2, 1), (2, 3), (3, 2), (4, 1)])
def test_any_two_periods_lose_exactly_the_certified_amount(
    kind: Kind, ladder: tuple[int, ...], items: int, clip: int
) -> None:
    mechanism = made(kind, items, clip, ladder)
    every = [laws(mechanism, counts) for counts in vectors_of(items, clip)]
    assert {sum(mechanism.selection(counts)) for counts in vectors_of(items, clip)} == {1}
    for level in range(mechanism.levels):
        worst = Fraction(1)
        for column in zip(*(law[level] for law in every), strict=True):
            worst = max(worst, max(column) / min(column))
        assert loss_micro(worst) == mechanism.certified(level) <= mechanism.nominal(level)
        p, q = mechanism.exact(level)[0]
        assert worst == p / q == mechanism.realised_ratio(level)


@pytest.mark.parametrize("items", [2, 5, 100, 1024])
@pytest.mark.parametrize("micro", [1, 100_000, 1_000_000, 8_000_000, 40_000_000])
def test_the_last_threshold_is_the_least_that_honours_the_amount(items: int, micro: int) -> None:
    bound, last = exp_micro(micro)[0], last_threshold(items, micro)
    most, least = extremes(items, last)
    assert most <= bound * least
    most, least = extremes(items, last - 1)
    assert most > bound * least
    # Never more noise than the scale that looks at the sensitivity alone.
    assert last / GRAINS <= math.exp(-micro / 2e6) * (1 + 1e-9)


@pytest.mark.parametrize("clip", [1, 2, 7, 1000])
def test_acceptance_falls_from_one_to_the_last_threshold(clip: int) -> None:
    last = last_threshold(6, 1_000_000)
    table = acceptance_table(clip, last)
    assert len(table) == clip + 1
    assert (table[0], table[-1]) == (GRAINS, last)
    assert sorted(table, reverse=True) == list(table)
    for gap, threshold in enumerate(table):
        assert math.isclose(threshold / GRAINS, (last / GRAINS) ** (gap / clip), rel_tol=1e-12)


def test_mixed_rows_are_drawn_each_by_its_own_law() -> None:
    mechanism, n = made(PermuteAndFlip, 3, 2, (3_000_000,)), 90_000
    every = vectors_of(3, 2)
    ids = np.zeros((n, 2), dtype=np.uint64)
    rows = [every[number % len(every)] for number in range(n)]
    drawn = mechanism.randomize(rows, ids, ids, SeededSource(SEED))[:, 0, 0]
    for place, counts in enumerate(every):
        seen = np.bincount(drawn[place :: len(every)], minlength=3)
        check_counts(seen, mechanism.selection(counts), label=(SEED, counts))


@pytest.mark.parametrize("level", [0, 1])
def test_estimates_undo_the_degradation_without_bias(level: int) -> None:
    """The mean of the estimate, from the exact law, is the law of the released item."""
    mechanism = made(PermuteAndFlip, 3, 2, (500_000, 2_000_000))
    counts, n = (2, 0, 1), 10**15
    law = laws(mechanism, counts)
    table = np.zeros((2, 3), dtype=np.int64)
    table[level] = [round(n * share) for share in law[level]]
    released = [estimate.value for estimate in mechanism.frequencies(table)]
    assert released == pytest.approx([float(share) for share in law[1]], abs=1e-12)
    errors = [estimate.standard_error for estimate in mechanism.frequencies(table)]
    assert all((error == 0) == (level == 1) for error in errors)
    # It is the release, and far from the truth: item 0 is the top one of every device.
    assert released[0] < 0.7


def test_estimates_of_the_response_are_of_the_truth() -> None:
    mechanism, n = made(TopResponse, 5, 9, (500_000, 1_000_000)), 60_000
    counts = np.random.default_rng(SEED).integers(0, 6, size=(n, 5))
    counts[: n // 2, 1] = 9
    ids = np.zeros((n, 2), dtype=np.uint64)
    payloads = mechanism.randomize(counts, ids, ids, SeededSource(SEED))
    half, groups = n // 3, np.zeros(n, dtype=np.int64)
    table = np.concatenate(
        [
            mechanism.accumulate(payloads[rows, level], ids[rows], ids[rows], groups[rows], 1)
            for level, rows in ((0, slice(half)), (1, slice(half, n)))
        ]
    )
    best = counts == counts.max(axis=1)[:, None]
    truth = (best / best.sum(axis=1)[:, None]).mean(axis=0)
    estimates = mechanism.frequencies(table)
    for estimate, share in zip(estimates, truth, strict=True):
        # Ties, drawn at random, add less than a binomial would.
        error = math.hypot(estimate.standard_error, math.sqrt(share * (1 - share) / n))
        check_normal(estimate.value, share, error, label=SEED)
    with pytest.raises(AssertionError):
        check_normal(table.sum(axis=0)[1] / n, truth[1], estimates[1].standard_error)


@both
@pytest.mark.parametrize("symbol", [(1, 2), (1, 2, 3), (0, 0, -1), (0, 0, 1.0), 77, "abc", None])
def test_what_are_no_clipped_counts_is_refused_without_naming_it(kind: Kind, symbol: Any) -> None:
    mechanism = made(kind, 3, 2, (1_000_000,))
    with pytest.raises(ParameterError) as caught:
        mechanism.draw(symbol, bytes(16), bytes(16), SeededSource(SEED))
    assert repr(symbol) not in str(caught.value)
    ids = np.zeros((1, 2), dtype=np.uint64)
    with pytest.raises(ParameterError):
        mechanism.randomize([symbol], ids, ids, SeededSource(SEED))
    two = np.zeros((2, 2), dtype=np.uint64)
    with pytest.raises(ParameterError):
        mechanism.randomize([(0, 1, 2), symbol], two, two, SeededSource(SEED))


@both
def test_parameters_outside_their_range_are_refused(kind: Kind) -> None:
    for items, clip in ((1, 5), (1025, 5), (3, 0), (3, 65_537), (True, 5), (3, 2.0)):
        with pytest.raises(ParameterError):
            made(kind, items, clip, (1_000_000,))
    with pytest.raises(SottoError):
        made(kind, 3, 2, (40_000_001,))
    with pytest.raises(UnrelatedLevelsError):
        made(kind, 3, 2, (39_999_999, 40_000_000))


@pytest.mark.parametrize("before", [True, False])
def test_a_word_at_a_threshold_does_not_accept(before: bool) -> None:
    """Looked at is item 1, a whole clip below, then item 0, which every word accepts."""
    mechanism = made(PermuteAndFlip, 2, 3, (1_000_000,))
    word, ids = mechanism.table[-1] - before, np.zeros((1, 2), dtype=np.uint64)
    scalar = ScriptedSource([1, word, GRAINS - 1])
    assert mechanism.encode((3, 0), bytes(16), bytes(16), scalar) == before
    source = ScriptedSource([1, word, 0, GRAINS - 1])
    assert mechanism.encode_many([(3, 0)], ids, ids, source).tolist() == [before]


def test_words_above_the_last_multiple_are_drawn_again() -> None:
    # 2**64 is one more than a multiple of three, and five.
    for bound in (3, 5):
        words = [GRAINS - 1, GRAINS - 2, 7]
        drawn = uniforms_below(bound, 1, ScriptedSource(words))
        assert drawn.tolist() == [(GRAINS - 2) % bound]
    assert uniforms_below(4, 1, ScriptedSource([GRAINS - 1])).tolist() == [3]


def test_levels_are_counted_from_the_last_too() -> None:
    spec = {"name": "permute_and_flip", "domain_size": 3, "clip": 2}
    flips = build(spec, [500_000, 1_000_000, 2_000_000], "m")
    assert [flips.exact(level) for level in (-1, -3)] == [flips.exact(2), flips.exact(0)]
    with pytest.raises(IndexError):
        flips.exact(3)
