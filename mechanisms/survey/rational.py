"""Exact numbers for survey designs, and logarithms that keep their digits."""

from __future__ import annotations

import math
from fractions import Fraction

from mechanisms.errors import ParameterError

Number = Fraction | float | int


def rational(value: Number, name: str) -> Fraction:
    """Return a number exactly; a float is taken as the decimal number that it prints as.

    Raises
    ------
    ParameterError
        The number is not finite; the message calls it ``name``.

    Examples
    --------
    >>> rational(0.1, "share")
    Fraction(1, 10)
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ParameterError(f"{name} must be a finite number, not {value}")
        return Fraction(repr(float(value)))
    return Fraction(value)


def log_ratio(one: Fraction, other: Fraction) -> float:
    """Return ``ln(one / other)`` to the last digits, close to 1 and far from it.

    Parameters
    ----------
    one, other : Fraction
        At least 0. Infinite where only ``other`` is 0, 0 where both are.

    Examples
    --------
    >>> log_ratio(Fraction(10**20 + 1), Fraction(10**20))
    1e-20
    """
    if one == other:
        return 0.0
    if other == 0:
        return math.inf
    if one == 0:
        return -math.inf
    ratio = one / other
    if Fraction(1, 2) < ratio < 2:
        return math.log1p(ratio - 1)
    return math.log(ratio.numerator) - math.log(ratio.denominator)
