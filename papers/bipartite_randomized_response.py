"""Bipartite randomized response as published: losses, limits, and when it relaxes.

The quality loss is how far, on average over the values, a report is from the truth.

References
----------
S. Zhang, H. Zhu, Z. Chen, H. Hu, "Bipartite Randomized Response Mechanism for Local Differential
Privacy", Definition 2.5, Equation 12, Theorems 1 to 3, Algorithm 3. F. McSherry, K. Talwar,
"Mechanism Design via Differential Privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from mechanisms.audit.cases import Case, law_release
from mechanisms.chains.finite import FiniteChain, finite_chain
from mechanisms.errors import check_at_least, check_positive
from mechanisms.exact import MICRO, to_micro
from mechanisms.ordinal.brr import Windows, probabilities, strongest_draw
from mechanisms.ordinal.sizes import end_size, equidistant_size, exp_less, middle_floor

#: Integers and fractions are taken exactly, floats as the binary numbers that they are.
Number = int | float | Fraction
#: The loss of each value in place of each other: ``loss[x][y]`` for ``y`` in place of ``x``.
Loss = Sequence[Sequence[Number]]
#: A larger epsilon of the exponential mechanism changes nothing: infinity is taken as this.
_MOST = 1e6


class QualityLosses(NamedTuple):
    """Quality losses over N equidistant points, as shares of the largest loss N − 1.

    ``size`` is how many candidates bipartite randomized response favours, ``randomized`` the loss
    of plain (generalized) randomized response. ``exponential_half`` is that of the exponential
    mechanism at ε/(2Δ), the textbook's, which realises only ε/2 here; ``exponential`` that at ε/Δ,
    which realises ε: the fair comparison.
    """

    points: int
    epsilon: float
    size: int
    bipartite: float
    randomized: float
    exponential_half: float
    exponential: float


class LossRatios(NamedTuple):
    """The loss of bipartite relative to plain randomized response for many equidistant points.

    The largest and the smallest over the values, and the average, right and as published (wrong).
    """

    largest: float
    smallest: float
    overall: float
    overall_printed: float


def windows_of(loss: Loss, size: int) -> Windows:
    """Return the ``size`` nearest candidates of every value, of equally near ones the smaller."""
    return tuple(
        tuple(sorted(sorted(range(len(row)), key=lambda y: (row[y], y))[:size])) for row in loss
    )


def equidistant(points: int) -> Loss:
    """Return the distances |x − y| of equidistant points."""
    return tuple(tuple(abs(x - y) for y in range(points)) for x in range(points))


def local_size(losses: Sequence[Number], epsilon: float | Fraction) -> int:
    """Return how many candidates a single value, with these losses, would favour (Algorithm 1)."""
    check_positive(epsilon)
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


def local_sizes(loss: Loss, epsilon: float | Fraction) -> tuple[int, ...]:
    """Return how many candidates every value would favour by itself (Algorithm 2, lines 1 to 8).

    >>> loss = [[0, 1, 3, 4, 8], [1, 0, 2, 3, 7], [3, 2, 0, 1, 5], [4, 3, 1, 0, 4], [8, 7, 5, 4, 0]]
    >>> local_sizes(loss, 1.0)
    (2, 2, 2, 2, 1)
    """
    return tuple(local_size(row, epsilon) for row in loss)


def equidistant_row(points: int, epsilon: float, value: int) -> list[float]:
    """Return the law of the report of one of N = ``points`` equidistant values (Equation 7).

    The size is :func:`~mechanisms.ordinal.sizes.equidistant_size`.
    """
    size = equidistant_size(points, epsilon)
    high, low = probabilities(points, size, epsilon)
    first = min(max(value - size // 2, 0), points - size)
    return [high if first <= y < first + size else low for y in range(points)]


def channel_rank(points: int, size: int) -> int:
    """Return the rank of the channel of equidistant points: values at the ends share a window."""
    return points - size + 1


def loss_chain(loss: Loss, epsilons: Sequence[float], size: int = 0) -> FiniteChain:
    """Return the chain of bipartite randomized response for any loss (Algorithm 2).

    ``loss``, ``(N, N)`` with N in [2, 1024], is what each value costs in place of each other;
    epsilons rise, one a level. ``size`` candidates are favoured, in [1, N); by default the smallest
    of :func:`local_sizes` at the last level. It costs at most the last
    epsilon, whatever the loss, which is public.
    """
    micros = tuple(map(to_micro, epsilons))
    favoured = size or min(local_sizes(loss, Fraction(micros[-1], MICRO)))
    return finite_chain(strongest_draw(windows_of(loss, favoured), micros[-1]), micros)


def quality_losses(points: int, epsilon: float) -> QualityLosses:
    """Return the losses of all mechanisms over at least two equidistant points (Equation 12)."""
    size = equidistant_size(points, epsilon)
    return QualityLosses(
        points,
        epsilon,
        size,
        bipartite_loss(points, size, epsilon),
        bipartite_loss(points, 1, epsilon),
        exponential_loss(points, epsilon / 2),
        exponential_loss(points, epsilon),
    )


def bipartite_loss(points: int, size: int, epsilon: float) -> float:
    """Return the quality loss over equidistant points if ``size`` candidates are favoured."""
    high, low = probabilities(points, size, epsilon)
    firsts = (min(max(x - size // 2, 0), points - size) for x in range(points))
    near = sum(_to(x - first) + _to(first + size - 1 - x) for x, first in enumerate(firsts))
    far = points * (points**2 - 1) // 3 - near
    return (near * high + far * low) / (points * (points - 1))


def exponential_loss(points: int, epsilon: float) -> float:
    """Return the quality loss of the exponential mechanism with score −|x − y| ε/(N − 1).

    The extreme reports of the extreme values have the largest likelihood ratio, e^ε. The textbook
    halves the exponent, since in general the sum of the weights may change as much as a weight;
    here, between those values, it does not change at all.
    """
    check_at_least("points", points, 1)
    check_at_least("epsilon", epsilon, 0)
    rate = min(epsilon, _MOST) / max(points - 1, 1)
    weights = [math.exp(-rate * distance) for distance in range(points)]
    sums = list(accumulate(weights))
    costs = list(accumulate(distance * weight for distance, weight in enumerate(weights)))
    rows = [
        (costs[x] + costs[points - 1 - x]) / (sums[x] + sums[points - 1 - x] - 1)
        for x in range(points)
    ]
    return math.fsum(rows) / points / max(points - 1, 1)


def exponential_rows(points: int, epsilon: float) -> list[list[float]]:
    """Return the channel of the exponential mechanism of :func:`exponential_loss`."""
    rate = min(epsilon, _MOST) / max(points - 1, 1)
    rows = [[math.exp(-rate * abs(x - y)) for y in range(points)] for x in range(points)]
    return [[weight / math.fsum(row) for weight in row] for row in rows]


def loss_ratios(epsilon: float) -> LossRatios:
    """Return the limits of bipartite over plain randomized response (Theorems 2, and 3 corrected).

    With h = e^{ε/2} and r = √(h² + 2h + 2): at most 2/(h+1), at least h − (h−1)(r+1)/(h+1), and
    (7h+9)/(4(h+1)²) overall. The published (7h+1)/(4h(h+1)) lost the term (e^ε−1)c³/12.
    """
    check_at_least("epsilon", epsilon, 0)
    # All in 1/h, which does not overflow; the root is r/h.
    k = math.exp(-epsilon / 2)
    root = math.hypot(1 + k, k)
    return LossRatios(
        2 * k / (1 + k),
        k * (2 * root + 1 + 3 * k) / (root + 1 + k) / (1 + k),
        k * (7 + 9 * k) / (1 + k) / (1 + k) / 4,
        k * (7 + k) / (1 + k) / 4,
    )


def printed_size(points: int, epsilon: float | Fraction) -> int:
    """Return the size as Algorithm 3 was published, which is not always that of the search.

    A larger one serves some values worse than randomized response does; the mechanism is as private
    as with any other size.
    """
    end = end_size(points, epsilon)
    if epsilon >= 1:
        return end
    i = middle_floor(points, epsilon)
    return min(end, i if i % 2 else i + 1)


def keep_probability(points: int, size: int, weak: float, strong: float) -> float:
    """Return how often a report of the stronger level is kept as that of the weaker one.

    Else a uniform report takes its place: T = ρI + (1 − ρ)u with ρ = S₂(E₁ − 1) / (S₁(E₂ − 1)) and
    S = mE + N − m, which is exact for randomized response (m = 1) and for any m = ``size``
    candidates that are the same at both levels.
    """
    check_positive(strong, name="strong")
    wholes = [size + (points - size) * math.exp(-epsilon) for epsilon in (weak, strong)]
    return wholes[1] / wholes[0] * (math.expm1(-weak) / math.expm1(-strong))


def claims() -> list[Case]:
    """Return what is claimed of the exponential mechanism, by how its exponent is scaled."""
    points, epsilon = 20, 1.0
    exact = "epsilon / delta is exact here"
    scales = (
        ("epsilon / (2 delta)", epsilon / 2, "BRR, Definition 2.5", exact),
        ("delta of 1", epsilon * (points - 1) / 2, "the same misread", "scores differ by up to 19"),
    )
    found = []
    for what, exponent, source, why in scales:
        rows = exponential_rows(points, exponent)
        true = max(math.log(max(column) / min(column)) for column in zip(*rows, strict=True))
        name = f"exponential mechanism, 20 points, {what}"
        found.append(Case(name, source, epsilon, true, law_release(rows[0], rows[-1]), why))
    return found


def _to(distance: int) -> int:
    """Return the sum of the distances up to one."""
    return distance * (distance + 1) // 2
