"""What it costs to be told one value instead of another.

A loss is a square matrix, ``loss[x][y]`` what ``y`` costs in place of ``x``: zero where they are
the same, never negative.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Hashable, Sequence
from fractions import Fraction

from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.randomness import Source

#: Integers and fractions are taken exactly, floats as the binary numbers that they are.
Number = int | float | Fraction
Loss = tuple[tuple[Number, ...], ...]


def loss_matrix(rows: Sequence[Sequence[Number]]) -> Loss:
    """Return a loss as tuples, after a check.

    Raises
    ------
    ParameterError
        It is not square, an entry is negative or not finite, or one on the diagonal not zero.

    Examples
    --------
    >>> loss_matrix([[0, 1], [2, 0]])
    ((0, 1), (2, 0))
    """
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
    """Return the distances |x − y| of equidistant points.

    Examples
    --------
    >>> equidistant(3)
    ((0, 1, 2), (1, 0, 1), (2, 1, 0))
    """
    if not points >= 1:
        raise ParameterError(f"points must be at least 1, not {points}")
    return tuple(tuple(abs(x - y) for y in range(points)) for x in range(points))


def euclidean(points: Sequence[Sequence[float]]) -> Loss:
    """Return the Euclidean distances of points of any dimension, ``(N, d)`` coordinates.

    Examples
    --------
    >>> euclidean([(0, 0), (3, 4)])
    ((0.0, 5.0), (5.0, 0.0))
    """
    if len({len(point) for point in points}) > 1:
        raise ParameterError("points must have as many coordinates as each other")
    return loss_matrix([[math.dist(x, y) for y in points] for x in points])


def jaccard(sets: Sequence[Collection[Hashable]]) -> Loss:
    """Return the Jaccard distances 1 − |A ∩ B| / |A ∪ B| of sets, exactly.

    Two empty sets are the same.

    Examples
    --------
    >>> jaccard([{1, 2}, {2, 3}])[0][1]
    Fraction(2, 3)
    """
    given = [frozenset(one) for one in sets]

    def distance(one: frozenset[Hashable], two: frozenset[Hashable]) -> Fraction:
        union = len(one | two)
        return Fraction(union - len(one & two), union) if union else Fraction(0)

    return loss_matrix([[distance(one, two) for two in given] for one in given])


@frozen
class Nodes:
    """The values of a continuous range that are told apart.

    Parameters
    ----------
    places : tuple of float
        Finite, increasing, at least two.

    Notes
    -----
    What is done before a mechanism costs no privacy, and protects none either: the value is
    protected by what is done to the node. The nearest node costs at most half a gap, always in
    the same direction; one of two at random costs more a value, but nothing in the mean.

    References
    ----------
    S. Zhang et al., "Bipartite Randomized Response Mechanism for Local Differential Privacy",
    section 4.1.

    Examples
    --------
    >>> nodes = equidistant_nodes(0.0, 10.0, 6)
    >>> nodes.places
    (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    >>> nodes.nearest(4.9), nodes.nearest(-3.0)
    (2, 0)
    """

    places: tuple[float, ...]

    def __post_init__(self) -> None:
        ends = self.places[:1] + self.places[-1:]
        rising = all(one < two for one, two in zip(self.places[:-1], self.places[1:], strict=True))
        if not (len(self.places) >= 2 and rising and all(map(math.isfinite, ends))):
            raise ParameterError("nodes must be at least two finite numbers in increasing order")

    @property
    def loss(self) -> Loss:
        """The distances between the nodes."""
        return tuple(tuple(abs(x - y) for y in self.places) for x in self.places)

    def nearest(self, value: float) -> int:
        """Return the node nearest to a value, of two the lower one; values are clipped."""
        below, beyond = self._between(value)
        return below + (beyond > Fraction(1, 2))

    def stochastic(self, value: float, source: Source) -> int:
        """Return one of the two nodes around a value, with the value as mean."""
        below, beyond = self._between(value)
        return below + (source.bits(64) < int(beyond * 2**64))

    def _between(self, value: float) -> tuple[int, Fraction]:
        """Return the node below a value, and how far, of the gap, the value is beyond it."""
        if not value == value:
            raise ParameterError("a value must be a number")
        clipped = min(max(value, self.places[0]), self.places[-1])
        below = max(bisect_left(self.places, clipped) - 1, 0)
        low, high = Fraction(self.places[below]), Fraction(self.places[below + 1])
        return below, (Fraction(clipped) - low) / (high - low)


def equidistant_nodes(low: float, high: float, count: int) -> Nodes:
    """Return ``count`` equidistant nodes on [low, high].

    Raises
    ------
    ParameterError
        There are fewer than two, or the range is not finite and increasing, or too narrow.
    """
    if not count >= 2:
        raise ParameterError(f"count must be at least 2, not {count}")
    if not -math.inf < low < high < math.inf:
        raise ParameterError(f"range must be finite and increasing, not [{low}, {high}]")
    steps = count - 1
    inner = [low * ((steps - k) / steps) + high * (k / steps) for k in range(1, steps)]
    return Nodes((low, *inner, high))
