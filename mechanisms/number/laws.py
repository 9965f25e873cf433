"""The common part of the finite mechanisms for a number: windows of cells, two ends, missing.

A number is rounded at random to one of ``points`` equally spaced inputs. An output is one of a row
of *cells*, of two *ends* or, where a value can be missing, *gone*. The cells of an input's window,
``width`` of them, are likelier than the others; the window moves by one cell an input: the
Piecewise Mechanism on a grid, and the square wave. The probability of the upper end rises linearly
with the input, that of the lower end falls: Duchi's one-bit response. "Gone" is to a missing value
and to all numbers what a window is to the numbers inside and outside. So a law has eight
probabilities, whatever the numbers of inputs and outputs, and a degradation gives such a law again.
On the grid the mean of a cell's position, and of the end's sign, is exactly linear in the number.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt

from mechanisms.arrays import Floats, np
from mechanisms.errors import ParameterError
from mechanisms.frozen import NamedTuple, frozen

#: Numbers of inputs: one more than a power of two, so that halves and quarters are among them.
POINTS = (3, 5, 9, 17, 33, 65, 129, 257)
_ROOT_BITS = 64


@frozen
class Shape:
    """The inputs and outputs of a mechanism.

    Outputs are numbered: the cells in the order of the numbers, the lower and the upper end,
    gone. Inputs are one of :data:`POINTS` in number, and where a value can be missing one more;
    a window has ``width`` cells, an odd number, or 0 if there are none.
    """

    points: int
    width: int
    ends: bool
    missing: bool

    @property
    def steps(self) -> int:
        return self.points - 1

    @property
    def cells(self) -> int:
        return self.width + self.steps if self.width else 0

    @property
    def size(self) -> int:
        return self.cells + 2 * self.ends + self.missing

    @property
    def rest(self) -> int:
        """How many cells' worth of probability lies outside of a window."""
        return self.steps + self.width * self.missing


class Extremes(NamedTuple):
    """The largest and the smallest probability of an output over all inputs."""

    largest: Fraction
    smallest: Fraction


class Law(NamedTuple):
    """The exact probabilities of one level.

    ``inside``, ``outside`` and ``blank`` are those of a cell within the window of a number, outside
    of it, and for a missing value; ``high``, ``low`` and ``middle`` of the upper end for the
    numbers 1 and 0 (of the lower end, for 0 and 1) and of either for a missing value; ``gone`` and
    ``here`` of gone for a missing value, and for a number.
    """

    inside: Fraction
    outside: Fraction
    blank: Fraction
    high: Fraction
    low: Fraction
    middle: Fraction
    gone: Fraction
    here: Fraction

    def columns(self, shape: Shape) -> tuple[Extremes, Extremes, Extremes]:
        """Return the extremes of a cell, of an end and of gone."""
        cell, end = [self.inside, self.outside], [self.high, self.low]
        if shape.missing:
            cell.append(self.blank)
            end.append(self.middle)
        return (
            Extremes(max(cell), min(cell)),
            Extremes(max(end), min(end)),
            Extremes(self.gone, self.here),
        )

    def worst(self, shape: Shape) -> Extremes:
        """Return the extremes of the output with the largest likelihood ratio."""
        possible = [column for column in self.columns(shape) if column.largest]
        if not all(column.smallest for column in possible):
            raise ParameterError("an output tells inputs apart with certainty")
        return max(possible, key=lambda column: column.largest / column.smallest)

    def rounded(self) -> Law:
        """Return the probabilities rounded down to grains of 2**-64, for choices among laws."""
        return Law(
            *(Fraction((value.numerator << 64) // value.denominator, 1 << 64) for value in self)
        )


class Moments(NamedTuple):
    """First and second moments of the outputs, by a number x = 1/2 + y.

    A cell's position t, counted from the middle, has mean ``slope * y`` and second moment
    ``base + curve * y**2``; the sign of an end, 0 elsewhere, has mean ``end_slope * y`` and second
    moment ``end_base``. Both are 0 in the mean for a missing value. ``known`` is 1 where all
    values are present: of the variance ``known * y**2`` goes off, since reports are compared
    with the estimated share of values present.
    """

    slope: Fraction
    base: Fraction
    curve: Fraction
    end_slope: Fraction
    end_base: Fraction
    known: Fraction


def moments(shape: Shape, law: Law) -> Moments:
    width, cells, steps = shape.width, shape.cells, shape.steps
    excess = (law.inside - law.outside) * width
    base = law.outside * Fraction(cells * (cells**2 - 1), 12)
    base += excess * Fraction(width**2 - 1, 12)
    known = Fraction(1)
    if shape.missing:
        gap = law.gone - law.here
        square = law.gone**2 * (1 - law.here) + (1 - law.gone) ** 2 * law.here
        known = 2 * law.gone / gap - square / gap**2
    return Moments(
        excess * steps, base, excess * steps**2, 2 * (law.high - law.low), law.high + law.low, known
    )


def balance(given: Moments) -> Fraction:
    """Return how much of a number is read from the cells, the rest being read from the ends.

    Any part is unbiased; this one has the least variance at the number where that is largest, up
    to the rounding of a square root.
    """
    if not given.end_slope:
        if not given.slope:
            raise ParameterError("the outputs say nothing about the number")
        return Fraction(1)
    if not given.slope:
        return Fraction(0)
    ends = given.end_base / given.end_slope**2
    middle = given.base / given.slope**2
    edge = middle + given.curve / (4 * given.slope**2)
    square = max(given.known, Fraction(0)) * given.slope**2 / given.curve
    root = isqrt((square.numerator << (2 * _ROOT_BITS)) // square.denominator)
    equal = Fraction(root, 1 << _ROOT_BITS)
    return min(ends / (middle + ends), max(ends / (edge + ends), equal))


def worst_variance(shape: Shape, law: Law) -> Fraction:
    """Return n times the variance of the mean if all have the input where that is largest."""
    given, cells, ends = _weighted(shape, law)
    middle = cells * given.base + ends
    return max(middle, middle + (cells * given.curve - given.known) / 4)


def worst_ends_variance(shape: Shape, law: Law) -> Fraction:
    """Return n times the variance of the mean if half of the numbers are 0 and half are 1.

    This can be more, if values can be missing, than that of any number which all have: what reports
    say of being present then counts for nothing, since it is multiplied by the mean.
    """
    given, cells, ends = _weighted(shape, law)
    return cells * given.base + ends + (cells * given.curve - 1) / 4


def _weighted(shape: Shape, law: Law) -> tuple[Moments, Fraction, Fraction]:
    """Return the moments, the weight of a cell's squared position, and the variance of the end."""
    given = moments(shape, law)
    part = balance(given)
    cells = part**2 / given.slope**2 if part else Fraction(0)
    ends = (1 - part) ** 2 * given.end_base / given.end_slope**2 if part != 1 else Fraction(0)
    return given, cells, ends


class Contributions(NamedTuple):
    """The contribution of each output of a level: exact numbers, unbiased given the input.

    ``value`` has mean x − 1/2 for the number x on the input grid, ``present`` mean 1, ``square``
    mean (x − 1/2)²; all have mean 0 for a missing value. ``square`` is None where the outputs do
    not determine it.
    """

    value: tuple[Fraction, ...]
    present: tuple[Fraction, ...]
    square: tuple[Fraction, ...] | None


@lru_cache(maxsize=64)
def contributions(shape: Shape, law: Law) -> Contributions:
    """Return the contributions of a level of least worst-case variance; see :func:`balance`."""
    given = moments(shape, law)
    part = balance(given)
    middle = Fraction(shape.cells - 1, 2)
    positions = [Fraction(cell) - middle for cell in range(shape.cells)]
    tail = [Fraction(0)] * (2 * shape.ends + shape.missing)
    unit = part / given.slope if part else Fraction(0)
    value = [unit * position for position in positions] + tail
    if shape.ends:
        end = (1 - part) / given.end_slope if part != 1 else Fraction(0)
        value[shape.cells : shape.cells + 2] = [-end, end]
    present = [Fraction(1)] * shape.size
    if shape.missing:
        gap = law.gone - law.here
        present = [law.gone / gap] * (shape.size - 1) + [(law.gone - 1) / gap]
    square = None
    if given.slope:
        blank = law.blank * sum(position**2 for position in positions)
        raw = [position**2 for position in positions] + tail
        square = tuple(
            (one - given.base * here - blank * (1 - here)) / given.curve
            for one, here in zip(raw, present, strict=True)
        )
    return Contributions(tuple(value), tuple(present), square)


def matrix(shape: Shape, law: Law) -> Floats:
    """Return the channel of a level as floats, ``(inputs, outputs)``.

    A missing value is the last input; the probabilities are correctly rounded, but for those of
    the ends between 0 and 1.
    """
    points, cells = shape.points, shape.cells
    numbers, row = np.arange(points)[:, None], np.arange(cells)
    out = np.zeros((points + shape.missing, shape.size))
    within = (row >= numbers) & (row < numbers + shape.width)
    out[:points, :cells] = np.where(within, float(law.inside), float(law.outside))
    if shape.ends:
        rising = np.linspace(float(law.low), float(law.high), points)
        out[:points, cells], out[:points, cells + 1] = rising[::-1], rising
    if shape.missing:
        out[:points, -1] = float(law.here)
        out[points, :cells] = float(law.blank)
        out[points, cells:-1] = float(law.middle)
        out[points, -1] = float(law.gone)
    return out
