"""What a ladder is worth beside fresh reports and noisy sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replicas import replicate
from statistical import check_variance

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.planner.comparison import epsilon_for, sampled_instead, steps
from mechanisms.planner.precision import precision
from mechanisms.planner.targets import Assumed
from mechanisms.registry import build

SEED = 20261126
LADDER = [500_000, 1_000_000, 2_000_000]
GRR: dict[str, Any] = {"name": "grr", "domain_size": 5}
CHAIN = build(GRR, LADDER, "m")


def grr(micro: int) -> Mechanism:
    return build(GRR, [micro], "m")


def test_relaxing_beats_fresh_reports_of_the_same_total() -> None:
    found = steps(CHAIN, grr, lambda made, level: precision(made, level).standard_error(10_000))
    assert [step.certified for step in found] == LADDER
    assert found[0].fresh == pytest.approx(found[0].relaxed, rel=1e-9)
    for step in found[1:]:
        assert step.fresh is not None
        assert step.relaxed < step.fresh


def test_fresh_reports_as_simulated() -> None:
    """Averaged with weights by inverse variance, they have the stated error."""
    n, repeats = 1000, 150
    symbols = np.arange(n) % 5
    assumed = Assumed(share=0.2)
    parts, weights = [], []
    for number, micro in enumerate((500_000, 500_000, 1_000_000)):
        mechanism = build(GRR, [micro], "m")
        counts = replicate(mechanism, symbols, 0, repeats, SEED + number)
        parts.append([mechanism.frequencies(table)[0].value for table in counts])
        weights.append(precision(mechanism, 0, assumed).standard_error(n) ** -2)
    stated = steps(
        CHAIN, grr, lambda made, level: precision(made, level, assumed).standard_error(n)
    )[-1].fresh
    assert stated is not None
    check_variance(np.average(parts, axis=0, weights=weights), stated**2, label=f"seed {SEED}")


def test_noisy_sampling_begins_alike_and_ends_worse() -> None:
    rows = sampled_instead(LADDER, 1000)
    assert [row.samples for row in rows] == [1, 2, 3]
    assert rows[0].epsilon == pytest.approx(0.5, rel=1e-12)
    assert rows[0].noisy_sampling == pytest.approx(rows[0].relaxation, rel=1e-12)
    for row in rows[1:]:
        assert row.epsilon < 2
        assert row.relaxation < row.noisy_sampling


def test_one_level_has_nothing_to_be_sampled_instead() -> None:
    with pytest.raises(ParameterError, match="two levels"):
        sampled_instead([500_000], 10)


def test_the_epsilon_is_the_least_thousandth_that_is_enough() -> None:
    micro = epsilon_for(grr, lambda made: precision(made, 0).width(10_000), 0.02)
    assert micro is not None
    assert micro % 1000 == 0
    assert precision(grr(micro), 0).width(10_000) <= 0.02
    assert precision(grr(micro - 1000), 0).width(10_000) > 0.02
    assert epsilon_for(grr, lambda made: precision(made, 0).width(10), 1e-9) is None
