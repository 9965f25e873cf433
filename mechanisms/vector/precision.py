"""The variance of a coordinate's mean, of which every client answers only with a chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import bit_means, grid_variance
from mechanisms.number.strata import EXPECTED_REPORTS
from mechanisms.planner.predictions import answer_noise
from mechanisms.vector.coordinates import CoordinatesLadder
from mechanisms.vector.sampled_hybrid import SampledHybridLadder
from mechanisms.vector.sampled_vector import VECTOR_BINS, SampledVectorLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


def coordinate_variance(
    mechanism: CoordinatesLadder, level: int, values: ArrayLike | None = None, n: int = 1_000_000
) -> float:
    """Return n times the variance of the estimated mean of a coordinate.

    Parameters
    ----------
    mechanism : CoordinatesLadder
        ``sampled_vector`` or ``sampled_hybrid``.
    level : int
    values : array_like, shape (N,), optional
        In [0, 1], a picture of the coordinate; by default the worst.
    n : int
        Reports, on which the number of strata depends.

    Notes
    -----
    With r = d/k and S the scatter of one answer around the mean it is r S − Var(X): whether a
    client answers is random too. Of thresholds the worst values have the distribution function
    1/2 + (x − 1/2)/r, some at either end and the others uniform in between.

    Examples
    --------
    >>> from mechanisms.vector.sampled_vector import sampled_vector_ladder
    >>> vector = sampled_vector_ladder(4, 1, 0, [1_000_000], "position")
    >>> round(coordinate_variance(vector, 0), 2)
    4.45
    """
    import numpy as np

    ratio = mechanism.dimensions / mechanism.sampled
    x = None if values is None else np.asarray(values, dtype=np.float64)
    if isinstance(mechanism, SampledHybridLadder):
        return _on_grid(mechanism, level, x, ratio)
    if isinstance(mechanism, SampledVectorLadder):
        return _of_bits(mechanism, level, x, ratio, n)
    raise ParameterError("the mechanism has no coordinates")


def _on_grid(
    mechanism: SampledHybridLadder, level: int, values: NDArray[np.float64] | None, ratio: float
) -> float:
    import numpy as np

    def variance(x: NDArray[np.float64]) -> float:
        spread = float(x.var())
        return ratio * (grid_variance(mechanism.grid, level, x) + spread) - spread

    if values is not None:
        return variance(values)
    same = np.linspace(0, 1, 2 * mechanism.grid.shape.steps + 1)[:, None]
    apart = (np.arange(20) < np.arange(1, 20)[:, None]).astype(float)
    return max(variance(each) for each in (*same, *apart))


def _of_bits(
    mechanism: SampledVectorLadder,
    level: int,
    values: NDArray[np.float64] | None,
    ratio: float,
    n: int,
) -> float:
    import numpy as np

    x = values
    if x is None:
        x = np.clip(0.5 + ratio * ((np.arange(1024) + 0.5) / 1024 - 0.5), 0.0, 1.0)
    answers = max(n / ratio, 1.0)
    if mechanism.bits:
        means = bit_means(x, mechanism.bits)
        weights = np.exp2(np.arange(mechanism.bits - 1, -1, -1)) / (2.0**mechanism.bits - 1)
        between = 0.25 if values is None else float(weights @ (means * (1 - means)))
        tails = np.cumsum(weights[::-1])[::-1]
        extra = max(int((answers * tails >= EXPECTED_REPORTS).sum()) - 1, 0)
    else:
        most = min(max(int(answers) // EXPECTED_REPORTS, 1), VECTOR_BINS)
        strata = 1 << (most.bit_length() - 1)
        above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
        between, extra = float((above * (1 - above)).mean()), strata - 1
    noise = answer_noise(mechanism.probabilities(level)[0], 2, float(x.mean()))
    taken = 0.0 if mechanism.bits and values is None else float(x.var())
    return ratio * (noise + between) * (1 + extra / answers) - taken
