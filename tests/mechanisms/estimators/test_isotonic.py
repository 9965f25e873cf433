"""The isotonic fit is scipy's, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import isotonic_regression

from mechanisms.estimators.isotonic import falling_fit


def check(values: np.ndarray, weights: np.ndarray) -> None:
    expected = isotonic_regression(values, weights=weights, increasing=False).x
    assert falling_fit(values, weights).tolist() == expected.tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 8, 64, 500])
@pytest.mark.parametrize("trend", [-3.0, 0.0, 3.0])
def test_it_is_that_of_scipy(size: int, trend: float) -> None:
    draw = np.random.default_rng(size)
    for _ in range(50):
        values = trend * np.arange(size) / size + draw.normal(size=size)
        check(values, draw.integers(1, 1000, size).astype(np.float64))
        check(np.round(values), np.ones(size))


@given(st.data())
def test_whatever_the_values_and_weights(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    values = data.draw(arrays.arrays(np.float64, size, elements=st.floats(-4, 4, width=16)))
    weights = data.draw(arrays.arrays(np.float64, size, elements=st.floats(0.5, 4, width=16)))
    check(values, weights)
