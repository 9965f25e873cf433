"""How many candidates bipartite randomized response favours, for equidistant points.

The loss of a value falls by favouring its i-th nearest candidate if and only if e^ε A_i < B_i,
where A_i sums how much the i − 1 nearer ones are better, and B_i how much the others are worse
(the numerator of ∂Q/∂s_i). Comparisons are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from mechanisms.errors import check_at_least, check_positive
from mechanisms.exact import exp_bounds, log_ratio

#: Epsilons of formulas lie in (0, 700].
LARGEST = 700
#: Logarithms in floating point are that sure.
_SURE = 1e-12


def exp_less(epsilon: float | Fraction, left: int | Fraction, right: int | Fraction) -> bool:
    """Whether ``e**epsilon * left < right`` for numbers of at least 0, decided exactly."""
    if not left or not right:
        return not left and right > 0
    ratio = Fraction(right) / Fraction(left)
    if ratio <= 1:
        return False
    log = log_ratio(ratio, Fraction(1))
    if abs(log - epsilon) > _SURE * max(log, float(epsilon)):
        return log > epsilon
    return exp_bounds(Fraction(epsilon))[1] < ratio


def equidistant_size(points: int, epsilon: float | Fraction) -> int:
    """Return m, the least that any of N = ``points`` equidistant values would favour, at least 2.

    With more favoured candidates some value would lose utility. m is the lesser of m1, the end's
    size, and of the largest odd number up to i, the middle's. With E = e^ε and h = e^{ε/2}, m1 =
    ⌊(√(N²E + (E−1)²/4) − N + (E−1)/2)/(E−1)⌋, and i is N/(h+1) + 1 for even N, (√(E(N²−1)+1) −
    N)/(E−1) + 1 for odd N. As published (S. Zhang et al., "Bipartite Randomized Response Mechanism
    for Local Differential Privacy", Algorithm 3) an even ⌊i⌋ becomes i + 1 instead of i − 1, and
    the middle is not looked at from ε = 1 on; for a quarter of all sizes and epsilons that is not
    what the search finds.

    >>> equidistant_size(100, 1.0), equidistant_size(5, 1.0)
    (37, 1)
    """
    middle = middle_floor(points, epsilon)
    return min(end_size(points, epsilon), middle - (middle + 1) % 2)


def _check(points: int, epsilon: float | Fraction) -> None:
    check_at_least("points", points, 2)
    check_positive(epsilon, LARGEST)


def end_size(points: int, epsilon: float | Fraction) -> int:
    """Return m1, the size of the first and the last point."""
    _check(points, epsilon)
    gap, root = math.expm1(epsilon), math.exp(epsilon / 2)
    whole = math.hypot(points * root, gap / 2) + points
    guess = points * (points / whole) + gap / 4 / whole + 0.5

    def holds(i: int) -> bool:
        return exp_less(epsilon, i * (i - 1), (points - i) * (points - i + 1))

    return _last(holds, int(guess), 1, points)


def middle_floor(points: int, epsilon: float | Fraction) -> int:
    """Return ⌊i⌋, of the middle point or points; see :func:`equidistant_size`."""
    _check(points, epsilon)
    odd = points % 2
    root = math.exp(epsilon / 2)
    if odd:
        guess = (points**2 - 1) / (root * math.sqrt(points**2 - 1 + math.exp(-epsilon)) + points)
    else:
        guess = points / (root + 1)

    def holds(k: int) -> bool:
        return exp_less(epsilon, k * k, (points - k) ** 2 - odd)

    return 1 + _last(holds, int(guess), 0, points - 1)


def _last(holds: Callable[[int], bool], guess: int, low: int, high: int) -> int:
    """Return the last number in [low, high] for which a falling property holds, near a guess."""
    found = min(max(guess, low), high)
    while found > low and not holds(found):
        found -= 1
    while found < high and holds(found + 1):
        found += 1
    return found
