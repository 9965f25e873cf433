"""Panels over many periods: what is estimated, and how precisely.

Turns are those of the SDK, and each value is drawn as a chain, without a store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from device_plans import HOUR, WEEK, metric, plan
from statistical import check_at_least, check_variance

from clientsdk.store import device_secrets
from mechanisms.planner.targets import Assumed
from mechanisms.randomness import SystemSource
from sotto.design.metric import Terms, in_panels
from sotto.design.questions import question_of

pytestmark = pytest.mark.slow

#: The probability of a yes; a week's share is near it.
SHARE = 0.3
LATE = metric(
    "late",
    type="boolean",
    mechanism={"name": "grr", "domain_size": 2},
    panel=5,
    window=WEEK,
    ladder=[(500_000, 0), (2_000_000, HOUR)],
)
PLAN = plan({key: value for key, value in LATE.items() if key not in ("domain", "outside")})


def windows(
    secrets: Sequence[bytes], share: float, panel: int, cycles: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, period by period, who has his turn, all true answers, and what is reported."""
    mechanism, source = PLAN.metrics[0].mechanism, SystemSource()
    rng = np.random.default_rng(11)
    slots = np.array(
        [[device_secrets.slot(each, panel, cycle) for cycle in range(cycles)] for each in secrets]
    )
    for period in range(panel * cycles):
        turn = slots[:, period // panel] == period % panel
        true = rng.random(len(secrets)) < share
        says = np.array(
            [
                mechanism.draw(int(each), bytes(16), bytes(16), source)[-1] == b"\1"
                for each in true[turn]
            ]
        )
        yield turn, true, says


@pytest.mark.parametrize("panel", [1, 13])
def test_coverage_and_errors_are_those_of_the_design(panel: int) -> None:
    """``sotto design --panels`` predicts them; the truth is that of all users for ``of_all``."""
    source = SystemSource()
    users, cycles = 1300, {1: 208, 13: 40}[panel]
    secrets = [source.bits(256).to_bytes(32, "little") for _ in range(users)]
    asked = question_of(
        "boolean", [500_000, 2_000_000], {}, mechanism="grr", assumed=Assumed(share=SHARE)
    )
    row = predicted(asked, users, panel)
    errors, of_all, covered = [], [], 0
    for turn, true, says in windows(secrets, SHARE, panel, cycles):
        counts = np.zeros((2, 2), np.int64)
        counts[1] = np.bincount(says.astype(np.int64), minlength=2)
        estimate = PLAN.metrics[0].mechanism.frequencies(counts)[1]
        truth = float(true[turn].mean())
        low, high = estimate.interval(0.95)
        covered += low <= truth <= high
        # The design is for users/N reports; as many as there are vary about that.
        scale = math.sqrt(len(says) / row.reports)
        errors.append((estimate.value - truth) * scale)
        of_all.append((estimate.value - float(true.mean())) * scale)
    check_at_least(covered, panel * cycles, 0.94, label=f"coverage, panel {panel}")
    check_variance(errors, row.error**2, label=f"error, panel {panel}")
    check_variance(of_all, row.of_all**2, label=f"error of all, panel {panel}")
    if panel > 1:
        with pytest.raises(AssertionError):
            check_variance(errors, row.error**2 / panel, label="as if all had answered")


def predicted(asked, users: int, panel: int):
    from sotto.design.metric import Goal, design

    (row,) = in_panels(design(asked, Goal(), users), (panel,), Terms(WEEK, 2_000_000, None))
    return row
