"""Mechanisms for a vector that the certified one is compared with, as their papers have them.

They are float originals, for simulation: their proofs hold for real numbers, while what floating
point rounds away is certified by nobody. All take ``(n, d)`` values in [-1, 1] and return unbiased
ones, NaN for coordinates that a client says nothing about.

References
----------
J. C. Duchi, M. I. Jordan, M. J. Wainwright, "Minimax Optimal Procedures for Locally Private
Estimation", JASA 113, 2018. N. Wang et al., "Collecting and Analyzing Multidimensional Data with
Local Differential Privacy", ICDE 2019 (Piecewise, Hybrid, sampling of coordinates).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
#: Randomizes numbers of [-1, 1] at an epsilon each.
Numbers = Callable[[Values, float, np.random.Generator], Values]


def laplace(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Add Laplace noise to every coordinate, each at an equal share of the epsilon."""
    scale = 2 * values.shape[1] / epsilon
    noisy: Values = values + generator.laplace(0.0, scale, values.shape)
    return noisy


def duchi(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Report a corner of a cube, more likely on the side of the rounded vector than opposite.

    The corners are uniform among those of non-negative (or else non-positive) product with it.
    """
    n, d = values.shape
    corner = np.where(generator.random((n, d)) < (1 + values) / 2, 1.0, -1.0)
    side = np.where(generator.random(n) < 1 / (1 + math.exp(-epsilon)), 1.0, -1.0)
    corner *= side[:, None]
    out = np.empty((n, d))
    waiting = np.arange(n)
    while waiting.size:
        drawn = generator.choice([-1.0, 1.0], size=(waiting.size, d))
        kept = (drawn * corner[waiting]).sum(axis=1) >= 0
        out[waiting[kept]] = drawn[kept]
        waiting = waiting[~kept]
    half = d // 2
    if d % 2:
        constant = 2 ** (d - 1) / math.comb(d - 1, half)
    else:
        constant = (2 ** (d - 1) + math.comb(d, half) / 2) / math.comb(d - 1, half)
    out *= constant / math.tanh(epsilon / 2)
    return out


def sampled(
    numbers: Numbers, values: Values, epsilon: float, generator: np.random.Generator
) -> Values:
    """Randomize k = max(1, min(d, ⌊ε/2.5⌋)) coordinates, chosen at random, at ε/k each."""
    n, d = values.shape
    count = max(1, min(d, int(epsilon / 2.5)))
    chosen = generator.random((n, d)).argsort(axis=1)[:, :count]
    rows = np.arange(n)[:, None]
    out = np.full((n, d), np.nan)
    out[rows, chosen] = numbers(values[rows, chosen], epsilon / count, generator)
    return out


def one_bit(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Report one of two numbers (Duchi et al. in one dimension)."""
    tilt = math.tanh(epsilon / 2)
    up = generator.random(values.shape) < (1 + values * tilt) / 2
    return np.where(up, 1 / tilt, -1 / tilt)


def piecewise(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Report a number close to the true one, or another of a range somewhat wider than [-1, 1]."""
    root = math.exp(epsilon / 2)
    limit = (root + 1) / (root - 1)
    left = (limit + 1) / 2 * values - (limit - 1) / 2
    near = left + (limit - 1) * generator.random(values.shape)
    # What is left of [-limit, limit] is put together and cut again at the near piece.
    far = -limit + (limit + 1) * generator.random(values.shape)
    far += np.where(far >= left, limit - 1, 0.0)
    return np.where(generator.random(values.shape) < root / (root + 1), near, far)


def hybrid(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Mix the two so that the variance is least in the worst case."""
    share = 1 - math.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    return np.where(
        generator.random(values.shape) < share,
        piecewise(values, epsilon, generator),
        one_bit(values, epsilon, generator),
    )
