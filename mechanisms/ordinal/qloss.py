"""Quality loss: how far, on average over the values, a report is from the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from mechanisms.errors import ParameterError
from mechanisms.ordinal.brr import probabilities
from mechanisms.ordinal.losses import Number, loss_matrix
from mechanisms.ordinal.search import check_epsilon, equidistant_size


class QualityLosses(NamedTuple):
    """Quality losses over N equidistant points, as shares of the largest loss N − 1.

    Attributes
    ----------
    points : int
    epsilon : float
    size : int
        How many candidates bipartite randomized response favours.
    bipartite, randomized : float
        Of bipartite and of plain (generalized) randomized response.
    exponential_half : float
        Of the exponential mechanism at ε/(2Δ), the textbook's, which realises only ε/2 here.
    exponential : float
        Of the exponential mechanism at ε/Δ, which realises ε: the fair comparison.
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

    Attributes
    ----------
    largest, smallest : float
        Over the values.
    overall : float
        On average over the values.
    overall_printed : float
        As published, which is wrong.
    """

    largest: float
    smallest: float
    overall: float
    overall_printed: float


def quality_loss(rows: Sequence[Sequence[float]], loss: Sequence[Sequence[Number]]) -> float:
    """Return the quality loss of any channel: the mean loss of a report, over the largest loss.

    Parameters
    ----------
    rows : sequence of sequence of float
        The channel, ``(N, N)``: the probability of every report for every value.
    loss : sequence of sequence of number
        ``(N, N)``, not all zero.

    Examples
    --------
    >>> quality_loss([[0.75, 0.25], [0.25, 0.75]], [[0, 1], [1, 0]])
    0.25
    """
    given = loss_matrix(loss)
    largest = max(map(max, given))
    if not largest > 0:
        raise ParameterError("a loss must not be zero everywhere")
    if [len(row) for row in rows] != [len(row) for row in given]:
        raise ParameterError(f"the channel must have {len(given)} inputs and outputs")
    terms = (
        float(cost) * float(likely)
        for costs, row in zip(given, rows, strict=True)
        for cost, likely in zip(costs, row, strict=True)
    )
    return math.fsum(terms) / len(given) / float(largest)


def quality_losses(points: int, epsilon: float) -> QualityLosses:
    """Return the quality losses of all mechanisms over equidistant points (Equation 12).

    Parameters
    ----------
    points : int
        N, at least 2.
    epsilon : float
        In (0, 700].

    References
    ----------
    S. Zhang et al., "Bipartite Randomized Response Mechanism for Local Differential Privacy",
    Equation 12, figures 1 and 4; F. McSherry, K. Talwar, "Mechanism Design via Differential
    Privacy", FOCS 2007.

    Examples
    --------
    >>> table = quality_losses(20, 1.0)
    >>> table.size, [round(value, 4) for value in table[3:]]
    (7, [0.2564, 0.3223, 0.3226, 0.2964])
    """
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


def quality_loss_table(
    points: Sequence[int], epsilons: Sequence[float]
) -> tuple[QualityLosses, ...]:
    """Return :func:`quality_losses` for every number of points and every epsilon, in order."""
    return tuple(quality_losses(number, epsilon) for number in points for epsilon in epsilons)


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

    Examples
    --------
    >>> round(exponential_loss(100, 3.0), 4)
    0.2068
    """
    check_epsilon(epsilon)
    if not points >= 2:
        raise ParameterError(f"points must be at least 2, not {points}")
    rate = epsilon / (points - 1)
    weights = [math.exp(-rate * distance) for distance in range(points)]
    sums = list(accumulate(weights))
    costs = list(accumulate(distance * weight for distance, weight in enumerate(weights)))
    rows = [
        (costs[x] + costs[points - 1 - x]) / (sums[x] + sums[points - 1 - x] - 1)
        for x in range(points)
    ]
    return math.fsum(rows) / points / (points - 1)


def exponential_rows(points: int, epsilon: float) -> list[list[float]]:
    """Return the channel of the exponential mechanism of :func:`exponential_loss`."""
    check_epsilon(epsilon)
    rate = epsilon / (points - 1)
    rows = [[math.exp(-rate * abs(x - y)) for y in range(points)] for x in range(points)]
    return [[weight / math.fsum(row) for weight in row] for row in rows]


def loss_ratios(epsilon: float) -> LossRatios:
    """Return the limits of bipartite over plain randomized response (Theorems 2 and 3).

    Parameters
    ----------
    epsilon : float
        In (0, 700].

    Notes
    -----
    With h = e^{ε/2} and r = √(h² + 2h + 2): at most 2/(h+1), at least h − (h−1)(r+1)/(h+1), and
    (7h+9)/(4(h+1)²) overall. The published (7h+1)/(4h(h+1)) lost the term (e^ε−1)c³/12.

    References
    ----------
    S. Zhang et al., "Bipartite Randomized Response Mechanism for Local Differential Privacy",
    Theorem 2, and Theorem 3 corrected.

    Examples
    --------
    >>> [round(value, 6) for value in loss_ratios(1.0)]
    [0.755081, 0.710388, 0.731965, 0.717944]
    """
    check_epsilon(epsilon)
    h = math.exp(epsilon / 2)
    root = math.hypot(h + 1, 1)
    return LossRatios(
        2 / (h + 1),
        (2 * root + h + 3) / (root + h + 1) / (h + 1),
        (7 * h + 9) / (h + 1) / (h + 1) / 4,
        (7 * h + 1) / (h + 1) / h / 4,
    )


def _to(distance: int) -> int:
    """Return the sum of the distances up to one."""
    return distance * (distance + 1) // 2
