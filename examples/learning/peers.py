"""Mechanisms for a vector that the certified one is compared with, as their papers have them.

They are float originals, for simulation: their proofs hold for real numbers, while what floating
point rounds away is certified by nobody. Both take ``(n, d)`` values in [-1, 1] and return unbiased
ones.

References
----------
J. C. Duchi, M. I. Jordan, M. J. Wainwright, "Minimax Optimal Procedures for Locally Private
Estimation", JASA 113, 2018, section 4.2.3. C. Dwork, F. McSherry, K. Nissim, A. Smith, "Calibrating
Noise to Sensitivity in Private Data Analysis", TCC 2006.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


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
