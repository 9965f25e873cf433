"""Planned looks: published boundaries, the stated error and power, the variance that they need."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statistical import check_at_least, check_binomial

from mechanisms.arrays import Floats
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.errors import ParameterError
from mechanisms.experiments import Scored, at_ends, difference, evidence
from mechanisms.looks import arm_variance, boundaries, crossings, drift_of, spent

pytestmark = pytest.mark.slow

SEED = 20_261_124
#: By number of looks: boundaries, and users at most and on average, times those of one look.
PUBLISHED = {
    2: ([2.9626, 1.9686], 1.0037, 0.921),
    3: ([3.7103, 2.5114, 1.9930], 1.0128, 0.866),
    4: ([4.3326, 2.9631, 2.3590, 2.0141], 1.0196, 0.839),
    5: ([4.8769, 3.3570, 2.6803, 2.2898, 2.0310], 1.0247, 0.824),
}
ERROR, EXPERIMENTS, WINDOWS, DEVICES = 0.05, 240, 13, 4000


@pytest.mark.parametrize("looks", PUBLISHED)
def test_published_boundaries_and_users(looks: int) -> None:
    bounds, most, average = PUBLISHED[looks]
    times = [look / looks for look in range(1, looks + 1)]
    found = boundaries(times)
    assert found == pytest.approx(bounds, abs=5e-5)
    assert crossings(found, times).sum() == pytest.approx(ERROR, abs=1e-8)
    drift = drift_of(0.8, looks=looks)
    users = (drift / drift_of(0.8)) ** 2
    assert users == pytest.approx(most, abs=5e-5)
    stops = crossings(found, times, drift)
    assert stops.sum() == pytest.approx(0.8, abs=1e-8)
    assert users * (stops @ times + 1 - stops.sum()) == pytest.approx(average, abs=5e-4)


def test_looks_that_are_not_evenly_spaced() -> None:
    assert boundaries([0.3, 0.6, 1]) == pytest.approx([3.9286, 2.6700, 1.9810], abs=5e-5)
    assert boundaries([1]) == pytest.approx([stats.norm.isf(0.025)])
    assert spent(1, 0.01) == pytest.approx(0.01)
    # The last look adds no information, so that there is one more chance for chance in name alone.
    assert boundaries([0.5, 1], [1, 1])[1] < boundaries([0.5, 1])[1]


@pytest.mark.parametrize("times", [[], [0.5, 0.5], [0.0, 1.0], [0.5, 1.1], [math.nan]])
def test_times_that_do_not_rise_are_refused(times: list[float]) -> None:
    with pytest.raises(ParameterError, match="times of looks"):
        boundaries(times)
    with pytest.raises(ParameterError, match="error"):
        boundaries([1], error=0)


def windows(
    random: np.random.Generator, epsilon: float, share: float, *, same: bool, effect: float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Return counts ``(experiments, windows, 2)`` of both arms, and scores.

    ``same``: the same devices, whose values stay, report in every window; else others in each.
    """
    mechanism = GeneralizedRandomizedResponse(epsilon, 2)
    scores = mechanism.scores(0)
    assert scores is not None
    shape = (EXPERIMENTS, 1 if same else WINDOWS)
    number = DEVICES if same else DEVICES // 2
    arm = random.binomial(number, 0.5, shape)
    found = []
    for devices, true in ((number - arm, share), (arm, share + effect)):
        having = random.binomial(devices, true)
        every = np.broadcast_to(having, (EXPERIMENTS, WINDOWS))
        yes = random.binomial(every, scores.yes[1])
        yes += random.binomial(np.broadcast_to(devices - having, every.shape), scores.no[1])
        found.append(np.stack([devices - yes, yes], axis=-1).astype(float))
    return found[0], found[1], scores.values


def at_all_looks(first: Floats, arm: Floats, values: Floats, repeats: int) -> int:
    """Return how many experiments find a difference by intervals that hold at all looks."""
    ever = np.zeros(len(first), dtype=bool)
    for each in range(len(first)):
        counts = first[each].cumsum(axis=0), arm[each].cumsum(axis=0)
        ever[each] = evidence(*counts, values, 0.0, repeats).max() >= math.log(repeats / ERROR)
    return int(ever.sum())


def planned(first: Floats, arm: Floats, values: Floats, *, kept: bool, looks: int = 4) -> int:
    """Return how many experiments find a difference at a planned look.

    ``kept``: devices may be the same in all windows.
    """
    times = [look / looks for look in range(1, looks + 1)]
    at = [max(round(time * first.shape[1]), 1) for time in times]
    found = 0
    for pair in zip(first, arm, strict=True):
        errors, apart = [], []
        for number in at:
            variance, means = 0.0, []
            for counts in (each[:number] for each in pair):
                groups = counts if kept else counts.sum(axis=0, keepdims=True)
                reports, total = groups.sum(axis=1), counts.sum(axis=0)
                shares = np.clip(groups @ values / reports, 0, 1)
                spread = shares * (1 - shares)
                each = groups @ values**2 / reports - (groups @ values / reports) ** 2
                variance += arm_variance(reports, spread, each - spread)
                means.append(total @ values / total.sum())
            errors.append(math.sqrt(variance))
            apart.append(abs(means[1] - means[0]))
        bounds = boundaries(times, [error**-2 for error in errors], ERROR)
        found += any(np.array(apart) >= np.array(bounds) * errors)
    return found


@pytest.mark.parametrize(("epsilon", "share", "published"), [(2, 0.1, 0.395), (4, 0.5, 0.56)])
def test_devices_that_repeat_break_what_does_not_know_of_them(
    epsilon: float, share: float, published: float
) -> None:
    given = windows(np.random.default_rng(SEED), epsilon, share, same=True)
    # The wrong ways: reports of a device taken for those of several.
    check_at_least(at_all_looks(*given, 1), EXPERIMENTS, published - 0.08, label=f"seed {SEED}")
    check_at_least(planned(*given, kept=False), EXPERIMENTS, 0.25, label=f"seed {SEED}")
    # The right ones.
    for wrong in (at_all_looks(*given, WINDOWS), planned(*given, kept=True)):
        check_at_least(EXPERIMENTS - wrong, EXPERIMENTS, 1 - ERROR, label=f"seed {SEED}")


def test_other_devices_in_each_window_are_added() -> None:
    given = windows(np.random.default_rng(SEED), 2, 0.3, same=False)
    wrong = at_all_looks(*given, 1)
    check_at_least(EXPERIMENTS - wrong, EXPERIMENTS, 1 - ERROR, label=f"seed {SEED}")
    check_binomial(planned(*given, kept=False), EXPERIMENTS, ERROR, label=f"seed {SEED}")


@pytest.mark.parametrize("same", [False, True])
def test_power_is_as_stated(same: bool) -> None:
    scores = GeneralizedRandomizedResponse(2, 2).scores(0)
    assert scores is not None
    share, looks = 0.3, 4
    spread = share * (1 - share)
    noise = scores.variance(share) - spread
    reports = [DEVICES / 2 if same else DEVICES / 4] * WINDOWS
    groups = (reports, [spread] * WINDOWS, [noise] * WINDOWS)
    one = arm_variance(*groups) if same else (spread + noise) / sum(reports)
    effect = drift_of(0.8, looks=looks) * math.sqrt(2 * one)
    given = windows(np.random.default_rng(SEED), 2, share, same=same, effect=effect)
    found = planned(*given, kept=same, looks=looks)
    # Within five points of it, but for chance.
    for each, least in ((found, 0.75), (EXPERIMENTS - found, 0.15)):
        check_at_least(each, EXPERIMENTS, least, label=f"seed {SEED}")


def test_counts_of_which_the_average_alone_is_known_give_no_narrower_interval() -> None:
    values = np.array([-1.0, 0.2, 0.7, 2.0])
    known = [np.array(each) for each in ([3000, 4000, 2000, 1000], [2800, 4000, 2100, 1100])]
    means = [at_ends(values, each.sum(), each @ values / each.sum()) for each in known]
    exact, wide = (
        difference(*(Scored("mean", "", values, counts) for counts in each))
        for each in (known, means)
    )
    assert wide.value == pytest.approx(exact.value)
    assert wide.low < exact.low < exact.high < wide.high
    two = np.array([-0.5, 1.5])
    assert at_ends(two, 100, 0.1) == pytest.approx([70, 30])
