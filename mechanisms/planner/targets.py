"""How precise an estimate is with so many reports, and how many reports a target takes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

from mechanisms.errors import ParameterError, check_at_least, check_probability, check_share
from mechanisms.estimate import FLOOR_ERRORS, ShareNoise, two_sided

#: Targets that can be asked for, and their words.
MEASURES = {"error": "standard error", "width": "width of the interval", "floor": "detection floor"}
#: So many reports are more than anyone collects.
MAX_REPORTS = 10**15


@dataclass(frozen=True)
class Assumed:
    """Assumptions about the data; what is not given is the worst.

    ``share``, in [0, 1], is that of the category, the answer or the candidate that is asked about;
    ``values``, in [0, 1], picture those of a number or a coordinate; ``candidates`` are the strings
    that reports are tested for; all categories but that one are ``even``, one as frequent as the
    other, and without a share so is that one.
    """

    share: float | None = None
    values: tuple[float, ...] | None = None
    candidates: tuple[str, ...] = ()
    even: bool = False

    def __post_init__(self) -> None:
        if self.share is not None:
            check_share("share", self.share)
        if self.values is not None and not (
            self.values and all(0 <= value <= 1 for value in self.values)
        ):
            raise ParameterError("values must be numbers in [0, 1], and at least one")


@dataclass(frozen=True)
class Precision:
    """How precise one estimate will be, as a function of the number of reports.

    ``what`` is estimated, of ``data``. ``variance`` is n times the variance with n reports, values
    being in [0, 1], and ``scale`` the length of their range. ``ends`` are n times the variance of a
    share that is a sum over reports, at a true share of 0 and of 1, where there is a detection
    floor (``floors``).
    """

    what: str
    data: str
    variance: Callable[[int], float]
    scale: float = 1.0
    ends: tuple[float, float] | None = None
    floors: bool = False

    def standard_error(self, n: int) -> float:
        """Return the standard error with ``n`` reports, in the unit of the value."""
        check_at_least("n", n, 1)
        return self.scale * sqrt(self.variance(n) / n)

    def width(self, n: int, confidence: float = 0.95) -> float:
        """Return the width of the interval, which is normal from 200 reports on."""
        check_probability("confidence", confidence)
        return 2 * two_sided(confidence) * self.standard_error(n)

    def floor(self, n: int) -> float:
        """Return the smallest true share that is told from none, where it is a share."""
        if not self.floors:
            raise ParameterError(f"{self.what} has no detection floor: ask for width or error")
        if self.ends is None:
            return FLOOR_ERRORS * self.standard_error(n)
        check_at_least("n", n, 1)
        no, yes = self.ends
        return ShareNoise(n, n * no, ((n, yes - no),), 0.0).floor

    def measure(self, name: str, n: int, confidence: float = 0.95) -> float:
        """Return ``error``, ``width`` or ``floor`` with ``n`` reports."""
        if name not in MEASURES:
            raise ParameterError(f"a measure is one of {', '.join(MEASURES)}, not {name!r}")
        if name == "width":
            return self.width(n, confidence)
        return self.floor(n) if name == "floor" else self.standard_error(n)

    def reports(self, name: str, target: float, confidence: float = 0.95) -> int:
        """Return how many reports are enough for a measure's target, in the unit of the value.

        An error says what 10**15 reports would reach, if that is not enough.
        """
        if not (0 < target < inf):
            raise ParameterError(f"{MEASURES.get(name, name)} must be above 0, not {target}")
        reached = self.measure(name, MAX_REPORTS, confidence)
        if not reached <= target:
            raise ParameterError(
                f"{MEASURES[name]} {target:g} of {self.what} cannot be had: {MAX_REPORTS:g} "
                f"reports would reach {reached:.3g}"
            )
        return 1 + bisect_left(
            range(1, MAX_REPORTS), True, key=lambda n: self.measure(name, n, confidence) <= target
        )


def of_share(what: str, ends: tuple[float, float], assumed: Assumed) -> Precision:
    """Return the precision of a share with these variances at true shares of 0 and of 1."""
    share, which = assumed.share, "a true share of"
    if share is None:
        share, which = float(ends[1] > ends[0]), "the worst true share,"
    data = f"{which} {100 * share:g} %" + ", the others alike" * assumed.even
    unit = ends[0] + share * (ends[1] - ends[0])
    return Precision(what, data, lambda n: unit, ends=ends, floors=True)
