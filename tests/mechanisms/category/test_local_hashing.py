"""Local hashing: the family of hashes exactly, the transform, the variance, the coin."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from statistical import check_counts

from mechanisms import coins
from mechanisms.category.local_hashing import (
    MAX_CELLS,
    LocalHashing,
    best_buckets,
    digits,
    hashing_variance,
)
from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import share_variance
from mechanisms.testing import SeededSource

SEED = 141421356


def ladder(size: int, buckets: int, *micros: int) -> LocalHashing:
    return LocalHashing([micro / 1e6 for micro in micros or (1_000_000,)], size, buckets, "metric")


@pytest.mark.parametrize(("size", "buckets"), [(5, 2), (9, 3), (26, 5), (12, 13), (30, 7)])
def test_any_two_categories_share_a_bucket_under_exactly_one_hash_in_g(
    size: int, buckets: int
) -> None:
    mechanism = ladder(size, buckets)
    hashed = [[mechanism.bucket(v, s) for s in range(mechanism.hashes)] for v in range(size)]
    for v in range(size):
        for other in range(v):
            same = sum(a == b for a, b in zip(hashed[v], hashed[other], strict=True))
            assert Fraction(same, mechanism.hashes) == Fraction(1, buckets)


@pytest.mark.parametrize(("size", "buckets"), [(5, 2), (26, 5), (12, 13), (700, 3), (200, 257)])
def test_support_is_what_a_walk_through_the_domain_finds(size: int, buckets: int) -> None:
    mechanism = ladder(size, buckets, 500_000, 1_000_000)
    table = np.random.default_rng(SEED).integers(0, 9, size=(2, mechanism.count_length))
    ones, reports = mechanism.supports(table)
    assert reports.tolist() == table.sum(axis=1).tolist()
    cells = table.reshape(2, mechanism.hashes, buckets)
    some = range(0, size, max(1, size // 20))
    for v in some:
        hashed = [mechanism.bucket(v, s) for s in range(mechanism.hashes)]
        walked = cells[:, np.arange(mechanism.hashes), hashed].sum(axis=1)
        assert ones[:, v].tolist() == walked.tolist()


def test_support_is_exact_for_many_reports() -> None:
    mechanism = ladder(1000, 3)
    table = np.zeros((1, mechanism.count_length), dtype=np.int64)
    table[0, 3 * 1234 + 1] = 10**12 - 1
    [ones], _ = mechanism.supports(table)
    expected = [(10**12 - 1) * (mechanism.bucket(v, 1234) == 1) for v in range(1000)]
    assert ones.tolist() == expected


def test_the_coin_is_that_of_the_chain_and_nearly_uniform() -> None:
    mechanism = ladder(1000, 7)
    ids = SeededSource(SEED).words(2 * 200_000).reshape(-1, 2)
    found = mechanism.strata_of(ids, ids)
    chain = ids[5].astype("<u8").tobytes()
    assert mechanism.hash_of(chain) == found[5]
    assert found[5] == coins.hash_id(chain, coins.coin_domain("metric")) % 7**4
    check_counts(np.bincount(found, minlength=7**4), [Fraction(1, 7**4)] * 7**4, label=SEED)
    # No hash is likelier than another by more than so much.
    assert Fraction(2**64 // MAX_CELLS + 1, 2**64 // MAX_CELLS) - 1 < Fraction(1, 2**39)
    other = LocalHashing(1.0, 1000, 7, "other").strata_of(ids, ids)
    assert (other != found).mean() > 0.99


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_variance_is_the_closed_form_of_the_paper(epsilon: float) -> None:
    mechanism = LocalHashing(epsilon, 1000)
    g = mechanism.buckets
    p, q = mechanism.support_pairs()[0]
    e = math.exp(mechanism.epsilon)
    stated = (e + g - 1) ** 2 / ((e - 1) ** 2 * (g - 1))
    assert share_variance(p, q, 0.0) == pytest.approx(stated, rel=1e-4)
    assert hashing_variance(epsilon, g) == pytest.approx(stated, rel=1e-12)
    # Optimized: within a tenth of what a real number of buckets would reach.
    assert 4 * e / (e - 1) ** 2 <= stated * (1 + 1e-9)
    assert stated <= 1.1 * 4 * e / (e - 1) ** 2


@pytest.mark.parametrize(
    ("size", "buckets", "message"),
    [
        (1, 3, r"domain_size must lie in \[2, 1048576\], not 1"),
        (2**20 + 1, 3, "domain_size"),
        (10, 1, r"buckets must be a prime in \[2, 16777216\], not 1"),
        (10, 4, "buckets must be a prime"),
        (10, -3, "buckets must be a prime"),
        (10, 4099, "buckets must be fewer for a domain_size of 10: 4099 of them take 16801801"),
        (2**20, 11, "at most 16777216 are allowed"),
    ],
)
def test_what_cannot_be_counted_is_refused(size: int, buckets: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ladder(size, buckets)


def test_the_best_buckets_can_always_be_counted() -> None:
    for size in (2, 3, 100, 5000, 2**20):
        for epsilon in (1e-6, 0.5, 2.0, 5.0, 12.0, 40.0):
            assert ladder(size, best_buckets(epsilon, size)).count_length <= MAX_CELLS
    for epsilon, size in ((math.nan, 5), (0.0, 5), (1.0, 1)):
        with pytest.raises(ParameterError):
            best_buckets(epsilon, size)


@pytest.mark.parametrize(
    ("size", "g", "t"), [(2, 2, 1), (4, 2, 2), (5, 2, 3), (9, 3, 2), (10, 3, 3)]
)
def test_no_more_digits_than_tell_all_categories_apart(size: int, g: int, t: int) -> None:
    assert digits(size, g) == t


@pytest.mark.parametrize(("size", "buckets"), [(9, 3), (20, 5), (7, 2), (3, 7)])
def test_hashes_of_a_line_put_the_same_values_together_and_others_do_not(
    size: int, buckets: int
) -> None:
    mechanism = ladder(size, buckets)
    numbers = np.arange(mechanism.hashes)
    of_line = mechanism.separable(np.eye(mechanism.hashes, dtype=np.int64))
    assert of_line.shape == (mechanism.hashes, mechanism.groups)
    assert of_line.sum(axis=1).tolist() == [0, *[1] * (mechanism.hashes - 1)]
    together = set()
    for line in of_line.T:
        found = set()
        for number in numbers[line > 0].tolist():
            # All vectors of digits, whether they are categories or not.
            own = mechanism.bucket(numbers, number).tolist()
            found.add(tuple(own.index(each) for each in own))
        assert len(found) == 1
        together |= found
    assert len(together) == mechanism.groups


@pytest.mark.parametrize(("size", "buckets"), [(9, 3), (20, 5), (7, 2), (3, 7)])
def test_a_report_outside_all_lines_has_the_same_law_whatever_the_value(
    size: int, buckets: int
) -> None:
    """So it needs no others among which it is published."""
    mechanism = ladder(size, buckets)
    of_line = mechanism.separable(np.eye(mechanism.hashes, dtype=np.int64))
    (outside,) = np.flatnonzero(of_line.sum(axis=1) == 0).tolist()
    assert len({mechanism.bucket(value, outside) for value in range(size)}) == 1
