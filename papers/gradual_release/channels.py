"""Whether a channel can be relaxed to another, by which degradation and by which kernel.

It can if and only if it is a degradation of the other: C1 = C2 T for a stochastic T that does not
see the value. Then o2 is drawn with Pr(o2 | o1, x) = C2[x, o2] T[o2, o1] / C1[x, o1], and all
reports together cost what the last one does: their probability is Cn[x, on] times a product of T's,
and x is in the first factor alone. Exact rationals throughout, for channels of some tens of values.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.channel import Channel, Matrix
from mechanisms.errors import ParameterError, UnrelatedLevelsError

#: Matrices of floats are related if no entry misses by more than this.
TOLERANCE = 1e-8


def degradation(weak: Channel, strong: Channel) -> Channel:
    """Return the channel T with ``strong.then(T) == weak``, over the same inputs.

    The columns of ``strong`` are independent, so that there is at most one such matrix; raises
    ``UnrelatedLevelsError`` if there is none. For other channels :func:`degradable` decides.

    >>> def bit(p):
    ...     return Channel(((p, 1 - p), (1 - p, p)))
    >>> step = degradation(bit(Fraction(3, 5)), bit(Fraction(9, 10)))
    >>> step.rows[0]
    (Fraction(5, 8), Fraction(3, 8))
    """
    if weak.inputs != strong.inputs:
        raise ParameterError(
            f"channels over {weak.inputs} and {strong.inputs} inputs do not compare"
        )
    solved = _eliminate(strong.rows, weak.rows)
    if solved is None or not all(entry >= 0 for row in solved for entry in row):
        raise UnrelatedLevelsError("the weaker channel is no degradation of the stronger one")
    return Channel(solved)


def forward_kernel(strong: Channel, step: Channel) -> tuple[tuple[tuple[Fraction, ...], ...], ...]:
    """Return the law of the stronger report given the weaker one and the value.

    ``kernel[x][o1][o2] = C2[x, o2] T[o2, o1] / C1[x, o1]`` with C2 = ``strong``, T = ``step`` and
    C1 = C2 T; all zero where ``o1`` is impossible for ``x``.
    """
    weak = strong.then(step)
    return tuple(
        tuple(
            tuple(
                likely * step.rows[o2][o1] / total if total else Fraction(0)
                for o2, likely in enumerate(row)
            )
            for o1, total in enumerate(weak.rows[x])
        )
        for x, row in enumerate(strong.rows)
    )


def degradable(weak: ArrayLike, strong: ArrayLike) -> bool:
    """Return whether a stochastic matrix is another times a third one, to 1e-8 an entry.

    Blackwell's criterion: "Equivalent Comparisons of Experiments", Annals of Mathematical
    Statistics 24(2), 1953.
    """
    return degradation_error(weak, strong) <= TOLERANCE


def degradation_error(weak: ArrayLike, strong: ArrayLike) -> float:
    """Return by how much ``strong`` times the best stochastic matrix misses ``weak`` at most."""
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
    # The real shortfall of the solver's matrix, made stochastic.
    step = np.maximum(found.x[:-1].reshape(inner, outer), 0.0)
    step /= step.sum(axis=1, keepdims=True)
    return float(np.abs(given @ step - target).max())


def _eliminate(left: Matrix, right: Matrix) -> Matrix | None:
    """Solve ``left @ T == right``; None if there is no solution."""
    size = len(left[0])
    table = [[*one, *two] for one, two in zip(left, right, strict=True)]
    for column in range(size):
        pivot = next((r for r in range(column, len(table)) if table[r][column]), None)
        if pivot is None:
            raise ParameterError("the columns of the stronger channel must be independent")
        table[column], table[pivot] = table[pivot], table[column]
        head = table[column][column]
        table[column] = [value / head for value in table[column]]
        for number, row in enumerate(table):
            factor = row[column]
            if number != column and factor:
                table[number] = [
                    value - factor * other for value, other in zip(row, table[column], strict=True)
                ]
    if any(any(row) for row in table[size:]):
        return None
    return tuple(tuple(row[size:]) for row in table[:size])
