"""Norm-Sub's kin: sums, signs, and the biases that their docstrings state."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.peers.shrinkage import norm_shrink
from mechanisms.errors import ParameterError
from mechanisms.estimators.frequency import norm_sub

SEED = 66260701
Method = Callable[[NDArray[np.float64]], NDArray[np.float64]]

rows = st.lists(st.floats(-10, 10, allow_nan=False), min_size=1, max_size=30)


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
