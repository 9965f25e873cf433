"""Errors that have no closed form, from counts that follow the realised probabilities.

For planning quantiles: whole collections are drawn at once as multinomial counts, by a seeded
generator, so that a run costs the same whatever the number of reports.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from mechanisms.errors import ParameterError
from mechanisms.number.contributions import matrix
from mechanisms.number.grid import BINS
from mechanisms.number.gridded import GridLadder
from mechanisms.number.random_threshold import ThresholdLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mechanisms.base import Mechanism

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: The data are represented by so many numbers, all equally frequent.
ATOMS = 200


def quantile_error(
    mechanism: Mechanism,
    level: int,
    values: NDArray[np.float64],
    n: int,
    runs: int,
    seed: int,
) -> float:
    """Return the root mean squared error of five quantiles over simulated collections.

    Parameters
    ----------
    mechanism : Mechanism
        ``threshold`` or ``square_wave``, or one for categories of a single symbol or a bit each,
        which then are equal parts of the range.
    level : int
    values : ndarray, shape (N,)
        In [0, 1], a picture of the data.
    n, runs, seed : int

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.registry import build
    >>> threshold = build({"name": "threshold", "missing": False}, [4_000_000], "delay")
    >>> 0 < quantile_error(threshold, 0, np.linspace(0, 1, 99), 10_000, 5, 1) < 0.05
    True
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    atoms = np.quantile(values, (np.arange(ATOMS) + 0.5) / ATOMS)
    clients = np.full(ATOMS, n // ATOMS)
    clients[: n % ATOMS] += 1
    clients = generator.permutation(clients)
    truth = _weighted_quantiles(atoms, clients)
    squares = 0.0
    for _ in range(runs):
        found = _quantiles(mechanism, level, atoms, clients, generator)
        squares += float(((found - truth) ** 2).mean())
    return sqrt(squares / runs)


def _quantiles(
    mechanism: Any,
    level: int,
    atoms: NDArray[np.float64],
    clients: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw one collection and estimate its quantiles."""
    import numpy as np

    from mechanisms.estimators.frequency import norm_sub
    from mechanisms.number.numeric import numeric

    table = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
    size: int
    if isinstance(mechanism, ThresholdLadder | GridLadder):
        table[level] = generator.multinomial(clients, _laws(mechanism, level, atoms)).sum(axis=0)
        found = numeric(mechanism, table, 0.0, 1.0, QUANTILES).quantiles
        return np.array([each.value for each in (found or {}).values()])
    p, q = mechanism.probabilities(level)[0]
    if mechanism.name == "grr":
        size = mechanism.count_length
        bins = np.bincount(_bins(atoms, size), clients, minlength=size).astype(np.int64)
        laws = q + (p - q) * np.eye(size)
        table[level] = generator.multinomial(bins, laws / laws.sum(axis=1)[:, None]).sum(axis=0)
    else:
        size, n = mechanism.count_length - 1, int(clients.sum())
        bins = np.bincount(_bins(atoms, size), clients, minlength=size).astype(np.int64)
        table[level, :-1] = generator.binomial(bins, p) + generator.binomial(n - bins, q)
        table[level, -1] = n
    shares = norm_sub([each.value for each in mechanism.frequencies(table)])
    rising = np.concatenate(([0.0], np.cumsum(shares)))
    # Where the distribution is flat, the first point that reaches the probability.
    kept = np.concatenate(([True], np.diff(rising) > 0))
    return np.interp(QUANTILES, rising[kept], (np.arange(size + 1) / size)[kept])


def _laws(
    mechanism: ThresholdLadder | GridLadder, level: int, atoms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the law of a report's cell for each number, shape ``(atoms, count_length)``."""
    import numpy as np

    if isinstance(mechanism, GridLadder):
        channel = matrix(mechanism.shape, mechanism.laws[level])
        scaled = atoms * mechanism.shape.steps
        below = np.minimum(scaled.astype(np.int64), mechanism.shape.steps - 1)
        rest = (scaled - below)[:, None]
        laws = (1 - rest) * channel[below] + rest * channel[below + 1]
    else:
        if mechanism.missing:
            raise ParameterError("quantiles are simulated without missing values")
        p, q = mechanism.probabilities(level)[0]
        above = np.clip(atoms[:, None] * BINS - np.arange(BINS), 0.0, 1.0)
        yes = q + (p - q) * above
        laws = np.stack((1 - yes, yes), axis=2).reshape(len(atoms), -1) / BINS
    whole: NDArray[np.float64] = laws / laws.sum(axis=1)[:, None]
    return whole


def _bins(atoms: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    import numpy as np

    return np.minimum((atoms * size).astype(np.int64), size - 1)


def _weighted_quantiles(
    atoms: NDArray[np.float64], clients: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the quantiles of the clients' numbers."""
    import numpy as np

    order = np.argsort(atoms)
    shares = (np.cumsum(clients[order]) - clients[order] / 2) / clients.sum()
    return np.interp(QUANTILES, shares, atoms[order])
