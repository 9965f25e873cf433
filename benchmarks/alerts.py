"""Alerts on estimates: false alarms and delays, simulated beside what is stated.

Figures of weekly windows with a standard error of one; levels drift, and some reports differ from
window to window (spread). After a year of history a year is watched, in which nothing moves; or a
shift is planted, and it is counted how often it is found within some windows. Four detectors have
the same stated rate of false alarms:

- known: the one that ships, with the true drift and spread given; its rate is exact
- learned: the one that ships; drift and spread are learned from the figure itself
- likely: the same CUSUM, with the most likely drift put in as if it were known
- plain: a CUSUM of the deviation from the first year's mean, as if nothing ever drifted

Then eight years of windows are watched, quiet ones and ones with two real shifts and a spike in the
first year, with windows that are missing and errors that differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.harness import Table
from mechanisms.arrays import Floats
from mechanisms.estimators.local_level import likely_drift
from mechanisms.estimators.shifts import ALLOWANCE, LEARNED, Shift, threshold_of, watch

YEAR = 52
SERIES = 1000
SEED = 20_261_122
#: Windows between two false alarms: of one figure one in ten years, or in a hundred.
STATED = (10 * YEAR, 100 * YEAR)
#: Drift and spread, in standard errors of a window.
TRUTHS = ((0.0, 0.0), (0.1, 0.0), (0.2, 0.0), (0.5, 0.0), (0.0, 1.0), (0.1, 0.5))
#: Of the long run: drifts, windows, figures, and how many windows are between two false alarms.
DRIFTS, LONG, FIGURES, OFTEN = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0), 400, 100, 520
SHIFTS = (2.0, 3.0, 5.0)
WITHIN = (1, 2, 4, 8)

#: Returns in which windows of the second year a figure raises alarms.
Detector = Callable[[Floats, float, float, float], list[int]]


def figures(drift: float, spread: float) -> Iterator[Floats]:
    """Yield figures of two years."""
    draw = np.random.default_rng((SEED, round(10 * drift), round(10 * spread)))
    for _ in range(SERIES):
        levels = np.cumsum(draw.normal(0, drift, 2 * YEAR))
        yield levels + draw.normal(0, math.hypot(1, spread), 2 * YEAR)


def known(values: Floats, stated: float, drift: float, spread: float) -> list[int]:
    """Return the alarms of the detector that ships, where drift and spread are given."""
    threshold = threshold_of(stated)
    return _alarms(watch(values, np.ones(len(values)), threshold, drift, spread).shifts)


def learned(values: Floats, stated: float, drift: float, spread: float) -> list[int]:
    """Return the alarms of the detector that ships."""
    threshold = threshold_of(stated, learned=True)
    return _alarms(watch(values, np.ones(len(values)), threshold).shifts)


def _alarms(found: Sequence[Shift]) -> list[int]:
    return [shift.window - YEAR for shift in found if shift.window >= YEAR]


def likely(values: Floats, stated: float, drift: float, spread: float) -> list[int]:
    """Return the alarms of one that takes the first year's most likely drift for the true one."""
    used = likely_drift(values[:YEAR], np.ones(YEAR))
    return known(values, stated, used, 0.0)


def plain(values: Floats, stated: float, drift: float, spread: float) -> list[int]:
    """Return the first alarm of a CUSUM that compares with the first year's mean."""
    threshold = threshold_of(stated)
    error = math.sqrt(1 + 1 / YEAR)
    sums = np.zeros(2)
    for window, score in enumerate((values[YEAR:] - values[:YEAR].mean()) / error):
        sums = np.maximum(0, sums + np.array([score, -score]) - ALLOWANCE)
        if sums.max() > threshold:
            return [window]
    return []


DETECTORS: dict[str, Detector] = {
    "known": known,
    "learned": learned,
    "likely": likely,
    "plain": plain,
}


def false_alarms() -> None:
    """Print how many false alarms a year there are."""
    print(f"false alarms of {SERIES:,} quiet figures in a year")
    table = Table("drift", "spread", "stated", *DETECTORS)
    for drift, spread in TRUTHS:
        for stated in STATED:
            counts = dict.fromkeys(DETECTORS, 0)
            for values in figures(drift, spread):
                for name, detector in DETECTORS.items():
                    counts[name] += len(detector(values, stated, drift, spread))
            table.row(f"{drift:g}", f"{spread:g}", SERIES * YEAR // stated, *counts.values())


def long_run() -> None:
    """Print how many false alarms there are in eight years, beside those that are stated."""
    print(f"\nfalse alarms in {LONG} windows over stated ones, {FIGURES} figures")
    table = Table("drift", "spread", "quiet", "error", "after shifts", "error")
    threshold = threshold_of(OFTEN, learned=True)
    for drift in DRIFTS:
        for spread in (0.0, 1.0):
            shown = []
            for shifted in (False, True):
                draw = np.random.default_rng((SEED, round(100 * drift), round(spread), shifted))
                first = YEAR if shifted else LEARNED
                alarms = judged = 0
                for _ in range(FIGURES):
                    values, errors = _long(draw, drift, spread, shifted=shifted)
                    found = watch(values, errors, threshold).shifts
                    alarms += sum(shift.window >= first for shift in found)
                    judged += int(np.isfinite(values[first:]).sum())
                expected = judged / OFTEN
                shown += [f"{alarms / expected:.2f}", f"{1 / math.sqrt(expected):.2f}"]
            table.row(f"{drift:g}", f"{spread:g}", *shown)


def _long(
    draw: np.random.Generator, drift: float, spread: float, *, shifted: bool
) -> tuple[Floats, Floats]:
    """Return a figure of eight years and its errors."""
    errors = np.exp(draw.normal(0, 0.4, LONG)) if shifted else np.ones(LONG)
    values = np.cumsum(draw.normal(0, drift, LONG))
    values += draw.normal(size=LONG) * np.hypot(errors, spread)
    if shifted:
        for window in (25, 40):
            values[window:] += draw.choice([-16, -8, -4, 4, 8, 16])
        values[33] += draw.choice([-20, -5, 5, 20])
        gone = 1 + np.flatnonzero(draw.random(LONG - 1) < 0.1)
        values[gone] = errors[gone] = np.nan
    return values, errors


def delays() -> None:
    """Print how often shifts are found within some windows, and what was predicted."""
    stated = STATED[1]
    print(f"\nshifts found, of {SERIES:,}; one false alarm of a figure in {stated // YEAR} years")
    heads = [f"within {windows}" for windows in WITHIN]
    table = Table("detector<", "drift", "spread", "shift", *heads, "predicted: 90 % within")
    for drift, spread in ((0.0, 0.0), (0.1, 0.0), (0.2, 0.0), (0.1, 0.5)):
        for shift in SHIFTS:
            for name in ("known", "learned"):
                if name == "learned" or not spread:
                    _delay(table, name, drift, spread, shift, stated)


def _delay(
    table: Table, name: str, drift: float, spread: float, shift: float, stated: float
) -> None:
    found: list[float] = []
    predicted: list[float] = []
    for at, values in enumerate(figures(drift, spread)):
        values[YEAR:] += shift
        # What the detector says of a shift of this size before it happens; of some figures.
        if at % 20 == 0:
            given = (drift, spread) if name == "known" else (None, None)
            threshold = threshold_of(stated, learned=name == "learned")
            watched = watch(values[:YEAR], np.ones(YEAR), threshold, *given)
            within = watched.windows_to_find(shift)
            predicted.append(math.inf if within is None else within)
        alarms = DETECTORS[name](values, stated, drift, spread)
        found.append(alarms[0] + 1 if alarms else math.inf)
    shares = [f"{100 * np.mean(np.array(found) <= windows):.0f} %" for windows in WITHIN]
    middle = sorted(predicted)[len(predicted) // 2]
    said = f"{middle:g}" if math.isfinite(middle) else "more than 26"
    table.row(name, f"{drift:g}", f"{spread:g}", f"{shift:g}", *shares, said)


def main() -> None:
    """Print all of them."""
    print(f"seed {SEED}")
    false_alarms()
    long_run()
    delays()
