"""Mean and variance of a random number, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

#: Probabilities of the answers of a design.
Row = tuple[Fraction, ...]


def moments(row: Sequence[Fraction], numbers: Sequence[int]) -> tuple[Fraction, Fraction]:
    """Return mean and variance of ``numbers`` with the probabilities ``row``.

    Examples
    --------
    >>> moments((Fraction(1, 2), Fraction(1, 2)), (0, 1))
    (Fraction(1, 2), Fraction(1, 4))
    """
    mean = sum((p * k for p, k in zip(row, numbers, strict=True)), Fraction(0))
    square = sum((p * (k - mean) ** 2 for p, k in zip(row, numbers, strict=True)), Fraction(0))
    return mean, square
