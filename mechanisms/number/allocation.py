"""How an epsilon is best split over the bits of a number.

The variance of a mean from split bits is the sum of w_i² f(ε_i), w_i the weight of a bit and
f(ε) = e^ε/(e^ε−1)² its noise. It is least where w_i² |f′(ε_i)| is the same for all bits. With
z = e^ε − 1 that condition, |f′| = e^ε(e^ε+1)/(e^ε−1)³ = c, is the cubic c z³ = (z+1)(z+2) with one
positive root, and the product of all (1 + z_i) is e to the whole epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from mechanisms.errors import ParameterError
from mechanisms.exact import decimal_context

_CONTEXT = decimal_context(34)
#: Shares are rounded down to multiples of 1e-24.
_PLACES = 24
_STEPS = 52
#: Newton's method ends when a step is relatively smaller; the next one would be its square.
_CLOSE = Decimal("1e-10")


@lru_cache(maxsize=1024)
def split_epsilon(epsilon: Fraction, weights: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Split an epsilon over bits so that the variance of their weighted sum is least.

    Parameters
    ----------
    epsilon : Fraction
        Positive.
    weights : tuple of Fraction
        The positive weights of the bits.

    Returns
    -------
    tuple of Fraction
        The share of each bit, rounded down to 1e-24; they sum to at most ``epsilon``. A larger
        epsilon gives every bit a larger share, so ladders of split bits are always related.

    Examples
    --------
    >>> shares = split_epsilon(Fraction(1), (Fraction(8, 15), Fraction(4, 15)))
    >>> [round(float(share), 4) for share in shares]
    [0.6135, 0.3865]
    """
    if not epsilon > 0 or not all(weight > 0 for weight in weights):
        raise ParameterError("epsilon and weights must be positive")
    with localcontext(_CONTEXT):
        target = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        squares = [Decimal(w.numerator**2) / Decimal(w.denominator**2) for w in weights]
        shares = _bisect(target, squares)
        scale = target / sum(shares)
        grains = [int((share * scale).scaleb(_PLACES)) for share in shares]
    return tuple(Fraction(max(grain - 1, 0), 10**_PLACES) for grain in grains)


def bit_weights(bits: int) -> tuple[Fraction, ...]:
    """Return the weights 2**(l-i)/(2**l-1) of an l-bit number's bits, most significant first."""
    whole = (1 << bits) - 1
    return tuple(Fraction(1 << (bits - 1 - index), whole) for index in range(bits))


def _bisect(target: Decimal, squares: Sequence[Decimal]) -> list[Decimal]:
    """Find the multiplier for which the shares sum to ``target``, by bisection of its log."""
    goal = target.exp()
    # With the same share for all, the smallest and the largest weight bracket the multiplier.
    even = _slope(target / len(squares))
    low, high = min(squares) * even, max(squares) * even
    roots = [_start(low / square) for square in squares]
    for _ in range(_STEPS):
        middle = (low * high).sqrt()
        roots = [_root(middle / s, root) for s, root in zip(squares, roots, strict=True)]
        product = Decimal(1)
        for root in roots:
            product *= 1 + root
        if product > goal:
            low = middle
        else:
            high = middle
    return [(1 + root).ln() for root in roots]


def _slope(epsilon: Decimal) -> Decimal:
    """Return |f'| at ``epsilon``."""
    z = epsilon.exp() - 1
    return (z + 1) * (z + 2) / z**3


def _start(slope: Decimal) -> Decimal:
    """Return a z above the root for ``slope``: (z+1)(z+2) is at most 6 max(1, z)^2."""
    return max(6 / slope, (6 / slope) ** (Decimal(1) / 3))


def _root(slope: Decimal, start: Decimal) -> Decimal:
    """Return the z > 0 for which slope z^3 = (z+1)(z+2), by Newton's method."""
    # The cubic is convex wherever it rises: one step from there lands above the root, and from
    # above the root every step falls towards it.
    z = start
    while True:
        linear = slope * z - 1
        excess = (linear * z - 3) * z - 2
        incline = (3 * linear + 1) * z - 3
        if incline <= 0:
            z = _start(slope)
            continue
        step = excess / incline
        z -= step
        if abs(step) < z * _CLOSE:
            return z
