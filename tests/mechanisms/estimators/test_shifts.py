"""Shifts are found as soon as predicted; false alarms come as seldom as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statistical import check_at_least, check_counts, check_normal, check_variance

from mechanisms.errors import ParameterError
from mechanisms.estimators import level_models, shifts
from mechanisms.estimators.shifts import ALLOWANCE, CLIPPED, FOUND, run_length, threshold_of, watch

pytestmark = pytest.mark.slow


def quiet(draw, windows, drift, error, spread=0.0):
    """A figure that drifts and does not move."""
    levels = 0.3 + np.cumsum(draw.normal(0, drift, windows))
    return levels + draw.normal(0, math.hypot(error, spread), windows)


def survival(threshold, windows, cells=600):
    """No alarm of the upper side within so many windows: a Markov chain (Brook and Evans 1972)."""
    width = 2 * threshold / (2 * cells - 1)
    middles = np.arange(cells) * width
    ends = np.r_[-np.inf, middles + width / 2]
    added = ends - middles[:, None]
    moves = stats.norm.cdf(added + ALLOWANCE)
    moves[added >= CLIPPED * threshold] = 1.0
    moves = np.diff(moves, axis=1)
    state = np.eye(cells)[0]
    for _ in range(windows):
        state = state @ moves
    return state.sum()


def test_the_run_length_is_that_of_a_markov_chain():
    """30 weekly figures with one false alarm a year have 1,565 windows; learned models a quarter
    more."""
    for threshold in (2.5, 3.167):
        one, other = survival(threshold, 200), survival(threshold, 400)
        # After its beginning the chain ends at a constant rate.
        rate = math.log(one / other) / 200
        assert run_length(threshold) == pytest.approx(1 / rate / 2, rel=6e-3)
    assert run_length(3.167) == pytest.approx(1.25 * 30 * 365.25 / 7, rel=3e-3)


@pytest.mark.parametrize("windows", [25, 1e6])
def test_a_threshold_has_the_run_length_that_was_asked_for(windows):
    assert run_length(threshold_of(windows)) == pytest.approx(windows, rel=1e-6)


def test_a_known_drift_has_false_alarms_at_the_stated_rate():
    """Also with unequal errors and missing windows; one alarm in 100 windows.

    The two sides are as good as independent: they hardly ever both raise an alarm.
    """
    draw = np.random.default_rng(8)
    threshold, windows, figures = threshold_of(100), 60, 300
    silent = 0
    for _ in range(figures):
        errors = draw.uniform(0.5, 2, windows)
        values = np.cumsum(draw.normal(0, 0.3, windows)) + draw.normal(size=windows) * errors
        gone = draw.choice(np.arange(1, windows), 6, replace=False)
        values[gone] = errors[gone] = np.nan
        silent += not watch(values, errors, threshold, drift=0.3, spread=0.0).shifts
    # Six are missing, and the first is learned from.
    expected = survival(threshold, 53) ** 2
    check_counts([silent, figures - silent], [expected, 1 - expected], label=8)


@pytest.mark.parametrize("drift", [0.1, 0.5, 2.0])
def test_in_the_long_run_false_alarms_are_no_more_than_stated(drift, monkeypatch):
    """Also after others, after real shifts, between missing windows, and with unequal errors.

    With coarser models, or without learning from an alarm's windows, they were up to four times as
    many. One in 100 windows is stated; their number is about that of a Poisson law.
    """
    monkeypatch.setattr(shifts, "windows_to_find", lambda *_: None)
    draw, threshold, windows, figures = (
        np.random.default_rng(13),
        threshold_of(100, learned=True),
        200,
        24,
    )
    alarms = judged = 0
    for figure in range(figures):
        errors = draw.uniform(0.5, 2, windows) if figure % 2 else np.ones(windows)
        values = np.cumsum(draw.normal(0, drift, windows)) + draw.normal(size=windows) * errors
        values[30:] += 12 * (figure % 3)
        values[40] -= 25 * (figure % 2)
        values[draw.choice(np.arange(50, windows), 10, replace=False)] = np.nan
        alarms += sum(shift.window >= 50 for shift in watch(values, errors, threshold).shifts)
        judged += np.isfinite(values[50:]).sum()
    assert 0 < alarms < stats.poisson.isf(1e-9, judged / 100)


def test_a_spike_and_a_shift_do_not_hide_the_next_shift():
    """They would if they were taken for drift."""
    draw, threshold, found = np.random.default_rng(14), threshold_of(520, learned=True), 0
    for _ in range(40):
        values, errors = quiet(draw, 82, 0.0, 1.0), np.ones(82)
        values[30] += 30
        values[40:] += 10
        values[80:] += 6
        found += any(shift.window >= 80 for shift in watch(values, errors, threshold).shifts)
    check_at_least(found, 40, FOUND, label=14)


@pytest.mark.parametrize("far", [100, 300, 1e6])
@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_hundreds_of_errors_off_says_little_of_the_drift(far, lasting):
    """A figure of very many reports may move by hundreds of its standard errors at once."""
    values, errors = quiet(np.random.default_rng(50), 104, 0.0, 1.0), np.ones(104)
    before = watch(values[:90], errors[:90], threshold_of(520, learned=True))
    values[40 : 90 if lasting else 41] += far
    after = watch(values[:90], errors[:90], threshold_of(520, learned=True))
    # A single window raises no alarm, and none on the other side after it.
    assert [each.window for each in after.shifts] == [41] * lasting
    assert [each.onset for each in after.shifts] == [40] * lasting
    assert after.drift < 0.3
    assert after.smallest(4) < 1.2 * before.smallest(4)


@pytest.mark.parametrize("windows", [9, 10])
def test_a_hundred_models_predict_what_all_of_them_do(windows, monkeypatch):
    """A young figure has hundreds of likely models, and each is judged by a thousand times over."""
    watched = watch(quiet(np.random.default_rng(51), windows, 0.2, 1.0), np.ones(windows), 4.0)
    models, *_ = watched._next
    few = models.likely()
    assert len(few.drifts) == 100
    assert few.probabilities().sum() == pytest.approx(1)
    smallest = watched.smallest(4)
    monkeypatch.setattr(level_models, "_STAND", 10_000)
    assert len(models.likely().drifts) > 200
    assert smallest == pytest.approx(watched.smallest(4), rel=0.03)


def test_a_quiet_year_is_silent_where_drift_and_spread_are_learned():
    """100 figures with a false alarm in ten years each: at most so many have one in a year."""
    draw, threshold = np.random.default_rng(9), threshold_of(520, learned=True)
    for drift in (0.0, 0.2):
        years = [quiet(draw, 60, drift, 1.0, 0.5) for _ in range(100)]
        silent = sum(not watch(year, np.ones(60), threshold).shifts for year in years)
        check_at_least(silent, 100, math.exp(-52 / 520), label=(9, drift))


@pytest.mark.parametrize("given", [(None, None), (0.002, None), (0.002, 0.0)])
def test_a_planted_shift_is_found_within_the_predicted_windows(given):
    draw, threshold, found = np.random.default_rng(10), threshold_of(5200), 0
    trials = 36
    for _ in range(trials):
        values, errors = quiet(draw, 44, 0.002, 0.02), np.full(44, 0.02)
        before = watch(values[:40], errors[:40], threshold, *given)
        # The smallest shift that is to be found within four windows.
        change = before.smallest(4)
        assert change is not None
        values[40:] -= change
        found += any(
            shift.window >= 40 and shift.change < 0
            for shift in watch(values, errors, threshold, *given).shifts
        )
    check_at_least(found, trials, FOUND, label=10)


def test_size_and_error_of_a_shift_are_right_where_it_is_large():
    """So large that it is always told at once, and nothing is selected."""
    draw, threshold = np.random.default_rng(11), threshold_of(1e6)
    off = []
    for _ in range(60):
        errors = draw.uniform(0.5, 1.5, 40)
        values = np.cumsum(draw.normal(0, 0.1, 40)) + draw.normal(size=40) * errors
        values[30:] += 50
        shift = watch(values[:32], errors[:32], threshold, drift=0.1, spread=0.0).shifts[-1]
        assert (shift.onset, shift.window, shift.predicted) == (30, 31, 2)
        assert shift.high - shift.low == pytest.approx(2 * 1.96 * shift.standard_error, rel=1e-3)
        off.append((shift.change - 50) / shift.standard_error)
    check_normal(np.mean(off), 0, 1 / math.sqrt(60), label=11)
    check_variance(off, 1, label=11)


def test_after_a_shift_the_new_level_is_learned_and_a_return_is_another_shift():
    draw = np.random.default_rng(12)
    values, errors = quiet(draw, 60, 0.0, 0.01), np.full(60, 0.01)
    values[30:40] += 0.2
    values[33] = errors[33] = np.nan
    up, down = watch(values, errors, threshold_of(520)).shifts
    assert (up.onset, down.onset) == (30, 40)
    assert up.change == pytest.approx(0.2, abs=0.05)
    assert down.change == pytest.approx(-0.2, abs=0.05)
    assert up.before == pytest.approx(0.3, abs=0.02)


def test_few_windows_are_learned_from_and_none_is_no_series():
    values, errors = np.array([0.0] * 8 + [9.0] * 2), np.ones(10)
    threshold = threshold_of(520)
    assert watch(values[:8], errors[:8], threshold).judged == 0
    assert watch(values, errors, threshold).shifts[0].window == 9
    nothing = watch(np.full(3, np.nan), np.full(3, np.nan), threshold)
    assert (nothing.judged, nothing.shifts, nothing.smallest(4)) == (0, (), None)


@pytest.mark.parametrize("windows", [24, math.nan, 1e9])
def test_a_run_length_that_cannot_be_is_refused(windows):
    with pytest.raises(ParameterError, match="false alarms"):
        threshold_of(windows)


@pytest.mark.parametrize(
    ("error", "drift", "spread"),
    [(0.0, None, None), (math.nan, None, None), (1.0, -1.0, None), (1.0, None, math.inf)],
)
def test_what_is_no_series_is_refused(error, drift, spread):
    with pytest.raises(ParameterError):
        watch(np.zeros(3), np.full(3, error), 3.0, drift, spread)
