"""A linear score of what is seen, learnt by logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A feature counts if it differs between the inputs by so many standard deviations.
_TELLING = 3.0
#: Of those, so many at most.
_FEATURES = 64
#: Of chains, so many at most are regressed upon.
_ROWS = 1 << 14
#: The weight of the squared norm, in chains.
_RIDGE = 1.0
#: Newton's steps, and how small the last one is.
_STEPS, _SMALL = 12, 1e-4
#: Bits that are counted at once.
_AT_ONCE = 1 << 24


@dataclass(frozen=True, eq=False)
class LinearScore:
    """The logarithm of a likelihood ratio, as a sum over bits and numbers.

    Parameters
    ----------
    bits, numbers : ndarray of int
        Which are added up.
    weights : ndarray of float
        Of the bits, then of the numbers.
    """

    bits: NDArray[np.int64]
    numbers: NDArray[np.int64]
    weights: NDArray[np.float64]

    @staticmethod
    def fit(
        planes: NDArray[np.uint8], numbers: NDArray[np.float64], secrets: NDArray[np.bool_]
    ) -> LinearScore:
        """Learn a score from chains whose inputs are known.

        Features that by themselves tell nothing are left out, so that their noise is too; the
        others get the weights of a logistic regression with a small ridge penalty.

        Parameters
        ----------
        planes : ndarray, shape (n, bytes), uint8
            All their bits are features.
        numbers : ndarray, shape (n, k), float64
            More features.
        secrets : ndarray, shape (n,), bool
            What the score speaks for.
        """
        import numpy as np

        sides = np.maximum(np.bincount(secrets, minlength=2), 1)[:, None]
        shares = bit_sums(planes, secrets) / sides
        bits = _telling(shares, shares * (1 - shares) / sides)
        of_side = np.stack([~secrets, secrets]) / sides
        means = of_side @ numbers
        chosen = _telling(means, (of_side @ numbers**2 - means**2) / sides)
        features = _features(planes[:_ROWS], numbers[:_ROWS], bits, chosen)
        return LinearScore(bits, chosen, _regress(features, secrets[:_ROWS]))

    def __call__(
        self, planes: NDArray[np.uint8], numbers: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the scores of ``n`` chains, but for a constant."""
        return _features(planes, numbers, self.bits, self.numbers) @ self.weights


def _features(
    planes: NDArray[np.uint8],
    numbers: NDArray[np.float64],
    bits: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> NDArray[np.float64]:
    import numpy as np

    found = planes[:, bits >> 3] >> (bits & 7).astype(np.uint8) & 1
    return np.concatenate([found.astype(float), numbers[:, chosen]], axis=1)


def _telling(means: NDArray[np.float64], variances: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the features, columns of ``(2, k)`` means, that differ most, if they differ enough."""
    import numpy as np

    gaps = np.abs(means[1] - means[0])
    sizes = gaps / np.sqrt(np.maximum(variances.sum(axis=0), 1e-12))
    order: NDArray[np.int64] = np.argsort(-sizes, kind="stable")[:_FEATURES]
    return order[: int((sizes > _TELLING).sum())]


def _regress(features: NDArray[np.float64], secrets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the weights of a penalised logistic regression, by Newton's method."""
    import numpy as np
    from scipy.special import expit

    n, k = features.shape
    if not k:
        return np.empty(0)
    design = np.concatenate([features, np.ones((n, 1))], axis=1)
    penalty, weights = np.full(k + 1, _RIDGE), np.zeros(k + 1)
    for _ in range(_STEPS):
        likely = expit(design @ weights)
        slope = design.T @ (secrets - likely) - penalty * weights
        curve = (design * (likely * (1 - likely))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        weights = weights + step
        if np.abs(step).max() < _SMALL:
            break
    return weights[:k]


def bit_sums(planes: NDArray[np.uint8], secrets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the set bits of ``(n, bytes)`` by secret: ``(2, 8 * bytes)``."""
    import numpy as np

    sums = np.zeros((2, 8 * planes.shape[1]), dtype=np.int64)
    block = max(64, _AT_ONCE // sums.shape[1])
    for start in range(0, len(planes), block):
        part = slice(start, start + block)
        for side in (0, 1):
            bits = np.unpackbits(planes[part][secrets[part] == side], axis=1, bitorder="little")
            sums[side] += bits.sum(axis=0, dtype=np.int64)
    return sums
