"""Whether a channel can be relaxed to another, by which degradation and by which kernel.

It can if and only if it is a degradation of the other: C1 = C2 T for a stochastic T that does not
see the value. Then o2 is drawn with Pr(o2 | o1, x) = C2[x, o2] T[o2, o1] / C1[x, o1], and all
reports together cost what the last one does: their probability is Cn[x, on] times a product of T's,
and x is in the first factor alone. Exact rationals throughout, for channels of some tens of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from mechanisms.channel import Channel, Matrix
from mechanisms.errors import ParameterError, UnrelatedLevelsError


def degradation(weak: Channel, strong: Channel) -> Channel:
    """Return the channel T with ``strong.then(T) == weak``, over the same inputs.

    Where the columns of ``strong`` are independent there is at most one such matrix, found by
    elimination; otherwise an exact linear program decides (Blackwell's criterion: "Equivalent
    Comparisons of Experiments", Annals of Mathematical Statistics 24(2), 1953). Raises
    ``UnrelatedLevelsError`` if there is none.

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
    # Equal inputs give equal equations.
    pairs = list(dict.fromkeys(zip(strong.rows, weak.rows, strict=True)))
    left, right = tuple(one for one, _ in pairs), tuple(two for _, two in pairs)
    solved, independent = _eliminate(left, right)
    if not independent:
        solved = _program(left, right)
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


def _eliminate(left: Matrix, right: Matrix) -> tuple[Matrix | None, bool]:
    """Solve ``left @ T == right``: the solution if there is one, and whether it is the only one."""
    size = len(left[0])
    table = [[*one, *two] for one, two in zip(left, right, strict=True)]
    for column in range(size):
        pivot = next((r for r in range(column, len(table)) if table[r][column]), None)
        if pivot is None:
            return None, False
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
        return None, True
    return tuple(tuple(row[size:]) for row in table[:size]), True


def _program(left: Matrix, right: Matrix) -> Matrix | None:
    """Find a stochastic T with ``left @ T == right`` as a linear program over its entries."""
    inner, outer = len(left[0]), len(right[0])
    equations: list[list[Fraction]] = []
    values: list[Fraction] = []
    for one, two in zip(left, right, strict=True):
        for column in range(outer):
            equation = [Fraction(0)] * (inner * outer)
            equation[column::outer] = one
            equations.append(equation)
            values.append(two[column])
    for number in range(inner):
        equation = [Fraction(0)] * (inner * outer)
        equation[number * outer : (number + 1) * outer] = [Fraction(1)] * outer
        equations.append(equation)
        values.append(Fraction(1))
    entries = nonnegative_solution(equations, values)
    if entries is None:
        return None
    return tuple(tuple(entries[i * outer : (i + 1) * outer]) for i in range(inner))


def nonnegative_solution(
    matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]
) -> list[Fraction] | None:
    """Return some ``x >= 0`` with ``matrix @ x == right``, or None if there is none.

    The first phase of the simplex method in integers (a tableau with a common denominator, so that
    every division is exact; J. Edmonds, Journal of Research of the NBS 71B, 1967), with the rule of
    R. G. Bland, which never cycles (Mathematics of Operations Research 2(2), 1977).

    >>> half = Fraction(1, 2)
    >>> nonnegative_solution([[Fraction(1), Fraction(2)]], [half])
    [Fraction(1, 2), Fraction(0, 1)]
    >>> nonnegative_solution([[Fraction(1)], [Fraction(2)]], [half, half]) is None
    True
    """
    table = [_integers([*row, value]) for row, value in zip(matrix, right, strict=True)]
    columns = len(matrix[0])
    # Numbers from `columns` on stand for the artificial variables that start as the basis.
    basis = list(range(columns, columns + len(table)))
    missing = [sum(column) for column in zip(*table, strict=True)]
    scale = 1
    while missing[-1] > 0:
        enter = next((c for c in range(columns) if missing[c] > 0), None)
        if enter is None:
            return None
        leave = min(
            (r for r in range(len(table)) if table[r][enter] > 0),
            key=lambda r: (Fraction(table[r][-1], table[r][enter]), basis[r]),
        )
        pivot_row = table[leave]
        for number, row in enumerate(table):
            if number != leave:
                table[number] = _pivot(row, pivot_row, enter, scale)
        missing = _pivot(missing, pivot_row, enter, scale)
        basis[leave], scale = enter, pivot_row[enter]
    solution = [Fraction(0)] * columns
    for variable, row in zip(basis, table, strict=True):
        if variable < columns:
            solution[variable] = Fraction(row[-1], scale)
    return solution


def _integers(row: Sequence[Fraction]) -> list[int]:
    """Scale an equation to integers, its right side not negative."""
    scale = math.lcm(*(value.denominator for value in row))
    if row[-1] < 0:
        scale = -scale
    return [int(value * scale) for value in row]


def _pivot(row: list[int], pivot_row: list[int], column: int, scale: int) -> list[int]:
    pivot, factor = pivot_row[column], row[column]
    if not factor:
        return [value * pivot // scale for value in row]
    return [
        (value * pivot - factor * other) // scale
        for value, other in zip(row, pivot_row, strict=True)
    ]
