"""Exact linear feasibility: is there an x >= 0 with A x = b?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def nonnegative_solution(
    matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]
) -> list[Fraction] | None:
    """Return some ``x >= 0`` with ``matrix @ x == right``, or None if there is none.

    The first phase of the simplex method in integers (a tableau with a common denominator, so
    that every division is exact), with Bland's rule, which never cycles.

    Parameters
    ----------
    matrix : sequence of rows of Fraction
    right : sequence of Fraction, one a row

    References
    ----------
    R. G. Bland, "New Finite Pivoting Rules for the Simplex Method", Mathematics of Operations
    Research 2(2), 1977. J. Edmonds, "Systems of Distinct Representatives and Linear Algebra",
    Journal of Research of the NBS 71B, 1967 (integer pivoting).

    Examples
    --------
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
                table[number] = _eliminate(row, pivot_row, enter, scale)
        missing = _eliminate(missing, pivot_row, enter, scale)
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


def _eliminate(row: list[int], pivot_row: list[int], column: int, scale: int) -> list[int]:
    pivot, factor = pivot_row[column], row[column]
    if not factor:
        return [value * pivot // scale for value in row]
    return [
        (value * pivot - factor * other) // scale
        for value, other in zip(row, pivot_row, strict=True)
    ]
