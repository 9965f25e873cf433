"""Closed-form variances of the estimates, for plans, documents and benchmarks.

All are of one report: divide by n for the variance of the estimate from n reports. Values are fixed
and the randomization is random; p > q are the probabilities of "yes" of a client of whom it is true
and of another one. Numbers lie in [0, 1]; on a range of another length the variance is multiplied
by the square of the length (by 4 on [-1, 1], as the papers have it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechanisms.arrays import Floats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def share_variance(p: float, q: float, share: float) -> float:
    """Return the variance of an estimated share (Wang et al., USENIX Security 2017, equation 4).

    ``share`` is that of the clients who have the value; the population is fixed.

    >>> share_variance(0.75, 0.25, 0.1)
    0.75
    """
    return (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2


def one_bit_variance(p: float, q: float, value: float) -> float:
    """Return the variance of one-bit response to a number (Duchi, Jordan, Wainwright).

    It is that of a random threshold and of a sampled bit too, if they are not stratified.

    >>> one_bit_variance(0.75, 0.25, 0.5)
    1.0
    """
    return share_variance(p, q, value) + value * (1 - value)


def threshold_variance(p: float, q: float, values: ArrayLike, strata: int | None = None) -> float:
    """Return the variance of the stratified mean of random thresholds, to leading order.

    By default with as many equal strata as one likes. Then the variance is the noise of the answer,
    plus half of E|X − X'|, less Var(X), at most noise plus 1/12.
    """
    import numpy as np

    x = np.sort(np.asarray(values, dtype=np.float64))
    if strata is None:
        ranks = 2 * np.arange(1, x.size + 1) - x.size - 1
        between = float(ranks @ x) / x.size**2
    else:
        above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
        between = float((above * (1 - above)).mean())
    return share_variance(p, q, float(x.mean())) + between - float(x.var())


def sampled_bit_variance(p: float, q: float, values: ArrayLike, bits: int) -> float:
    """Return the variance of the mean of sampled bits, stratified by bit, to leading order.

    The noise of the answer, plus the sum of w π (1 − π) over the bits, w being their weights and
    π their means, less Var(X).
    """
    import numpy as np

    x = np.asarray(values, dtype=np.float64)
    means = bit_means(x, bits)
    weights = np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)
    between = float(weights @ (means * (1 - means)))
    return share_variance(p, q, float(x.mean())) + between - float(x.var())


def split_bits_variance(pairs: Sequence[tuple[float, float]], values: ArrayLike) -> float:
    """Return the variance of the mean of split bits, ``pairs`` being (p, q) of each bit.

    The sum of w² times the noise of each bit, plus what rounding to the grid of the bits adds.
    """
    import numpy as np

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
    import numpy as np

    scaled = values * (2.0**bits - 1)
    below = np.floor(scaled)
    rest = scaled - below
    above = np.minimum(below + 1, 2.0**bits - 1)
    shifts = np.arange(bits - 1, -1, -1)[:, None]
    low, high = (point.astype(np.int64) >> shifts & 1 for point in (below, above))
    means: Floats = ((1 - rest) * low + rest * high).mean(axis=1)
    return means
