"""Thresholds, sampled bits and grids: scalar and vectorised twins agree, laws are exact."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources import ScriptedSource

from mechanisms.errors import ParameterError
from mechanisms.number.grid import (
    check_unit,
    exponent_of,
    exponents_of,
    round_to_grid,
    rounds_to_grid,
    split,
    threshold_of,
    thresholds_of,
    unit_array,
)

COINS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63, 2**64 - 1]))
UNITS = st.floats(0, 1, allow_subnormal=True)


@given(COINS)
def test_thresholds(coin: int) -> None:
    threshold = threshold_of(coin)
    assert thresholds_of(np.array([coin], dtype=np.uint64)).tolist() == [threshold]
    assert 0 < threshold <= 1
    assert abs(threshold - coin / 2**64) < 2**-52


@given(COINS, st.integers(1, 32))
def test_sampled_exponents(coin: int, bits: int) -> None:
    exponent = exponent_of(coin, bits)
    assert exponents_of(np.array([coin], dtype=np.uint64), bits).tolist() == [exponent]
    assert 0 <= exponent < bits


@pytest.mark.parametrize("bits", [1, 2, 5, 10])
def test_a_bit_is_sampled_with_its_share_of_the_range(bits: int) -> None:
    points = 2**bits - 1
    assert Counter(exponent_of(coin, bits) for coin in range(points)) == {
        exponent: 2**exponent for exponent in range(bits)
    }


@given(UNITS, st.integers(1, 32), st.integers(0, 2**64 - 1))
def test_rounding_to_the_grid(u: float, bits: int, word: int) -> None:
    top = (1 << bits) - 1
    below, grains = split(u, top)
    assert 0 <= below <= top
    assert 0 <= grains < 2**64
    assert below < top or grains == 0
    # The mean of the rounded value is the value, to the precision of a float.
    mean = below + Fraction(grains, 2**64)
    assert abs(mean - Fraction(u) * top) <= Fraction(top, 2**53) + Fraction(1, 2**64)
    expected = below + (word < grains)
    assert round_to_grid(u, top, ScriptedSource([word])) == expected
    many = rounds_to_grid(np.array([u]), top, ScriptedSource([word]))
    assert many.dtype == np.int64
    assert many.tolist() == [expected]


def test_grid_points_stay_where_they_are() -> None:
    for point in range(16):
        assert round_to_grid(point / 15, 15, ScriptedSource([])) == point


@pytest.mark.parametrize("value", [-1e-9, 1.0000001, float("nan"), float("inf")])
def test_numbers_outside_the_unit_interval_are_refused_unseen(value: float) -> None:
    with pytest.raises(ParameterError, match="scaled") as caught:
        check_unit(value, missing=True)
    assert repr(value) not in str(caught.value)


@pytest.mark.parametrize("value", ["0.25", b"0.25", (0.25,), 0.25 + 0j, np.array([0.25])])
def test_what_is_no_number_is_refused_unseen(value: Any) -> None:
    with pytest.raises(ParameterError, match="scaled") as caught:
        check_unit(value, missing=True)
    assert "25" not in str(caught.value)


@pytest.mark.parametrize("value", [0, 1, -0.0, 5e-324, np.float64(1.0), np.float32(0.1), True])
def test_every_real_number_of_the_unit_interval_is_taken(value: Any) -> None:
    check_unit(value, missing=False)


def test_arrays_of_numbers() -> None:
    _, gone = unit_array(np.array([0.0, np.nan, 1.0]), missing=True)
    assert gone.tolist() == [False, True, False]
    with pytest.raises(ParameterError, match="missing"):
        unit_array(np.array([np.nan]), missing=False)
    with pytest.raises(ParameterError, match="missing"):
        check_unit(None, missing=False)
    for wrong in (-0.5, 1.5, np.inf):
        with pytest.raises(ParameterError, match="scaled"):
            unit_array(np.array([0.5, wrong]), missing=False)
