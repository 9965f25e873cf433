"""The strongest level: how wide a window is, how much the ends get, and the integers over 2**64.

Decisions are taken in exact rational numbers: the same on a device and at the aggregator.
"""

from __future__ import annotations

from fractions import Fraction

from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, ceil_fraction, exp_micro
from mechanisms.frozen import NamedTuple
from mechanisms.levels import GRAINS
from mechanisms.number.laws import POINTS, Law, Shape

_COARSE = 1 << 32


class Grains(NamedTuple):
    """The integer probabilities, of 2**64, of a strongest level.

    ``low`` is that of an end at its least; it has ``step`` more for every input.
    """

    inside: int
    outside: int
    low: int
    step: int


def check_points(points: int) -> None:
    """Refuse a number of inputs that is not one more than a power of two."""
    if points not in POINTS:
        raise ParameterError(f"points must be one of {', '.join(map(str, POINTS))}, not {points}")


def least_variance_design(
    points: int, missing: bool, micro: int, mixed: bool
) -> tuple[Fraction, Shape, Fraction]:
    """Return the least variance at a nominal amount, its shape, and the share of the cells in it.

    Some of the probability may go to the ends if ``mixed`` (the Hybrid Mechanism): then the
    variance is the worst case's. Otherwise all is the cells' (the Piecewise Mechanism), and the
    variance is that of uniform numbers. For every odd width, the cells alone have the variance P +
    (1/g − 1) y² at x = 1/2 + y, where g is by how much the window is likelier than the same cells
    are otherwise; the ends alone have D − y². Answers by the cells with probability g make the
    variance g P + (1 − g) D whatever the number is. Wang et al. choose the width so that P is
    least.
    """
    check_points(points)
    steps = points - 1
    exact = exp_micro(micro)[0]
    # In so few digits that exact arithmetic with it is fast.
    exp = Fraction(exact.numerator * _COARSE // exact.denominator, _COARSE)
    symbols = 2 + missing
    ends = (exp + 1) * (exp + symbols - 1) / (4 * (exp - 1) ** 2)
    found = [(ends, Shape(points, 0, True, missing), Fraction(0))] if mixed else []
    for width in range(1, steps + 1, 2):
        shape = Shape(points, width, True, missing)
        whole = shape.rest + width * exp
        gain = width * (exp - 1) / whole
        cells = shape.cells
        scatter = cells * (cells**2 - 1) + (exp - 1) * width * (width**2 - 1)
        middle = scatter / (12 * whole * (steps * gain) ** 2)
        variance = middle + (1 / gain - 1) / (4 if mixed else 12)
        found.append((variance, shape, Fraction(1)))
        if mixed and middle < ends:
            found.append((gain * middle + (1 - gain) * ends, shape, gain))
    return min(found, key=lambda design: design[0])


def square_wave_shape(points: int, missing: bool, micro: int) -> Shape:
    """Return the shape whose window is closest to the square wave's.

    Its half-width is b = (ε e^ε − e^ε + 1) / (2 e^ε (e^ε − 1 − ε)) (Li et al., section 5).
    """
    check_points(points)
    epsilon = Fraction(micro, MICRO)
    exp = exp_micro(micro)[0]
    half = (epsilon * exp - exp + 1) / (2 * exp * (exp - 1 - epsilon))
    cells = (half * (points - 1) + Fraction(1, 2)).__floor__()
    return Shape(points, 2 * cells + 1, False, missing)


def strongest(shape: Shape, share: Fraction, micro: int) -> Grains:
    """Return the integers of the strongest level; the largest likelihood ratio is within e^ε.

    ``share`` is how much of the probability is the cells'; what the integers leave over is added
    to it. A ``ParameterError`` where 64-bit thresholds cannot tell the inputs apart.
    """
    bound = exp_micro(micro)[0]
    low = step = 0
    symbols = 2 + shape.missing
    if shape.ends and share < 1:
        target = (1 - share) * GRAINS
        low = ceil_fraction(target / (symbols + bound - 1))
        if not shape.cells:
            low += (
                (GRAINS - symbols * low) * pow(symbols, -1, shape.steps) % shape.steps
                if shape.missing
                else -low % (shape.steps // 2)
            )
        step = int((target - symbols * low) // shape.steps)
    inside = outside = 0
    if shape.cells:
        left = GRAINS - symbols * low - shape.steps * step
        outside = ceil_fraction(left / (shape.rest + shape.width * bound))
        over = (left - shape.rest * outside) % shape.width
        outside += over * pow(shape.rest, -1, shape.width) % shape.width
        inside = (left - shape.rest * outside) // shape.width
    if not (inside > outside if shape.cells else step > 0):
        raise ParameterError("the epsilon is too small for these inputs and 64-bit thresholds")
    return Grains(inside, outside, low, step)


def rows_of(shape: Shape, grains: Grains) -> tuple[tuple[int, ...], ...]:
    """Return the rows of the strongest level, one an input; each sums to 2**64."""
    rows = []
    for x in range(shape.points):
        row = [grains.outside] * shape.cells
        row[x : x + shape.width] = [grains.inside] * shape.width
        if shape.ends:
            up = x * grains.step
            row += [grains.low + shape.steps * grains.step - up, grains.low + up]
        if shape.missing:
            row.append(shape.width * grains.outside + grains.low)
        rows.append(tuple(row))
    if shape.missing:
        gone = shape.width * grains.inside + grains.low + shape.steps * grains.step
        ends = [grains.low] * (2 * shape.ends)
        rows.append((*[grains.outside] * shape.cells, *ends, gone))
    return tuple(rows)


def law_of(shape: Shape, grains: Grains) -> Law:
    """Return the exact law of the strongest level."""
    high = grains.low + shape.steps * grains.step
    gone = shape.width * grains.inside + high
    here = shape.width * grains.outside + grains.low
    values = (grains.inside, grains.outside, grains.outside, high, grains.low, grains.low)
    both = (gone, here) if shape.missing else (0, 0)
    return Law(*(Fraction(value, GRAINS) for value in (*values, *both)))
