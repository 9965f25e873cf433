"""When a weaker bipartite response can be relaxed to a stronger one, and by which noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from mechanisms.chains.finite import FiniteChain, FiniteDraw, finite_chain
from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedRungsError
from mechanisms.exact import exp_bounds
from mechanisms.levels import GRAINS, check_ladder
from mechanisms.ordinal.brr import Windows, strongest_draw
from mechanisms.ordinal.search import check_epsilon

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Matrices of floats are related if they miss it, in no entry, by more than this.
TOLERANCE = 1e-8


def keep_probability(points: int, size: int, weak: float, strong: float) -> float:
    """Return how often a report of the stronger rung is kept as that of the weaker one.

    Else a uniform report takes its place: T = ρI + (1 − ρ)u, which is exact for randomized
    response (m = 1) and for any m candidates that are the same at both rungs.

    Parameters
    ----------
    points, size : int
        N and m, in [1, N).
    weak, strong : float
        The epsilons, ``0 < weak <= strong <= 700``.

    Returns
    -------
    float
        ρ = S₂(E₁ − 1) / (S₁(E₂ − 1)), S = mE + N − m.

    Examples
    --------
    >>> round(keep_probability(8, 3, 0.5, 2.0), 6)
    0.277339
    """
    check_epsilon(weak)
    check_epsilon(strong)
    if not weak <= strong:
        raise ParameterError(f"epsilons must not fall, {strong} follows {weak}")
    if not 1 <= size < points:
        raise ParameterError(f"subset_size must lie in [1, {points}), not {size}")
    wholes = [size + (points - size) * math.exp(-epsilon) for epsilon in (weak, strong)]
    return wholes[1] / wholes[0] * (math.expm1(-weak) / math.expm1(-strong))


def most_windows(windows: Windows) -> int:
    """Return how many windows contain the candidate that most but not all of them contain.

    Examples
    --------
    >>> most_windows(((0, 1, 2), (0, 1, 2), (1, 2, 3), (1, 2, 3)))
    2
    """
    counts = Counter(y for window in windows for y in window)
    return max((count for count in counts.values() if count < len(windows)), default=0)


def relaxes_to_single(windows: Windows, weak: float, strong: float) -> bool:
    """Whether m favoured candidates at one epsilon relax to randomized response at another.

    That is the case if and only if (E₁ − 1) c ≤ E₂ − 1, where c is :func:`most_windows`: the
    only candidate for T is the inverse of randomized response times the weaker channel, and its
    least entry has the sign of that difference.

    Parameters
    ----------
    windows : tuple of tuple of int
        Of the weaker rung.
    weak, strong : float
        Epsilons in (0, 700].
    """
    check_epsilon(weak)
    check_epsilon(strong)
    count = most_windows(windows)
    if weak == strong:
        return count <= 1
    # Never equal where the epsilons differ, so that 49 digits decide.
    weaker, stronger = exp_bounds(Fraction(weak))[1], exp_bounds(Fraction(strong))[0]
    return (weaker - 1) * count <= stronger - 1


def resized_chain(windows: Sequence[Windows], ladder: Sequence[int]) -> FiniteChain:
    """Build a chain whose rungs favour different candidates, where there is one.

    Parameters
    ----------
    windows : sequence of tuple of tuple of int
        A rung's favoured candidates for every value, weakest rung first.
    ladder : sequence of int
        Micro-epsilons, increasing.

    Returns
    -------
    FiniteChain
        The strongest rung as asked for; each weaker one as asked for but for a share of some
        2**-60 of the uniform, which makes up for the rounding of its step.

    Raises
    ------
    UnrelatedRungsError
        A rung is no degradation of the one above; the message says which. Keep the candidates of
        the last rung at all rungs instead: that is always possible.

    Notes
    -----
    Exact linear programs decide where m ≥ 2 at the stronger rung; for some tens of values.
    """
    from mechanisms.chains.thresholds import to_grains
    from mechanisms.degradation import degradation

    rungs = check_ladder(ladder)
    if len(windows) != len(rungs):
        raise ParameterError(f"{len(rungs)} rungs need as many windows, not {len(windows)}")
    draws = [strongest_draw(one, micro) for one, micro in zip(windows, rungs, strict=True)]
    channels = [FiniteChain(draw).channel(0) for draw in draws]
    steps = []
    for number in range(len(rungs) - 1):
        try:
            step = degradation(_softened(channels[number]), channels[number + 1])
        except UnrelatedRungsError:
            raise UnrelatedRungsError(
                f"rung {number + 1}: its {len(windows[number][0])} favoured candidates at "
                f"{rungs[number]} micro-epsilon are no degradation of "
                f"{len(windows[number + 1][0])} at {rungs[number + 1]}; favour the same at all"
            ) from None
        steps.append(FiniteDraw(tuple(to_grains(row) for row in step.rows)))
    return finite_chain(draws[-1], rungs, steps)


def degradable(weak: ArrayLike, strong: ArrayLike) -> bool:
    """Whether a matrix of floats is another one times a stochastic matrix, but for rounding.

    For matrices whose exact entries are not known, of which
    :func:`mechanisms.degradation.degradation` would see every rounding error.

    Parameters
    ----------
    weak, strong : array_like, shape (inputs, outputs)
        Row-stochastic.

    Returns
    -------
    bool
        Whether some T misses no entry by more than 1e-8.
    """
    return degradation_error(weak, strong) <= TOLERANCE


def degradation_error(weak: ArrayLike, strong: ArrayLike) -> float:
    """Return by how much ``strong`` times the best stochastic matrix misses ``weak`` at most."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import bmat, identity, kron

    target, given = np.asarray(weak, dtype=np.float64), np.asarray(strong, dtype=np.float64)
    if target.ndim != 2 or given.ndim != 2 or len(target) != len(given):
        raise ParameterError(f"channels of shapes {target.shape}, {given.shape} do not compare")
    inner, outer = given.shape[1], target.shape[1]
    product = kron(given, identity(outer), format="csr")
    slack = -np.ones((target.size, 1))
    found = linprog(
        np.append(np.zeros(inner * outer), 1.0),
        A_ub=bmat([[product, slack], [-product, slack]], format="csr"),
        b_ub=np.concatenate([target.ravel(), -target.ravel()]),
        A_eq=bmat([[kron(identity(inner), np.ones((1, outer))), np.zeros((inner, 1))]]),
        b_eq=np.ones(inner),
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.x is None:
        raise ParameterError(f"the linear program of the degradation failed: {found.message}")
    # What the solver's matrix really misses, made stochastic.
    step = np.maximum(found.x[:-1].reshape(inner, outer), 0.0)
    step /= step.sum(axis=1, keepdims=True)
    return float(np.abs(given @ step - target).max())


def _softened(channel: Channel) -> Channel:
    """Mix a channel with enough of the uniform to make up for a rounded step."""
    share = Fraction(1, GRAINS >> 12)
    size = channel.outputs
    return Channel(
        tuple(tuple(entry * (1 - share) + share / size for entry in row) for row in channel.rows)
    )
