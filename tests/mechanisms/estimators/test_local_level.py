"""The smoothed series is what the joint normal law of levels and windows says."""

from __future__ import annotations

import numpy as np
import pytest

from mechanisms.errors import ParameterError
from mechanisms.estimators.local_level import likely_drift, smooth


def joint(values, errors, drift):
    """Levels given all windows, by inverting their whole precision matrix; the start is unknown."""
    size = len(values)
    steps = np.diff(np.eye(size), axis=0)
    there = np.isfinite(values)
    seen = np.where(there, errors, np.inf) ** -2.0
    precision = steps.T @ steps / drift**2 + np.diag(seen)
    covariance = np.linalg.inv(precision)
    return covariance @ (seen * np.where(there, values, 0)), np.sqrt(np.diag(covariance))


def test_the_smoother_is_exact_with_unequal_errors_and_missing_windows():
    draw = np.random.default_rng(5)
    values, errors = draw.normal(size=30), draw.uniform(0.1, 2, size=30)
    values[[0, 1, 7, 8, 29]] = errors[[0, 1, 7, 8, 29]] = np.nan
    found = smooth(values, errors, drift=0.3)
    levels, spreads = joint(values, errors, 0.3)
    np.testing.assert_allclose(found.values, levels, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.errors, spreads, rtol=1e-9)


def test_without_drift_the_smoothed_series_is_the_weighted_mean():
    found = smooth(np.array([1.0, np.nan, 4.0]), np.array([1.0, np.nan, 2.0]), drift=0.0)
    np.testing.assert_allclose(found.values, 1.6)
    np.testing.assert_allclose(found.errors, 0.8**0.5)


def test_the_drift_is_the_most_likely_one():
    """By the density of the differences of all windows from the first, under the joint law."""
    draw = np.random.default_rng(6)
    values = np.cumsum(draw.normal(0, 0.5, 80)) + draw.normal(0, 1, 80)
    errors = np.ones(80)
    differences = values[1:] - values[0]
    since = np.arange(1, 80)

    def likelihood(drift):
        covariance = drift**2 * np.minimum(since[:, None], since) + 1 + np.eye(79)
        _, size = np.linalg.slogdet(covariance)
        return -0.5 * (differences @ np.linalg.solve(covariance, differences) + size)

    best = likely_drift(values, errors)
    assert 0.2 < best < 1
    assert all(likelihood(best) >= likelihood(best * factor) for factor in (0.9, 1.1))
    found = smooth(values, errors)
    assert (found.drift, found.estimated) == (best, True)
    assert found.model == f"local level, drift {best:.2g} a window (estimated), smoothed both ways"


@pytest.mark.parametrize(
    ("values", "errors", "drift"),
    [([np.nan], [1.0], 0.1), ([1.0], [0.0], 0.1), ([1.0], [1.0], -1), ([1.0], [1.0, 1.0], None)],
)
def test_what_is_no_series_is_refused(values, errors, drift):
    with pytest.raises(ParameterError):
        smooth(np.array(values), np.array(errors), drift)
