"""Isotonic regression: weighted least squares fits that never rise, or never fall."""

from __future__ import annotations

import numpy as np

from mechanisms.arrays import Floats


def falling_fit(values: Floats, weights: Floats) -> Floats:
    """Return the fit to values that minimises the squares, of positive weights, and never rises."""
    # A third of a second to import, which runs without numbers do without.
    from scipy.optimize import isotonic_regression

    fit: Floats = isotonic_regression(values, weights=weights, increasing=False).x
    return fit


def rising_squares(values: Floats, weights: Floats, most: float) -> Floats:
    """Return the least squares of the fits that never fall and never exceed ``most``.

    ``values`` and ``weights`` have shape ``(B,)``; the result, ``(B + 1,)``, has the weighted sum
    of squares for the first 0, 1, ..., B values.

    >>> rising_squares(np.array([1.0, 3.0, 2.0]), np.ones(3), 2.0).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    blocks: list[tuple[float, float, float]] = []
    found = [0.0]
    for mean, mass in zip(values.tolist(), weights.tolist(), strict=True):
        squares = 0.0
        while blocks and blocks[-1][0] >= mean:
            before, more, inside = blocks.pop()
            squares += inside + more * mass / (more + mass) * (before - mean) ** 2
            mean = (more * before + mass * mean) / (more + mass)
            mass += more
        blocks.append((mean, mass, squares))
        found.append(sum(inside + m * max(at - most, 0.0) ** 2 for at, m, inside in blocks))
    return np.array(found)
