"""Several reports of one permanent response: intervals that cover all the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statistical import check_at_least, check_variance
from step_plans import DAY, HOUR, PERIOD, category, plan

from mechanisms.estimate import Estimate
from mechanisms.testing import SeededSource
from pipelines.aggregation.result_rows import design_effect
from sotto.plan.compiled import CompiledPlan

SEED = 161803
RUNS, DEVICES, PERIODS = 250, 60, 4


def constant(window: int, mechanism: str = "grr") -> CompiledPlan:
    """A plan with a constant metric of four values: epsilon 2 is sent, 3 is permanent."""
    fields = category("model", 4, 2, 3, mechanism=mechanism)
    ladder = [{"epsilon": 2_000_000, "after": 0}, {"epsilon": 3_000_000, "after": 0}]
    repeat = {"kind": "constant", "limit": 1}
    return plan(1, 10, {**fields, "ladder": ladder, "repeat": repeat, "window": window})


@pytest.mark.parametrize(
    ("window", "periods"),
    [(PERIOD, 1), (DAY, 1), (4 * PERIOD, 4), (PERIOD + HOUR, 3), (5 * DAY, 2)],
)
def test_the_effect_is_that_of_the_periods_of_a_window(window, periods):
    made = constant(window)
    effect = design_effect(made, made.metrics[0])
    assert (effect == 1) == (periods == 1)
    assert 1 <= effect <= periods
    again = constant(4 * PERIOD)
    share = (design_effect(again, again.metrics[0]) - 1) / 3
    assert effect == pytest.approx(1 + (periods - 1) * share)


def test_metrics_that_are_not_constant_are_left_alone():
    made = plan(1, 10, category("colour", 4, 2, 3))
    assert design_effect(made, made.metrics[0]) == 1
    estimate = Estimate(0.5, 0.1, 9, (9,), detection_floor=0.2)
    assert estimate.widened(1.0) is estimate
    larger = estimate.widened(4.0)
    assert (larger.standard_error, larger.detection_floor) == (0.2, 0.4)
    low, high = larger.interval()
    assert math.isclose(high - low, 4 * 0.2 * 0.98, rel_tol=1e-3)


@pytest.mark.parametrize("mechanism", ["grr", "oue"])
def test_widened_intervals_cover_and_plain_ones_would_not(mechanism):
    """The variance of the estimates is what is stated; without the effect it would be too small."""
    made = constant(4 * PERIOD, mechanism)
    metric, source = made.metrics[0], SeededSource(SEED)
    ladder = metric.mechanism
    effect = design_effect(made, metric)
    assert effect > 1.5
    nobody, zeros = bytes(16), np.zeros((PERIODS * DEVICES, 2), dtype=np.uint64)
    found, covered, errors = [], 0, []
    for _ in range(RUNS):
        sent = []
        for device in range(DEVICES):
            # A quarter of the devices has each value.
            last = ladder.draw_last(device % 4, nobody, nobody, source)
            sent += [ladder.weaker(last, source)[0] for _ in range(PERIODS)]
        payloads = np.frombuffer(b"".join(sent), dtype=np.uint8).reshape(len(sent), -1)
        groups = np.zeros(len(sent), dtype=np.int64)
        counts = np.zeros((2, ladder.count_length), dtype=np.int64)
        counts[0] = ladder.accumulate(payloads, zeros, zeros, groups, 1)[0]
        estimate = ladder.frequencies(counts)[0].widened(effect)
        low, high = estimate.interval()
        covered += low <= 0.25 <= high
        found.append(estimate.value)
        errors.append(estimate.standard_error**2)
    check_at_least(covered, RUNS, 0.93, label=f"seed {SEED}")
    stated = float(np.mean(errors))
    assert np.var(found) < stated * 1.5
    with pytest.raises(AssertionError):
        check_variance(found, stated / effect, label="without the effect")


def test_no_category_of_a_hadamard_block_shares_more_noise_than_is_stated():
    """Every pair of a true category and an estimated one, exactly: 16 categories in 4 blocks."""
    fields = category("model", 16, 2, 4, mechanism="hadamard")
    fields["mechanism"]["blocks"] = 4
    ladder = [{"epsilon": 2_000_000, "after": 0}, {"epsilon": 4_000_000, "after": 0}]
    changes = {"ladder": ladder, "repeat": {"kind": "constant", "limit": 1}, "window": 2 * PERIOD}
    made = plan(1, 10, {**fields, **changes})
    metric = made.metrics[0]
    chain = metric.mechanism.chain
    outputs = list(chain.outputs())
    support = np.array([[chain.supports(x, output) for output in outputs] for x in range(16)])
    in_block = np.array([[x % 4 == output // 8 for output in outputs] for x in range(16)])
    spreads = []
    for level in chain.exact:
        p = float(level.p)
        gap = float(level.p - level.q)
        law = np.where(support, p / support.sum(axis=1, keepdims=True), 0.0)
        law += np.where(support, 0.0, (1 - p) / (~support).sum(axis=1, keepdims=True))
        score = np.where(in_block, np.where(support, 1.0, -1.0), 0.0) / gap
        mean = law @ score.T
        np.testing.assert_allclose(mean, np.eye(16), atol=1e-9)
        spreads.append(law @ (score**2).T - mean**2)
    worst = float((spreads[1] / spreads[0]).max())
    assert worst > 0.3
    assert design_effect(made, metric) - 1 == pytest.approx(worst)
