"""How well arrival times join two pseudonyms of a device, as docs/privacy.md says it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linking import HOUR, RETURNS, arrivals, density, guessed, joined


@pytest.mark.parametrize(
    ("returns", "number", "lowest", "highest"),
    [("at once", 10, 0.1, 0.4), ("at once", 100, 0.01, 0.08), ("within a day", 100, 0.1, 0.3)],
)
def test_a_window_of_the_resolution_leaves_an_observer_guessing(returns, number, lowest, highest):
    assert lowest < joined(number, HOUR, returns, pairs=1000) < highest


def test_a_window_of_minutes_would_not():
    assert joined(100, 300.0, "within a day", pairs=1000) > 0.6


def test_the_guess_is_right_where_there_is_one_device_and_where_times_say_it():
    old, new = np.array([0.0, 40_000.0]), np.array([40_100.0, 100.0])
    assert guessed(old, new, np.array([1, 0]), HOUR, "within a day") == 1.0
    assert joined(1, HOUR, "at once", pairs=10) == 1.0


@pytest.mark.parametrize("returns", RETURNS)
def test_devices_come_back_as_the_observer_believes(returns):
    times = np.linspace(0, RETURNS[returns], 100_001)
    assert np.trapezoid(density(times, returns), times) == pytest.approx(1, rel=1e-3)
    old, new = arrivals(20_000, HOUR, returns, np.random.default_rng(1))
    first = np.minimum(old, new)
    mean = np.trapezoid(times * density(times, returns), times)
    assert first.mean() == pytest.approx(mean, rel=0.03)
    assert np.abs(new - old).mean() == pytest.approx(HOUR / 2, rel=0.03)
    assert first.max() < RETURNS[returns]
