"""RAPPOR: what filters cost, against the paper's values, and its public cohorts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.string.rappor import Rappor, differing_bits_epsilon, expected_differing_bits
from mechanisms.testing import SeededSource

SEED = 1618033988


def ids(n: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, 2**64, size=(n, 2), dtype=np.uint64)


def test_strings_of_a_cohort_share_a_filter_and_those_of_others_do_not() -> None:
    mechanism = Rappor(1.0, bits=128, hashes=2, cohorts=16, metric="metric")
    pseudonyms = ids(200)
    filters: dict[int, set[int]] = {}
    cohorts = mechanism.strata_of(pseudonyms, pseudonyms).tolist()
    for row, cohort in zip(pseudonyms.astype("<u8"), cohorts, strict=True):
        assert mechanism.cohort(row.tobytes()) == cohort
        encoded = mechanism.encode(b"a string", b"", row.tobytes(), SeededSource(1))
        filters.setdefault(cohort, set()).add(encoded)
    assert set(filters) == set(range(16))
    assert all(len(known) == 1 for known in filters.values())
    assert len(set.union(*filters.values())) > 10


@vectors("rappor_worst")
def test_the_worst_loss_of_filters(vector: Vector) -> None:
    hashes, f = vector.inputs["h"], vector.inputs["f"]
    vector.check(differing_bits_epsilon(2 * hashes, f))
    mechanism = Rappor(vector.expected, bits=128, hashes=hashes)
    assert mechanism.f == pytest.approx(f, abs=1e-6)
    assert mechanism.certified_epsilon == pytest.approx(vector.expected, abs=2e-6)


@pytest.mark.parametrize(
    ("bits", "hashes", "expected"),
    [(1, 3, 0.0), (2, 1, 1.0), (10**15, 1, 2 - 2e-15), (10**15, 8, 16 - 184e-15)],
)
def test_bits_that_differ_at_both_ends(bits: int, hashes: int, expected: float) -> None:
    assert expected_differing_bits(bits, hashes) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("bits", "hashes"), [(0, 1), (8, -1)])
def test_filters_that_cannot_be_are_refused(bits: int, hashes: int) -> None:
    with pytest.raises(ParameterError, match="bits must be positive"):
        expected_differing_bits(bits, hashes)


@pytest.mark.parametrize("strings", [np.array([[b"a", b"b"]]), np.array(b"a"), b"a", "a"])
def test_strings_that_are_not_in_one_row_are_refused(strings: object) -> None:
    ids = np.zeros((1, 2), dtype=np.uint64)
    with pytest.raises(ParameterError, match="one row"):
        Rappor(1.0, 8, 1, 1).randomize(strings, ids, ids, SeededSource(1))


def test_the_loss_of_filters_loses_nothing_near_no_privacy_and_near_none() -> None:
    assert differing_bits_epsilon(4, 1 - 2**-40) == pytest.approx(8 * 2**-40, rel=1e-11)
    assert differing_bits_epsilon(2, 1e-300) == pytest.approx(2 * math.log(2e300), rel=1e-14)


@pytest.mark.parametrize("f", [0.0, 1.0, math.nan, -0.5])
def test_an_f_that_is_no_probability_is_refused(f: float) -> None:
    with pytest.raises(ParameterError, match="f must lie in"):
        differing_bits_epsilon(4, f)
