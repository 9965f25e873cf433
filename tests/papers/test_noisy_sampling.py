"""Noisy sampling: its cost and variance exactly, and that relaxation is never worse."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from statistical import check_counts, check_normal

from mechanisms.errors import ParameterError
from mechanisms.testing import SeededSource
from papers.gradual_release.comparison import compare, noisy_sampling_epsilon
from papers.gradual_release.noisy_sampling import NoisySampling, noisy_sampling_variance

SEED = 20260301
EPSILONS = st.one_of(
    st.floats(1e-12, 1e-6), st.floats(1e-6, 1), st.floats(1, 40), st.floats(40, 700)
)


@settings(max_examples=30)
@given(EPSILONS, EPSILONS, st.integers(1, 10**6))
@example(1e-12, 1e-12, 1)
@example(700.0, 700.0, 1)
@example(1e-12, 700.0, 10**6)
def test_cost_loses_nothing(permanent: float, sample: float, samples: int) -> None:
    # The product of the float and the integer is itself rounded once.
    total = samples * sample
    with localcontext(Context(prec=700, Emax=10**9, Emin=-(10**9))):
        one = Decimal(permanent).exp()
        many = Decimal(min(total, 1500.0)).exp()
        expected = ((one * many + 1) / (one + many)).ln()
        error = abs(Decimal(noisy_sampling_epsilon(permanent, sample, samples)) - expected)
        assert error <= Decimal("1e-13") * expected


@given(st.floats(1e-6, 20), st.floats(1e-6, 20))
def test_relaxation_never_has_more_variance(permanent: float, sample: float) -> None:
    rows = compare(permanent, sample, [1, 2, 3, 10, 1000], 50)
    assert rows[0].relaxation == pytest.approx(rows[0].noisy_sampling, rel=1e-9)
    for before, row in itertools.pairwise(rows):
        assert row.relaxation <= row.noisy_sampling * (1 + 1e-9)
        assert row.epsilon >= before.epsilon
    alpha, beta = (1 / (1 + math.exp(-epsilon)) for epsilon in (permanent, sample))
    if min(permanent, sample) > 1e-3:
        stated = noisy_sampling_variance(alpha, beta, 10, 50)
        assert rows[3].noisy_sampling == pytest.approx(stated, rel=1e-6)


def law(mechanism: NoisySampling, bit: int) -> dict[tuple[int, ...], float]:
    """All sequences of reports."""
    wrong, missed = mechanism.wrong
    out = {}
    for reports in itertools.product((0, 1), repeat=mechanism.samples):
        total = 0.0
        for permanent in (0, 1):
            share = wrong if permanent != bit else 1 - wrong
            for report in reports:
                share *= missed if report != permanent else 1 - missed
            total += share
        out[reports] = total
    return out


@pytest.mark.parametrize(("permanent", "sample", "samples"), [(1, 0.5, 1), (1, 0.5, 6), (3, 2, 4)])
def test_loss_and_variance_by_enumeration(permanent: float, sample: float, samples: int) -> None:
    mechanism = NoisySampling(permanent, sample, samples)
    zero, one = law(mechanism, 0), law(mechanism, 1)
    worst = max(abs(math.log(one[o] / zero[o])) for o in zero)
    assert worst == pytest.approx(mechanism.epsilon, rel=1e-12)
    mean = square = 0.0
    wrong, missed = mechanism.wrong
    for reports, share in one.items():
        value = (sum(reports) / samples - missed) / (1 - 2 * missed)
        value = (value - wrong) / (1 - 2 * wrong)
        mean, square = mean + share * value, square + share * value**2
    assert mean == pytest.approx(1, rel=1e-12)
    stated = noisy_sampling_variance(1 - wrong, 1 - missed, samples, 1)
    assert square - 1 == pytest.approx(stated, rel=1e-9)


def test_samples_are_drawn_by_their_law() -> None:
    mechanism, n = NoisySampling(1.5, 1.0, 3), 200_000
    for bit in (0, 1):
        reports = mechanism.randomize(np.full(n, bit), SeededSource(SEED + bit))
        codes = np.bincount(reports @ np.array([4, 2, 1]), minlength=8)
        check_counts(codes, list(law(mechanism, bit).values()), label=f"seed {SEED + bit}")
        with pytest.raises(AssertionError):
            check_counts(codes, list(law(mechanism, 1 - bit).values()))


def test_estimates() -> None:
    mechanism, bits = NoisySampling(2.0, 1.0, 5), np.repeat([0, 1], [6000, 4000])
    found = mechanism.estimate(mechanism.randomize(bits, SeededSource(SEED)))
    check_normal(found.value, 0.4, found.standard_error, label=f"seed {SEED}")
    assert found.n == 10_000


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 701.0])
def test_epsilons_outside_their_range_are_refused(bad: float) -> None:
    for pair in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(ParameterError):
            noisy_sampling_epsilon(*pair, 1)
        with pytest.raises(ParameterError):
            compare(*pair, [1], 10)


def test_other_parameters_outside_their_range_are_refused() -> None:
    for call in (lambda: noisy_sampling_epsilon(1.0, 1.0, 0), lambda: compare(1.0, 1.0, [1], 0)):
        with pytest.raises(ParameterError):
            call()
