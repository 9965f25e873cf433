"""Maximum likelihood over mixed channels: closed forms, the plain EM, coverage, what is unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from replicas import replicate
from statistical import check_at_least

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.estimators.expectation import GAP, EmEstimate, expectation_maximization, smoothed
from mechanisms.estimators.variance import share_variance
from mechanisms.registry import build

SEED = 31415926


def response(size: int, p: float) -> NDArray[np.float64]:
    q = (1 - p) / (size - 1)
    return np.full((size, size), q) + (p - q) * np.eye(size)


def windows(size: int, width: int, likely: float) -> NDArray[np.float64]:
    """Every output of a window around the input, cut off at the ends, is as likely: singular."""
    start = np.clip(np.arange(size) - width // 2, 0, size - width)
    inside = (np.arange(size) >= start[:, None]) & (np.arange(size) < start[:, None] + width)
    weights = np.where(inside, likely, 1.0)
    return weights / weights.sum(axis=1, keepdims=True)


def em(
    channels: list[NDArray[np.float64]], counts: list[NDArray[np.int64]], rounds: int
) -> tuple[NDArray[np.float64], float]:
    """The textbook's rounds, from equal shares: shares and log-likelihood."""
    stacked, seen = np.concatenate(channels, axis=1), np.concatenate(counts)
    theta = np.full(len(stacked), 1 / len(stacked))
    for _ in range(rounds):
        theta = theta * (stacked @ (seen / (theta @ stacked))) / seen.sum()
    return theta, float(seen @ np.log(theta @ stacked))


@pytest.mark.parametrize("size", [2, 3, 17])
@pytest.mark.parametrize("p", [0.4, 0.9])
def test_inside_the_simplex_it_is_the_inverse_with_its_variance(size: int, p: float) -> None:
    p = max(p, 1.3 / size)
    channel, n = response(size, p), 100_000
    counts = np.round(n * (np.arange(1, size + 1) / size / (size + 1) * 2 @ channel)).astype(int)
    found = expectation_maximization([channel], [counts])
    n, q = int(counts.sum()), channel[0, 1]
    inverse = (counts / n - q) / (p - q)
    assert inverse.min() > 0
    # The likelihood is within GAP of the largest one.
    assert np.abs(found.values - inverse).max() <= 0.02 * found.standard_errors.min()
    stated = [math.sqrt(share_variance(p, q, share) / n) for share in inverse]
    assert found.standard_errors == pytest.approx(stated, rel=1e-3)
    assert found.rank == size
    assert found.converged


def test_at_the_boundary_the_rest_is_zero() -> None:
    found = expectation_maximization([response(2, 0.75)], [np.array([900, 100])])
    assert found.values == pytest.approx([1, 0], abs=1e-6)
    assert found.log_likelihood == pytest.approx(900 * math.log(0.75) + 100 * math.log(0.25))
    # As without the boundary: sqrt(p q / n) / (p - q).
    assert found.standard_errors == pytest.approx([math.sqrt(0.1875 / 1000) / 0.5] * 2, rel=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_no_shares_are_likelier(seed: int) -> None:
    """Random channels of unequal outputs at two levels, few reports: EM comes no higher."""
    generator = np.random.default_rng(SEED + seed)
    inputs = 2 + seed
    channels = [generator.dirichlet(np.ones(outputs), size=inputs) for outputs in (3, 7)]
    truth = generator.dirichlet(np.full(inputs, 0.3))
    counts = [generator.multinomial(60, truth @ channel) for channel in channels]
    found = expectation_maximization(channels, counts)
    _, reached = em(channels, counts, 3000)
    assert found.converged
    assert found.log_likelihood >= reached - GAP
    assert (found.values >= 0).all()
    assert found.values.sum() == pytest.approx(1)


def test_the_information_is_minus_the_second_derivative() -> None:
    channels = [response(3, 0.5), response(3, 0.8)]
    truth = np.array([0.2, 0.3, 0.5])
    counts = [np.round(2000 * truth @ channels[0]), np.round(8000 * truth @ channels[1])]
    counts = [row.astype(int) for row in counts]
    found = expectation_maximization(channels, counts)
    basis = np.array([[1, -1, 0], [0, 1, -1]]).T / 1.0
    hessian = np.zeros((3, 3))
    for channel, seen in zip(channels, counts, strict=True):
        hessian += channel @ np.diag(seen / (found.values @ channel) ** 2) @ channel.T
    inverse = basis @ np.linalg.inv(basis.T @ hessian @ basis) @ basis.T
    sample = (np.diag(found.values) - np.outer(found.values, found.values)) / 10_000
    assert found.covariance == pytest.approx(inverse - sample, rel=2e-3, abs=1e-9)


def test_what_the_channel_confounds_is_not_determined() -> None:
    """Edge rows of windows are equal: their sum is known and they are not."""
    channel = windows(8, 3, 6.0)
    counts = np.full(8, 1000)
    found = expectation_maximization([channel], [counts])
    assert found.rank == np.linalg.matrix_rank(channel) == 6
    assert np.isinf(found.standard_errors).tolist() == [True, True, *[False] * 4, True, True]
    assert 0 < found.covariance[:2, :2].sum() < 1
    # A second level at which all is determined determines all.
    both = expectation_maximization([channel, response(8, 0.5)], [counts, counts])
    assert both.rank == 8
    assert np.isfinite(both.standard_errors).all()
    none = expectation_maximization([channel, response(8, 0.5)], [counts, 0 * counts])
    assert none.rank == 6


def test_a_channel_that_says_little_still_has_full_rank() -> None:
    """Epsilon a millionth: the information is small and not absent."""
    channel = response(50, 0.02 * (1 + 1e-6))
    found = expectation_maximization([channel], [np.full(50, 10**6)])
    assert found.rank == 50
    q = channel[0, 1]
    stated = math.sqrt(share_variance(channel[0, 0], q, 0.02) / 5e7)
    assert found.standard_errors == pytest.approx([stated] * 50, rel=1e-6)


def coverage(mechanism: Mechanism, truth: NDArray[np.int64], repeats: int) -> list[float]:
    levels = np.arange(len(truth)) % mechanism.levels
    tables = replicate(mechanism, truth, levels, repeats, SEED)
    channels = [response(4, mechanism.probabilities(c)[0][0]) for c in range(mechanism.levels)]
    expected = np.bincount(truth, minlength=4) / len(truth)
    deviations = []
    for table in tables:
        found = expectation_maximization(channels, list(table))
        deviations.append(np.abs(found.values - expected) / found.standard_errors)
    return list(np.array(deviations).T)


def test_intervals_cover_the_shares_among_these_clients() -> None:
    """Inside the simplex, and where three of four values have no client at all."""
    mechanism = build({"name": "grr", "domain_size": 4}, [500_000, 1_000_000, 2_000_000], "m")
    inside = np.random.default_rng(SEED).permutation(np.repeat([0, 1, 2, 3], [900, 600, 300, 1200]))
    for truth in (inside, np.full(3000, 2)):
        for deviations in coverage(mechanism, truth, 150):
            check_at_least(int((deviations <= 1.96).sum()), 150, 0.94, label=f"seed {SEED}")
            wrong = int((deviations <= 1.96 / 2).sum())
            if truth is inside:
                # Errors half as large would be caught.
                with pytest.raises(AssertionError):
                    check_at_least(wrong, 150, 0.94)


def test_smoothing_is_the_rounds_of_the_paper() -> None:
    channel = windows(32, 9, 5.0)
    truth = np.exp(-(((np.arange(32) - 12) / 6.0) ** 2))
    counts = np.random.default_rng(SEED).multinomial(3000, truth / truth.sum() @ channel)
    found = expectation_maximization([channel], [counts], smooth=True)
    theta = np.full(32, 1 / 32)
    for _ in range(found.iterations):
        theta = theta * (channel @ (counts / (theta @ channel)))
        theta /= theta.sum()
        inner = 0.25 * theta[:-2] + 0.5 * theta[1:-1] + 0.25 * theta[2:]
        first, last = (2 * theta[0] + theta[1]) / 3, (2 * theta[-1] + theta[-2]) / 3
        theta = np.concatenate([[first], inner, [last]])
        theta /= theta.sum()
    assert found.values == pytest.approx(theta)
    assert found.converged
    assert np.isinf(found.standard_errors).all()
    plain = expectation_maximization([channel], [counts])
    true = truth / truth.sum()
    assert ((found.values - true) ** 2).sum() < ((plain.values - true) ** 2).sum() / 4
    assert smoothed(np.array([2.0])).tolist() == [1.0]


def test_no_reports_determine_nothing() -> None:
    found = expectation_maximization([response(3, 0.6)], [np.zeros(3, dtype=int)])
    assert isinstance(found, EmEstimate)
    assert np.isnan(found.values).all()
    assert np.isinf(found.standard_errors).all()
    assert found.rank == 0


@pytest.mark.parametrize(
    ("channels", "counts", "message"),
    [
        ([], [], "do not fit"),
        ([np.eye(2)], [], "do not fit"),
        ([np.eye(2), np.eye(3)], [np.array([1, 1])] * 2, "same inputs"),
        ([np.full((2, 2), 0.6)], [np.array([1, 1])], "distribution"),
        ([np.full((2, 2), math.nan)], [np.array([1, 1])], "distribution"),
        ([np.eye(2)], [np.array([1, 1, 1])], "must be 2 integers"),
        ([np.eye(2)], [np.array([1, -1])], "must be 2 integers"),
        ([np.eye(2)], [np.array([0.5, 1])], "must be 2 integers"),
        ([np.array([[1.0, 0.0], [1.0, 0.0]])], [np.array([5, 1])], "no input has"),
    ],
)
def test_what_does_not_fit_is_refused(
    channels: list[NDArray[np.float64]], counts: list[NDArray[np.int64]], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        expectation_maximization(channels, counts)


def test_many_inputs_take_few_rounds() -> None:
    channel = response(300, 0.05)
    truth = np.random.default_rng(SEED).dirichlet(np.full(300, 0.3))
    counts = np.random.default_rng(SEED).multinomial(10**6, truth @ channel)
    found = expectation_maximization([channel], [counts])
    assert found.converged
    assert found.iterations < 40


def test_the_ends_of_what_can_be_asked() -> None:
    """A channel that tells all, or nothing; one input; one output; one report; 10**15 of them."""
    found = expectation_maximization([np.eye(3)], [np.array([10, 0, 5])])
    assert found.values == pytest.approx([2 / 3, 0, 1 / 3], abs=1e-6)
    assert found.standard_errors == pytest.approx([0, 0, 0], abs=1e-6)
    found = expectation_maximization([np.full((3, 4), 0.25)], [np.array([1, 2, 3, 4])])
    assert found.rank == 1
    assert np.isinf(found.standard_errors).all()
    found = expectation_maximization([np.array([[0.5, 0.5]])], [np.array([3, 4])])
    assert (found.values.tolist(), found.standard_errors.tolist()) == ([1.0], [0.0])
    found = expectation_maximization([np.ones((3, 1))], [np.array([3])])
    assert (found.rank, found.converged) == (1, True)
    found = expectation_maximization([response(50, 0.1)], [np.eye(50, dtype=int)[3]])
    assert found.values[3] == pytest.approx(1, abs=1e-4)
    channel = response(5, 0.5)
    counts = np.array([20, 25, 15, 22, 18]) * 10**13
    found = expectation_maximization([channel], [counts])
    assert found.converged
    assert found.values == pytest.approx((counts / counts.sum() - 0.125) / 0.375, abs=1e-6)
