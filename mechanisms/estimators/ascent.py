"""Climbing the likelihood of shares behind a finite channel: to the top, or in smoothed rounds."""

from __future__ import annotations

import math

import numpy as np

from mechanisms.arrays import Floats, Ints

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
    """Return the binomial average of each value and its neighbours, scaled to sum to one.

    Examples
    --------
    >>> smoothed(np.array([0.0, 0.0, 1.0, 0.0, 0.0]))
    array([0.  , 0.25, 0.5 , 0.25, 0.  ])
    """
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
