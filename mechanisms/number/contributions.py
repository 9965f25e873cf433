"""What each output of a mechanism on a grid contributes to the estimates: exact, and unbiased.

A contribution is a number for every output whose mean, given the input, is what is estimated.
That holds at every rung, in exact rational numbers, from its realised probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from mechanisms.number.laws import Law, Shape, balance, moments

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Contributions:
    """Unbiased contributions of the outputs of one rung.

    Attributes
    ----------
    value : tuple of Fraction
        Of mean x − 1/2 for the number x on the input grid, 0 for a missing value.
    present : tuple of Fraction
        Of mean 1 for a number, 0 for a missing value.
    square : tuple of Fraction, or None
        Of mean (x − 1/2)² for a number, 0 for a missing value; None where the outputs do not
        determine it.
    """

    value: tuple[Fraction, ...]
    present: tuple[Fraction, ...]
    square: tuple[Fraction, ...] | None


@lru_cache(maxsize=64)
def contributions(shape: Shape, law: Law) -> Contributions:
    """Return the contributions of a rung.

    Notes
    -----
    Many contributions are unbiased; of those that are linear in the position of a cell, these
    have the least worst-case variance (see :func:`mechanisms.number.laws.balance`).

    Examples
    --------
    >>> from mechanisms.number.duchi import duchi_ladder
    >>> ladder = duchi_ladder(False, [1_000_000], "delay")
    >>> [float(each) for each in contributions(ladder.shape, ladder.laws[0]).value]
    [-1.0819767068693265, 1.0819767068693265]
    """
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


def matrix(shape: Shape, law: Law) -> NDArray[np.float64]:
    """Return the channel of a rung as floats, ``(inputs, outputs)``.

    A missing value is the last input; the probabilities are correctly rounded, but for those of
    the ends between 0 and 1.
    """
    import numpy as np

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
