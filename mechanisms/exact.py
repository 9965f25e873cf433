"""Exact arithmetic behind every privacy amount: e^x between bounds, and losses rounded up.

Amounts are integers in *micro-epsilon* (1,000,000 is epsilon 1). Exponentials come from
:mod:`decimal`, whose results are the same on every platform, device or aggregator.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from functools import lru_cache

from mechanisms.errors import ParameterError

#: Micro-epsilon in an epsilon of one.
MICRO = 1_000_000


def decimal_context(digits: int) -> Context:
    """Return a decimal context that owes nothing to what the app has made the default."""
    return Context(
        prec=digits,
        rounding=ROUND_HALF_EVEN,
        Emin=-999_999,
        Emax=999_999,
        capitals=1,
        clamp=0,
        flags=[],
        traps=[InvalidOperation, DivisionByZero, Overflow],
    )


_CONTEXT = decimal_context(60)
#: Larger by far than the relative error of one division and one exponential at 60 digits for
#: exponents up to 1000, smaller by far than a grain of 2**-64.
_GUARD = Fraction(1, 10**50)
_LARGEST_EXPONENT = 1000
#: Enough digits for a first guess at a loss: it is at most 1000, in millionths.
_ROUGH = decimal_context(28)


@lru_cache(maxsize=4096)
def exp_bounds(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose the exponential of a rational number in [0, 1000].

    The bounds are 1e-49 apart relatively, and both 1 for exponent 0.

    >>> lower, upper = exp_bounds(Fraction(1))
    >>> lower < upper, float(lower)
    (True, 2.718281828459045)
    """
    if not 0 <= exponent <= _LARGEST_EXPONENT:
        raise ParameterError(f"exponent must lie in [0, {_LARGEST_EXPONENT}], not {exponent}")
    if exponent == 0:
        return Fraction(1), Fraction(1)
    quotient = _CONTEXT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = Fraction(_CONTEXT.exp(quotient))
    return max(Fraction(1), value * (1 - _GUARD)), value * (1 + _GUARD)


def exp_micro(micro: int | Fraction) -> tuple[Fraction, Fraction]:
    """Enclose e^epsilon for an amount in micro-epsilon; see :func:`exp_bounds`."""
    return exp_bounds(Fraction(micro, MICRO))


def loss_micro(ratio: Fraction) -> int:
    """Return the smallest micro-epsilon for which ``ratio <= e**(micro / 1e6)`` is proved.

    ``ratio``, in [1, e^1000], is the largest likelihood ratio of a channel.

    >>> loss_micro(Fraction(3)), loss_micro(Fraction(1))
    (1098613, 0)
    """
    if not 1 <= ratio <= exp_bounds(Fraction(_LARGEST_EXPONENT))[0]:
        raise ParameterError(f"a largest likelihood ratio lies in [1, e^{_LARGEST_EXPONENT}]")
    if ratio == 1:
        return 0
    quotient = _ROUGH.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    guess = max(1, int(_ROUGH.multiply(_ROUGH.ln(quotient), Decimal(MICRO))))
    # Upward first: the guess is mostly one too low, and each bound takes long.
    while exp_micro(guess)[0] < ratio:
        guess += 1
    while guess > 1 and exp_micro(guess - 1)[0] >= ratio:
        guess -= 1
    return guess


def to_micro(epsilon: float | Fraction) -> int:
    """Return an epsilon in [0.000001, 1000] in micro-epsilon, rounded down.

    A float is taken as the decimal number that it prints as.

    >>> to_micro(0.1)
    100000
    """
    if not 1 / MICRO <= epsilon <= _LARGEST_EXPONENT:
        raise ParameterError(f"epsilon must lie in [0.000001, {_LARGEST_EXPONENT}], not {epsilon}")
    exact = epsilon if isinstance(epsilon, Fraction) else Fraction(repr(float(epsilon)))
    return int(exact * MICRO)


def ceil_fraction(value: Fraction) -> int:
    """Return the smallest integer that is not below ``value``."""
    return -(-value.numerator // value.denominator)


def log_ratio(one: Fraction, other: Fraction) -> float:
    """Return ``ln(one / other)``, infinite where only ``other`` is 0, and 0 where both are."""
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
