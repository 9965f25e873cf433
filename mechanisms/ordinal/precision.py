"""The variance of what ordinal reports will tell, from the channel of a rung."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechanisms.errors import ParameterError
from mechanisms.ordinal.brr import BrrLadder
from mechanisms.ordinal.estimates import groups_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def mean_bound_variance(mechanism: Any, level: int, values: Sequence[float] | None = None) -> float:
    """Return n times the variance of a bound of the mean, the larger one of the two.

    Parameters
    ----------
    mechanism : Mechanism
        ``brr`` or ``grr``; its points are evenly spaced in [0, 1].
    level : int
    values : sequence of float in [0, 1], optional
        A picture of the data, each at the nearest point; by default the worst: for every bound the
        point of which the variance is largest, if all are there.

    Notes
    -----
    As in :func:`mechanisms.ordinal.estimates.ordinal`: weights g with C g = f, of all of them those
    that vary least if all values are alike, and Σ (C g² − f²)(x) over the values.

    Examples
    --------
    >>> from mechanisms.ordinal.brr import brr_ladder
    >>> round(mean_bound_variance(brr_ladder(5, 3, False, [2_000_000], "mood"), 0), 4)
    0.297
    """
    import numpy as np

    matrix = mechanism.matrix(level)
    missing = isinstance(mechanism, BrrLadder) and mechanism.missing
    points = len(matrix) - missing
    places = np.linspace(0.0, 1.0, points)
    present = np.arange(len(matrix)) < points
    shares = None
    # A mean is a quotient by the estimated share of those present, where values can be missing.
    centres = np.linspace(0.0, 1.0, 9) if missing else np.array([0.5])
    if values is not None:
        nearest = np.rint(np.asarray(values, dtype=np.float64) * (points - 1)).astype(np.int64)
        shares = np.bincount(nearest, minlength=points) / len(nearest)
    worst = 0.0
    for end in (0, -1):
        bound = np.zeros(len(matrix))
        for group in groups_of([matrix]):
            if group[0] < points:
                bound[list(group)] = places[min(group[end], points - 1)]
        if shares is not None:
            centres = np.array([shares @ bound[:points]])
        for centre in centres.tolist():
            spread = _spread(matrix, bound - centre * present)[:points]
            worst = max(worst, float(spread.max() if shares is None else shares @ spread))
    return worst


def _spread(matrix: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance that a report adds to the estimated sum of ``whole``, by its value."""
    import numpy as np

    root = np.sqrt(matrix.mean(axis=0))
    used = root > 0
    scaled = matrix[:, used] / root[used]
    weights = np.zeros(matrix.shape[1])
    weights[used] = (np.linalg.pinv(scaled, rcond=1e-12) @ whole) / root[used]
    if np.abs(matrix @ weights - whole).max() > 1e-6 * np.abs(whole).max():
        raise ParameterError("the reports of this rung do not tell the mean")
    found: NDArray[np.float64] = matrix @ weights**2 - whole**2
    return found
