"""How many candidates to favour: the searches and closed forms of bipartite randomized response.

The loss of a value falls by favouring its i-th nearest candidate if and only if e^ε A_i < B_i,
where A_i sums how much the i − 1 nearer ones are better, and B_i how much the others are worse
(the numerator of ∂Q/∂s_i). Where the loss is rational every comparison is exact. A loss is a square
matrix, ``loss[x][y]`` what ``y`` costs in place of ``x``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

from mechanisms.errors import ParameterError
from mechanisms.exact import exp_bounds

#: Integers and fractions are taken exactly, floats as the binary numbers that they are.
Number = int | float | Fraction
Loss = tuple[tuple[Number, ...], ...]
#: Epsilons of formulas lie in (0, 700].
LARGEST = 700
#: Logarithms in floating point are that sure.
_SURE = 1e-12


def check_epsilon(epsilon: float | Fraction) -> None:
    if not 0 < epsilon <= LARGEST:
        raise ParameterError(f"epsilon must lie in (0, {LARGEST}], not {epsilon}")


def exp_less(epsilon: float | Fraction, left: Number, right: Number) -> bool:
    """Whether ``e**epsilon * left < right`` for numbers of at least 0, decided exactly."""
    if not left or not right:
        return not left and right > 0
    ratio = Fraction(right) / Fraction(left)
    excess = ratio - 1
    if excess <= 0:
        return False
    log = math.log1p(float(excess)) if excess < 1 else _log(ratio)
    if abs(log - epsilon) > _SURE * max(log, float(epsilon)):
        return log > epsilon
    return exp_bounds(Fraction(epsilon))[1] < ratio


def local_size(losses: Sequence[Number], epsilon: float | Fraction) -> int:
    """Return how many candidates a single value, with these losses, would favour (Algorithm 1)."""
    ordered = sorted(Fraction(loss) for loss in losses)
    sums = [Fraction(0), *accumulate(ordered)]
    size = len(ordered)

    def falls(i: int) -> bool:
        here = ordered[i - 1]
        nearer = (i - 1) * here - sums[i - 1]
        farther = sums[size] - sums[i] - (size - i) * here
        return exp_less(epsilon, nearer, farther)

    # Both sides are monotone in i: the first candidate that does not help ends the search.
    low, high = 1, size + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if falls(middle) else (low, middle)
    return low


def local_sizes(loss: Sequence[Sequence[Number]], epsilon: float | Fraction) -> tuple[int, ...]:
    """Return how many candidates every value would favour by itself (Algorithm 2, lines 1 to 8).

    >>> loss = [[0, 1, 3, 4, 8], [1, 0, 2, 3, 7], [3, 2, 0, 1, 5], [4, 3, 1, 0, 4], [8, 7, 5, 4, 0]]
    >>> local_sizes(loss, 1.0)
    (2, 2, 2, 2, 1)
    """
    check_epsilon(epsilon)
    return tuple(local_size(row, epsilon) for row in loss_matrix(loss))


def equidistant_size(points: int, epsilon: float | Fraction) -> int:
    """Return m, the smallest of :func:`local_sizes` of N = ``points`` equidistant ones, at least 2.

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
    _check(points, epsilon)
    middle = middle_floor(points, epsilon)
    return min(end_size(points, epsilon), middle - (middle + 1) % 2)


def _check(points: int, epsilon: float | Fraction) -> None:
    if not points >= 2:
        raise ParameterError(f"points must be at least 2, not {points}")
    check_epsilon(epsilon)


def end_size(points: int, epsilon: float | Fraction) -> int:
    """Return m1, the size of the first and the last point."""
    gap, root = math.expm1(epsilon), math.exp(epsilon / 2)
    whole = math.hypot(points * root, gap / 2) + points
    guess = points * (points / whole) + gap / 4 / whole + 0.5

    def holds(i: int) -> bool:
        return exp_less(epsilon, i * (i - 1), (points - i) * (points - i + 1))

    return _last(holds, int(guess), 1, points)


def middle_floor(points: int, epsilon: float | Fraction) -> int:
    """Return ⌊i⌋, of the middle point or points; see :func:`equidistant_size`."""
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


def _log(ratio: Fraction) -> float:
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def loss_matrix(rows: Sequence[Sequence[Number]]) -> Loss:
    """Return a loss as tuples; it is square, finite, never negative, and zero on the diagonal."""
    size = len(rows)
    if not size:
        raise ParameterError("a loss needs at least one value")
    for x, row in enumerate(rows):
        if len(row) != size:
            raise ParameterError(f"a loss must be square: row {x} has {len(row)} of {size} entries")
        if not all(0 <= entry < math.inf for entry in row):
            raise ParameterError(f"row {x} of a loss must be finite and not negative")
        if row[x] != 0:
            raise ParameterError(f"the loss of telling the truth must be 0, not {row[x]}")
    return tuple(tuple(row) for row in rows)


def equidistant(points: int) -> Loss:
    """Return the distances |x − y| of equidistant points."""
    if not points >= 1:
        raise ParameterError(f"points must be at least 1, not {points}")
    return tuple(tuple(abs(x - y) for y in range(points)) for x in range(points))
