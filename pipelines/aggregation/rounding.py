"""Rounds figures for readers, to about a tenth of the standard error that is expected.

The step follows from the numbers of reports and from the plan, never from what reports say. It is
the largest of 1, 2 and 5 times a power of ten that is not above that tenth, so that rounding adds
at most a thousandth to a variance. Intervals are rounded outward and errors up, so that intervals
cover at least as much as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from mechanisms.base import Mechanism

#: The step is at most this part of a standard error.
PART = 0.1
#: How far a float that should be a whole number of steps may be off, in steps.
_SLACK = 1e-9


class RoundingStep:
    """A step to which figures are rounded; a figure that is not finite stays as it is.

    >>> step = RoundingStep(0.034)
    >>> step.nearest(0.1234), step.down(0.1234), step.up(0.1234), RoundingStep(0.0).nearest(0.1234)
    (0.12, 0.12, 0.14, 0.1234)
    """

    def __init__(self, most: float) -> None:
        self.unit, self.power = 0, 0
        if 0 < most < math.inf:
            self.power = math.floor(math.log10(most))
            self.unit = max((u for u in (1, 2, 5) if u * 10.0**self.power <= most), default=1)

    @property
    def size(self) -> float:
        return self.unit * 10.0**self.power

    def nearest(self, figure: float) -> float:
        return self._rounded(figure, lambda steps: math.floor(steps + 0.5))

    def down(self, figure: float) -> float:
        return self._rounded(figure, lambda steps: math.floor(steps + _SLACK))

    def up(self, figure: float) -> float:
        return self._rounded(figure, lambda steps: math.ceil(steps - _SLACK))

    def error(self, figure: float) -> float:
        """Return a standard error, rounded up to a tenth of the step."""
        return self._rounded(figure, lambda steps: math.ceil(steps - _SLACK), 1)

    def _rounded(self, figure: float, whole: Callable[[float], int], finer: int = 0) -> float:
        if not (self.unit and math.isfinite(figure)):
            return figure
        step = self.size / 10.0**finer
        return round(whole(figure / step) * step, max(finer - self.power, 0))


def step_of(mechanism: Mechanism, reports_by_level: Sequence[int], scale: float) -> RoundingStep:
    """Return the step of estimates of so many reports; ``scale`` is the length of their range."""
    error = expected_error(mechanism, reports_by_level)
    return RoundingStep(PART * scale * error if error < math.inf else 0.0)


def expected_error(mechanism: Mechanism, reports_by_level: Sequence[int]) -> float:
    """Return the approximate standard error of a share of so many reports; infinite of none."""
    noises = _noises(mechanism)
    total = sum(n * noise for n, noise in zip(reports_by_level, noises, strict=True))
    n = sum(reports_by_level)
    return math.sqrt(total) / n if n else math.inf


@lru_cache(maxsize=1024)
def _noises(mechanism: Mechanism) -> tuple[float, ...]:
    """Return by level the variance of a report about an item that is not true of its device.

    If that is 0, it is the variance about an item that is true.
    """
    found = (mechanism.noise(level) for level in range(mechanism.levels))
    return tuple(0.0 if each is None else each.no or each.yes for each in found)


def without_float_error(figure: float, standard_error: float) -> float:
    """Return a sum or difference of figures without the error of floating-point arithmetic.

    >>> without_float_error(0.1 + 0.2 - 0.3, 0.02), without_float_error(0.3 - 0.2, 0.02)
    (0.0, 0.1)
    """
    return RoundingStep(_SLACK * standard_error).nearest(figure)


def probability(p_value: float) -> float:
    """Return a p-value, rounded up to two digits.

    >>> probability(0.01234), probability(1.0), probability(0.0)
    (0.013, 1.0, 0.0)
    """
    return upward(p_value, 2) if p_value < 1 else p_value


def multiple(figure: float) -> float:
    """Return a bound, rounded up to three digits.

    >>> multiple(1.58198), multiple(12741.0), multiple(0.0)
    (1.59, 12800.0, 0.0)
    """
    return upward(figure, 3)


def upward(figure: float, digits: int) -> float:
    """Return a positive figure rounded up to so many digits; any other stays as it is."""
    if not 0 < figure < math.inf:
        return figure
    power = digits - 1 - math.floor(math.log10(figure))
    if power > 300:
        return figure
    return round(math.ceil(figure * 10.0**power - _SLACK) / 10.0**power, power)
