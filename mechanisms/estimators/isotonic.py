"""Isotonic regression: weighted least squares fits that never rise, or never fall.

A fit of the few strata of a number's thresholds takes microseconds; to import ``scipy.optimize``
for it takes a third of a second of every run.
"""

from __future__ import annotations

import numpy as np

from mechanisms.arrays import Floats


def falling_fit(values: Floats, weights: Floats) -> Floats:
    """Return the fit to values that minimises the squares, of positive weights, and never rises.

    Pool adjacent violators, from the last value to the first, which costs O(n). Sums are added up
    in the order of ``scipy.optimize.isotonic_regression``, to the same bits.

    References
    ----------
    Busing, "Monotone Regression: A Simple and Fast O(n) PAVA Implementation", Journal of
    Statistical Software 102 (2022), code snippet 1.
    """
    ahead, weight = values[::-1].tolist(), weights[::-1].tolist()
    # Mean, weight and end of each block of equal values.
    means, masses, ends = ahead[:1], weight[:1], [1]
    at, size = 1, len(ahead)
    while at < size:
        mean, mass = ahead[at], weight[at]
        if means[-1] >= mean:
            before = masses.pop()
            total = before * means.pop() + mass * mean
            ends.pop()
            mass += before
            mean = total / mass
            while at < size - 1 and mean >= ahead[at + 1]:
                at += 1
                total += weight[at] * ahead[at]
                mass += weight[at]
                mean = total / mass
            while means and means[-1] >= mean:
                total += masses[-1] * means.pop()
                mass += masses.pop()
                ends.pop()
                mean = total / mass
        means.append(mean)
        masses.append(mass)
        at += 1
        ends.append(at)
    return np.repeat(np.array(means), np.diff([0, *ends]))[::-1]


def rising_squares(values: Floats, weights: Floats, most: float) -> Floats:
    """Return the least squares of the fits that never fall and never exceed ``most``.

    ``values`` and ``weights`` have shape ``(B,)``; the result, ``(B + 1,)``, has the weighted sum
    of squares for the first 0, 1, ..., B values.

    >>> rising_squares(np.array([1.0, 3.0, 2.0]), np.ones(3), 2.0).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    # Mean, weight and squares of each block of equal values; the sum over the blocks before it.
    blocks: list[tuple[float, float, float, float]] = []
    found = [0.0]
    for mean, mass in zip(values.tolist(), weights.tolist(), strict=True):
        squares, total = 0.0, found[-1]
        while blocks and blocks[-1][0] >= mean:
            before, more, inside, total = blocks.pop()
            squares += inside + more * mass / (more + mass) * (before - mean) ** 2
            mean = (more * before + mass * mean) / (more + mass)
            mass += more
        blocks.append((mean, mass, squares, total))
        found.append(total + (squares + mass * max(mean - most, 0.0) ** 2))
    return np.array(found)
