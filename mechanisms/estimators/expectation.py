"""Shares behind any finite channels, by maximum likelihood (EM, iterative Bayesian update).

A channel that cannot be inverted, or has more outputs than inputs, has no unbiased estimator or
more than one. The likelihood of all levels together has a maximum all the same, and the same
matrices say which shares it determines and how well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.arrays import Floats, Ints
from mechanisms.errors import ParameterError

#: A likelihood so close to the largest one leaves the values within a hundredth of a standard
#: error of the maximum.
GAP = 5e-5
#: For very many reports it is this part of their number, which is what floating point tells.
ROUNDING = 1e-14
#: Newton steps, and rounds of expectation, maximization and smoothing, at most.
MAX_STEPS, MAX_ROUNDS = 200, 10_000
#: Smoothed rounds end when the log-likelihood changes by less.
SMOOTH_CHANGE = 1e-3
#: Share of the way to the boundary that a step goes at most.
_INSIDE = 0.99
#: A share is determined if at most this part of it lies in the space that reports do not see.
_UNSEEN = 1e-9


@dataclass(frozen=True, eq=False)
class EmEstimate:
    """Shares of the inputs at the largest likelihood.

    ``values`` are non-negative, with sum one; NaN without reports. ``standard_errors`` are about
    the shares among these clients: infinite where the reports do not determine a share, which then
    is one of many that are equally likely, and everywhere after smoothing. ``covariance`` is that
    of the values in the directions that are determined, zero in the others; ``rank`` that of all
    channels with reports side by side: ``inputs`` if every share is determined. ``log_likelihood``
    is in nats, without the multinomial coefficient; ``converged`` says whether it is within
    :data:`GAP` of the largest, or after smoothing whether it is at rest.
    """

    values: Floats
    standard_errors: Floats
    covariance: Floats
    log_likelihood: float
    iterations: int
    converged: bool
    rank: int


def expectation_maximization(
    channels: Sequence[Floats], counts: Sequence[Ints], *, smooth: bool = False
) -> EmEstimate:
    """Estimate the shares of inputs from reports of one or more channels.

    Parameters
    ----------
    channels : sequence of ndarray, shape (inputs, outputs)
        One a level, row-stochastic; outputs may differ between levels.
    counts : sequence of ndarray, shape (outputs,), integers
        Reports of each output, one row a level.
    smooth : bool
        Smooth the shares over neighbouring inputs after every round (EMS), for ordered inputs
        with a smooth law. The result is no maximum and has no standard errors.

    Notes
    -----
    The likelihood multiplies the levels, which is right if levels do not depend on values; unlike
    the unbiased estimator with equal weights this one is biased where they do. The log-likelihood
    is concave. Its maximum, to which EM climbs in as many as 1e5 rounds at small epsilon, is found
    by primal-dual Newton steps, and proved by the gradient: no shares have a likelihood above the
    present one by more than max_x Σ_o n_o C[x,o]/P(o) − n.

    With I = Σ n_c C diag(1/P) Cᵀ the information at the estimate, the covariance is
    I⁺ − (diag θ − θθᵀ)/n, I⁺ the pseudo-inverse on what is determined of the differences between
    shares: the second term is the part of a random sample, while these clients' values are fixed.
    Shares at the boundary are not taken as known to be zero. The errors are those of the estimate
    without the boundary, which lies further from the truth in the metric of I; at the boundary
    itself an interval of so many errors is wider than it needs to be, and the estimate is biased.

    References
    ----------
    D. Agrawal, C. C. Aggarwal, "On the Design and Quantification of Privacy Preserving Data Mining
    Algorithms", PODS 2001 (EM). E. ElSalamouny, C. Palamidessi, "Generalized Iterative Bayesian
    Update and Applications to Mechanisms for Privacy Protection", EuroS&P 2020 (mixed channels).
    Z. Li, T. Wang, M. Lopuhaä-Zwakenberg, N. Li, B. Škoric, "Estimating Numerical Distributions
    under Local Differential Privacy", SIGMOD 2020, Algorithm 1 (EMS).

    Examples
    --------
    >>> channel = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> found = expectation_maximization([channel], [np.array([600, 400])])
    >>> found.values.round(4), found.standard_errors.round(4)
    (array([0.7, 0.3]), array([0.0274, 0.0274]))
    """
    stacked, seen, reports = _stack(channels, counts)
    inputs, n = stacked.shape[0], int(seen.sum())
    if n == 0:
        nothing, errors = np.full(inputs, np.nan), np.full(inputs, np.inf)
        return EmEstimate(nothing, errors, np.zeros((inputs, inputs)), 0.0, 0, True, 0)
    climb = smoothed_rounds if smooth else largest_likelihood
    values, iterations, converged = climb(stacked, seen)
    directions, spread = _information(stacked, stacked.T @ values, reports)
    covariance = (directions * spread) @ directions.T
    sample = np.diag(values) - np.outer(values, values)
    # Only what is determined of the sample's part may be taken away.
    kept = directions.T @ sample @ directions
    covariance -= directions @ (kept / n) @ directions.T
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    unseen = 1 - 1 / inputs - (directions**2).sum(axis=1)
    errors[(unseen > _UNSEEN) | smooth] = np.inf
    counted = seen > 0
    likelihood = float(seen[counted] @ np.log((values @ stacked)[counted]))
    rank = 1 + directions.shape[1]
    return EmEstimate(values, errors, covariance, likelihood, iterations, converged, rank)


def _stack(channels: Sequence[Floats], counts: Sequence[Ints]) -> tuple[Floats, Ints, Floats]:
    """Put the levels that have reports side by side, with the level's reports for each column."""
    if not channels or len(channels) != len(counts):
        raise ParameterError(f"{len(counts)} rows of counts do not fit {len(channels)} channels")
    matrices = [np.asarray(channel, dtype=np.float64) for channel in channels]
    rows = [np.asarray(row) for row in counts]
    for matrix, row in zip(matrices, rows, strict=True):
        if matrix.ndim != 2 or matrix.shape[0] != matrices[0].shape[0] or not matrix.size:
            raise ParameterError("channels must be matrices over the same inputs")
        sums = np.abs(matrix.sum(axis=1) - 1)
        if not ((matrix >= 0).all() and (sums <= 1e-9).all()):
            raise ParameterError("every row of a channel must be a distribution")
        if row.shape != matrix.shape[1:] or row.dtype.kind not in "iu" or (row < 0).any():
            raise ParameterError(
                f"counts must be {matrix.shape[1]} integers, none of them negative"
            )
        if (row[matrix.max(axis=0) == 0] > 0).any():
            raise ParameterError("an output was counted that no input has")
    present = [i for i, row in enumerate(rows) if row.any()] or [0]
    stacked = np.concatenate([matrices[i] for i in present], axis=1)
    seen = np.concatenate([rows[i] for i in present]).astype(np.int64)
    reports = np.concatenate([np.full(len(rows[i]), float(rows[i].sum())) for i in present])
    possible = stacked.max(axis=0) > 0
    return np.ascontiguousarray(stacked[:, possible]), seen[possible], reports[possible]


def _information(channel: Floats, fitted: Floats, reports: Floats) -> tuple[Floats, Floats]:
    """Return the determined directions and the variance of the estimate along each of them."""
    weights = np.sqrt(reports / np.where(fitted > 0, fitted, np.inf))
    whole = channel * weights
    centred = (channel - channel.mean(axis=0)) * weights
    directions, singular, _ = np.linalg.svd(centred, full_matrices=False)
    floor = max(whole.shape) * np.finfo(np.float64).eps * math.sqrt(float((whole**2).sum()))
    determined = singular > floor
    spread: Floats = 1 / singular[determined] ** 2
    return directions[:, determined], spread


def largest_likelihood(channel: Floats, seen: Ints) -> tuple[Floats, int, bool]:
    """Maximize the likelihood by primal-dual Newton steps: values, steps, whether it is proved.

    Without a constraint on the sum, Σ f log P − Σ θ has its maximum over θ ≥ 0 where the sum is
    one. Its multipliers z and shares θ approach θ z = 0 from inside.
    """
    columns = np.flatnonzero(seen)
    matrix = np.ascontiguousarray(channel[:, columns])
    n, shares = int(seen.sum()), seen[columns] / seen.sum()
    inputs = len(matrix)
    theta, slack = np.full(inputs, 1 / inputs), np.full(inputs, 1.0)
    best, lowest = theta, math.inf
    for step in range(MAX_STEPS):
        theta = theta / theta.sum()
        fitted = theta @ matrix
        gradient = matrix @ (shares / fitted)
        gap = n * (float(gradient.max()) - 1)
        if gap < lowest:
            best, lowest = theta, gap
        if gap <= max(GAP, n * ROUNDING):
            return theta, step, True
        target = 0.1 * min(float(theta @ slack), gap / n) / inputs
        scaled = matrix * (np.sqrt(shares) / fitted)
        system = scaled @ scaled.T
        system[np.diag_indices(inputs)] += slack / theta
        try:
            # One library of linear algebra: the threads of a second one would wait in its way.
            move = np.linalg.solve(system, gradient - 1 + target / theta)
        except np.linalg.LinAlgError:
            break
        change = (target - slack * move) / theta - slack
        theta = theta + _inside(theta, move) * move
        slack = slack + _inside(slack, change) * change
    return best, step, False


def smoothed_rounds(channel: Floats, seen: Ints) -> tuple[Floats, int, bool]:
    """Alternate expectation, maximization and smoothing by (1, 2, 1)/4 until all is at rest."""
    n = int(seen.sum())
    theta: Floats = np.full(len(channel), 1 / len(channel))
    fitted = theta @ channel
    before = -math.inf
    for round_ in range(1, MAX_ROUNDS + 1):
        theta = smoothed(theta * (channel @ (seen / fitted)) / n)
        fitted = theta @ channel
        likelihood = float(seen @ np.log(fitted))
        if abs(likelihood - before) < SMOOTH_CHANGE:
            return theta, round_, True
        before = likelihood
    return theta, MAX_ROUNDS, False


def smoothed(values: Floats) -> Floats:
    """Return the binomial average of each value and its neighbours, scaled to sum to one."""
    padded = np.pad(np.stack([values, np.ones(len(values))]), ((0, 0), (1, 1)))
    sums, weights = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    averaged = sums / weights
    result: Floats = averaged / averaged.sum()
    return result


def _inside(point: Floats, move: Floats) -> float:
    """Return how far to go so that a positive point stays positive, at most 1."""
    falling = move < 0
    if not falling.any():
        return 1.0
    return min(1.0, _INSIDE * float(np.min(-point[falling] / move[falling])))
