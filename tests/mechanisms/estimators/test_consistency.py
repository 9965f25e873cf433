"""Norm-Sub's kin: sums, signs, and the biases that their docstrings state."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from statistical import check_normal

from mechanisms.errors import ParameterError
from mechanisms.estimators.consistency import (
    base_cut,
    base_pos,
    norm,
    norm_cut,
    norm_mul,
    norm_shrink,
)
from mechanisms.estimators.frequency import norm_sub

SEED = 66260701
Method = Callable[[NDArray[np.float64]], NDArray[np.float64]]

rows = st.lists(st.floats(-10, 10, allow_nan=False), min_size=1, max_size=30)


@given(rows, st.floats(0, 5))
def test_sums_and_signs(values: list[float], total: float) -> None:
    assert norm(values, total).sum() == pytest.approx(total, abs=1e-9)
    assert norm_mul(values, total).sum() == pytest.approx(total, abs=1e-9)
    assert norm_cut(values, total).sum() <= total + 1e-9
    order = np.argsort(values, kind="stable")
    for one in (base_pos(values), norm_mul(values, total), norm_cut(values, total)):
        assert (one >= 0).all()
    for one in (base_pos(values), norm(values, total), norm_mul(values, total)):
        assert (np.diff(one[order]) >= 0).all()


@given(rows, st.floats(0.01, 5))
def test_what_is_cut_is_smaller_than_what_is_kept(values: list[float], total: float) -> None:
    kept = norm_cut(values, total)
    assert set(kept[kept > 0]) <= set(values)
    positive = base_pos(values)
    if positive.sum() <= total:
        np.testing.assert_array_equal(kept, positive)
    elif (kept > 0).any() and (kept == 0).any():
        assert kept[kept > 0].min() >= positive[kept == 0].max()


def test_a_distribution_is_left_alone() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125, 0.0])
    for method in (base_pos, norm, norm_mul, norm_cut, norm_sub):
        np.testing.assert_allclose(method(shares), shares, atol=1e-15)
    np.testing.assert_allclose(base_cut(shares, 0.0), shares)
    given_ = shares.copy()
    base_pos(shares)
    norm_cut(shares)
    np.testing.assert_array_equal(shares, given_)


def test_the_threshold_lets_as_many_pass_as_it_says() -> None:
    noise = np.random.default_rng(SEED).normal(size=(2000, 100))
    passed = [int((base_cut(row, 1.0, expected=2.0) > 0).sum()) for row in noise]
    check_normal(np.mean(passed), 2.0, math.sqrt(2.0 / 2000), label=SEED)


class TestBiases:
    """Of the docstrings: two frequent values, two small ones and 46 that nobody has."""

    TRUE = np.array([0.6, 0.3, 0.06, 0.04, *[0.0] * 46])
    ERROR = 0.02

    def biases(self, method: Method) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        generator = np.random.default_rng(SEED)
        noisy = self.TRUE + self.ERROR * generator.normal(size=(4000, 50))
        found = np.array([method(row) for row in noisy]) - self.TRUE
        return found.mean(axis=0), found.std(axis=0) / math.sqrt(len(found))

    def test_norm_has_none(self) -> None:
        bias, error = self.biases(norm)
        check_normal(bias, 0.0, error, label=SEED)
        with pytest.raises(AssertionError):
            check_normal(*self.biases(norm_sub)[:1], 0.0, error)

    def test_base_pos_gains(self) -> None:
        bias, error = self.biases(base_pos)
        expected = self.ERROR / math.sqrt(2 * math.pi)
        check_normal(bias[4:], expected, error[4:], label=SEED)
        assert expected == pytest.approx(0.4 * self.ERROR, rel=0.01)

    def test_norm_sub_takes_the_same_from_frequent_values_and_norm_mul_in_proportion(self) -> None:
        sub, _ = self.biases(norm_sub)
        assert sub[0] == pytest.approx(sub[1], abs=1e-3)
        assert sub[0] < -self.ERROR / 2
        assert (sub[4:] > 0).all()
        mul, _ = self.biases(norm_mul)
        assert mul[0] == pytest.approx(2 * mul[1], rel=0.05)
        assert mul[0] < 4 * sub[0]
        assert (mul[4:] > sub[4:]).all()

    def test_cuts_leave_frequent_values_and_take_rare_ones(self) -> None:
        bias, error = self.biases(lambda row: base_cut(row, self.ERROR))
        check_normal(bias[:2], 0.0, error[:2], label=SEED)
        assert bias[3] < -self.ERROR / 5
        bias, error = self.biases(norm_cut)
        assert abs(bias[0]) < self.ERROR / 10
        assert bias[3] < -self.ERROR / 10


@pytest.mark.parametrize("method", [norm, norm_mul, norm_cut])
def test_what_has_no_answer_is_refused(method: Callable[..., object]) -> None:
    for total in (-1.0, math.nan, math.inf):
        with pytest.raises(ParameterError, match="total"):
            method([1.0], total)
    for values in ([1.0, math.nan], [[1.0]], [math.inf]):
        with pytest.raises(ParameterError, match="finite"):
            method(values)
    assert np.size(method([])) == 0


def test_thresholds_without_an_answer_are_refused() -> None:
    for expected in (0.0, 2.0, math.nan):
        with pytest.raises(ParameterError, match=r"expected must lie in \(0, 2\)"):
            base_cut([0.5, 0.5], 0.1, expected)
    for errors in (-0.1, math.nan, [0.1, 0.1, 0.1]):
        with pytest.raises(ParameterError, match="standard_errors"):
            base_cut([0.5, 0.5], errors, 1.0)
    assert norm_mul([-1.0, -2.0]).tolist() == [0.5, 0.5]


def test_shrinking_is_norm_sub_where_there_is_no_noise() -> None:
    values = np.array([0.5, 0.3, 0.25, -0.05])
    np.testing.assert_array_equal(norm_shrink(values, 0.0), norm_sub(values))
    shares = norm_shrink(values, 1e6)
    assert np.ptp(shares) < 0.01
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_shrinking_refuses_a_variance_that_is_none(bad: float) -> None:
    with pytest.raises(ParameterError, match="variance"):
        norm_shrink([0.5, 0.5], bad)


def test_shrinking_has_the_smaller_error_under_heavy_noise() -> None:
    rng = np.random.default_rng(SEED)
    truth = rng.dirichlet(np.full(100, 0.5))
    noisy = truth + rng.normal(scale=0.05, size=(200, 100))
    gain = [
        ((norm_sub(row) - truth) ** 2).sum() - ((norm_shrink(row, 0.0025) - truth) ** 2).sum()
        for row in noisy
    ]
    # The mean gain is some 0.02 with a standard error below 0.001.
    assert np.mean(gain) > 10 * np.std(gain) / math.sqrt(len(gain)) > 0
