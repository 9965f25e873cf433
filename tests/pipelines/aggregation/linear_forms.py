"""Sums of reports, as vectors over groups of them: which combinations are of few reports."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations


def rank(rows: list[list[int]]) -> int:
    """The rank over the rationals, without rounding."""
    left = [[Fraction(number) for number in row] for row in rows]
    found = 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((at for at in range(found, len(left)) if left[at][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        for at in range(found + 1, len(left)):
            factor = left[at][column] / left[found][column]
            left[at] = [a - factor * b for a, b in zip(left[at], left[found], strict=True)]
        found += 1
    return found


def depends_on_few(forms: list[list[int]], weights: list[int], least: int) -> bool:
    """Whether any combination of linear forms depends on fewer reports than ``least``."""
    whole = rank(forms)
    small = [at for at, weight in enumerate(weights) if weight < least]
    for size in range(1, len(small) + 1):
        for few in combinations(small, size):
            if sum(weights[at] for at in few) < least:
                rest = [[row[at] for at in range(len(row)) if at not in few] for row in forms]
                if rank(rest) < whole:
                    return True
    return False
