"""Closed-form variances of the estimates, for plans, documents and benchmarks.

All are of one report: divide by n for the variance of the estimate from n reports. Values are fixed
and the randomization is random; p > q are the probabilities of "yes" of a client of whom it is true
and of another one. Answers with p = q say nothing: their variance is infinite. Numbers lie in
[0, 1]; on a range of another length the variance is multiplied by the square of the length (by 4 on
[-1, 1], as the papers have it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mechanisms.arrays import Floats, np
from mechanisms.errors import check_at_least, check_int

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def share_variance(p: float, q: float, share: float) -> float:
    """Return the variance of an estimated share (Wang et al., USENIX Security 2017, equation 4).

    ``share`` is that of the clients who have the value; the population is fixed.

    >>> share_variance(0.75, 0.25, 0.1)
    0.75
    """
    noise = share * p * (1 - p) + (1 - share) * q * (1 - q)
    return noise / (p - q) / (p - q) if p != q else math.inf


def split_bits_variance(pairs: Sequence[tuple[float, float]], values: ArrayLike) -> float:
    """Return the variance of the mean of split bits, ``pairs`` being (p, q) of each bit.

    The sum of w² times the noise of each bit, plus what rounding to the grid of the bits adds.
    """
    x, bits = np.asarray(values, dtype=np.float64), len(pairs)
    means = bit_means(x, bits)
    weights = np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)
    noise = sum(
        float(w) ** 2 * share_variance(p, q, float(mean))
        for w, (p, q), mean in zip(weights, pairs, means, strict=True)
    )
    rest = np.modf(x * (2.0**bits - 1))[0]
    return noise + float((rest * (1 - rest)).mean()) / (2.0**bits - 1) ** 2


def bit_means(values: Floats, bits: int) -> Floats:
    """Return how often each bit of numbers in [0, 1] is set, most significant first.

    Numbers are rounded at random to one of 2**bits points such that they keep their mean.
    """
    check_int("bits", bits, 1, 53)
    check_at_least("the number of values", len(values), 1)
    scaled = values * (2.0**bits - 1)
    below = np.floor(scaled)
    rest = scaled - below
    above = np.minimum(below + 1, 2.0**bits - 1)
    shifts = np.arange(bits - 1, -1, -1)[:, None]
    low, high = (point.astype(np.int64) >> shifts & 1 for point in (below, above))
    means: Floats = ((1 - rest) * low + rest * high).mean(axis=1)
    return means
