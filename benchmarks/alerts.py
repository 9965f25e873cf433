"""False alarms of alerts, and the shifts that they find, by simulation.

Figures have weekly windows with a standard error of one: a year of history, then a year that is
watched. Thirty figures together are to have one false alarm a year.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mechanisms.arrays import Floats, Ints
from mechanisms.estimators import shifts
from mechanisms.estimators.seasons import without_season
from mechanisms.estimators.shifts import threshold_of, watch

SEED, SERIES, SEASONAL, FIGURES = 26, 1000, 200, 30
YEAR, WINDOWS = 52, 104
#: Patterns that come again: their length in windows, and how high they are at each.
_SEASONS: tuple[tuple[str, int, Callable[[Ints], Floats]], ...] = (
    ("weekdays, windows of days", 7, lambda at: np.where(at < 5, 0.4, -1.0)),
    ("a dip of two weeks a year", YEAR, lambda at: np.where((at == 26) | (at == 27), -1.0, 0.0)),
)
_RUN = FIGURES * 365.25 / 7


def main() -> None:
    """Print both tables."""
    # The sizes of shifts are not asked for here, and take the longest.
    shifts.windows_to_find = lambda *_: None
    threshold = threshold_of(_RUN, learned=True)
    print(f"threshold {threshold:.3f}, scores clipped at {1 + shifts.CLIPPED * threshold:.2f}")
    print("false alarms a year of 30 figures, 1 stated")
    for name, disturbed in _QUIET.items():
        alarms = sum(
            sum(shift.window >= YEAR for shift in watch(*each, threshold).shifts)
            for each in _series(disturbed)
        )
        print(f"  {name:32}{alarms * FIGURES / SERIES:6.2f}", flush=True)
    print("shifts found within so many windows")
    for size, within in ((5, (1, 2, 4)), (3, (1, 2, 4, 8)), (2, (4, 8, 13, 26))):
        for drift in (0.0, 0.1):
            delays = [_delay(each, size, drift, threshold) for each in _series(_as_they_are)]
            shares = (f"{n}: {np.mean([delay <= n for delay in delays]):.2f}" for n in within)
            print(f"  {size} errors, drift {drift}   {'  '.join(shares)}", flush=True)
    print("a season of 3 errors, in the third year: false alarms a year, shifts of 5 found within")
    for name, length, pattern in _SEASONS:
        for named in (True, False):
            alarms = sum(map(len, _seasonal(length, pattern, 0, threshold, named=named)))
            found = _seasonal(length, pattern, 5, threshold, named=named)
            delays = [min((at - 2 * YEAR + 1 for at in each), default=np.inf) for each in found]
            shares = (f"{n}: {np.mean([delay <= n for delay in delays]):.2f}" for n in (1, 2, 4))
            rate = f"{alarms * FIGURES / SEASONAL:6.2f}"
            print(f"  {name}, named: {named!s:6}{rate}   {'  '.join(shares)}", flush=True)


def _seasonal(
    length: int, pattern: Callable[[Ints], Floats], size: float, threshold: float, *, named: bool
) -> list[list[int]]:
    """Return the windows of the third year in which figures with a season raise alarms.

    After the second year they are higher by ``size``.
    """
    draw, windows = np.random.default_rng(SEED), np.arange(3 * YEAR)
    found = []
    for _ in range(SEASONAL):
        values = draw.normal(size=len(windows)) + 3 * pattern(windows % length)
        values[2 * YEAR :] += size
        errors = np.ones(len(windows))
        series = without_season(values, errors, length) if named else (values, errors)
        shifts = watch(*series, threshold).shifts
        found.append([each.window for each in shifts if each.window >= 2 * YEAR])
    return found


def _delay(series: tuple[Floats, Floats], size: float, drift: float, threshold: float) -> float:
    """Return within how many windows a shift after the first year is found; infinite for never."""
    values, errors = series
    draw = np.random.default_rng(int(1e6 * abs(values[0])))
    moved = values + np.cumsum(draw.normal(0, drift, len(values))) if drift else values.copy()
    moved[YEAR:] += size
    found = [each.window for each in watch(moved, errors, threshold).shifts if each.change > 0]
    return min((at - YEAR + 1 for at in found if at >= YEAR), default=np.inf)


def _series(
    disturbed: Callable[[Floats, np.random.Generator], Floats],
) -> list[tuple[Floats, Floats]]:
    draw = np.random.default_rng(SEED)
    return [(disturbed(draw.normal(size=WINDOWS), draw), np.ones(WINDOWS)) for _ in range(SERIES)]


def _as_they_are(values: Floats, draw: np.random.Generator) -> Floats:
    return values


def _heavy(values: Floats, draw: np.random.Generator) -> Floats:
    """Return errors of Student's law with 3 degrees of freedom, with a variance of one."""
    found: Floats = draw.standard_t(3, len(values)) / np.sqrt(3)
    return found


def _drifting(drift: float) -> Callable[[Floats, np.random.Generator], Floats]:
    return lambda values, draw: values + np.cumsum(draw.normal(0, drift, len(values)))


def _dip(values: Floats, draw: np.random.Generator) -> Floats:
    """Return figures that are three errors lower in two weeks of each year."""
    for year in (0, YEAR):
        values[year + 26 : year + 28] -= 3
    return values


def _named(values: Floats, draw: np.random.Generator) -> Floats:
    """Return the same, with these weeks named in the calendar."""
    values = _dip(values, draw)
    for year in (0, YEAR):
        values[year + 26 : year + 28] = np.nan
    return values


_QUIET: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "normal errors": _as_they_are,
    "heavy tails (t, 3)": _heavy,
    **{f"drift of {drift} errors a window": _drifting(drift) for drift in (0.1, 0.5, 1.0)},
    "a dip of two weeks a year": _dip,
    "the same, named": _named,
}


if __name__ == "__main__":
    main()
