"""The report's charts: matplotlib draws them as SVG, the page's stylesheet colours them.

A dot and a line are an estimate and its 95 % interval, a short dark stroke is the truth of the
reports that were counted, an amber one that of all flights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.text import Text

from pipelines.web.charts import (
    BAD,
    CARD,
    ESTIMATE,
    EVERY,
    INK,
    PLAIN_DOT,
    SOFT,
    TRUTH,
    WASH,
    WIDE,
    chart,
    level_colours,
    mark,
    rows,
    scale,
    titled,
)

from ..findings import (
    Comparison,
    Coverage,
    Decoding,
    DelayCurve,
    Destination,
    Fate,
    LedgerPeriod,
    MetricErrors,
    Sharpening,
    WindowSeries,
)
from ..formats import date, form_of, plain, sentence

DAY = 86_400_000
LEVELS = level_colours(3)
#: What an axis of each unit counts; ``""`` is a share.
UNITS = {"": "share of reports", "min": "minutes", "mi": "miles"}
FATES = {Fate.FOUND: ESTIMATE, Fate.MISSED: BAD, Fate.UNDETECTABLE: PLAIN_DOT, Fate.FALSE: BAD}


def _compare(
    axes: Axes,
    at: float,
    seen: Comparison,
    title: str,
    *,
    colour: str = ESTIMATE,
    across: bool = False,
    every: bool = False,
) -> None:
    """Draw an estimate with its interval and truths, upright or ``across``."""

    def stroke(value: float, colour: str) -> None:
        style: Any = {
            "marker": "|" if across else "_",
            "linestyle": "",
            "markersize": 11,
            "markeredgewidth": 2.2,
            "color": colour,
            "gid": titled(title),
        }
        axes.plot(*([value], [at]) if across else ([at], [value]), **style)

    mark(axes, at, None, (seen.low, seen.high), title, colour=colour, across=across)
    if every:
        stroke(seen.every, EVERY)
    stroke(seen.kept, TRUTH)
    mark(axes, at, seen.value, None, title, colour=colour, across=across)


def _scale(axes: Axes, which: str, unit: str, label: str | None = None) -> None:
    """Write the numbers of one axis, and below or above it what they count."""
    scale(axes, which, form_of(unit), UNITS[unit] if label is None else label)


def _days(axes: Axes, starts: Sequence[int], ticks: int, label: str) -> None:
    shown = starts[:: max(1, len(starts) // ticks)]
    axes.set_xticks([start / DAY for start in shown], [date(start) for start in shown])
    axes.set_xlabel(label)


def sharpening(found: Sharpening) -> Markup:
    """One window's estimate as of each run, over the mix of levels it was made from."""

    def draw(above: Axes, below: Axes) -> None:
        above.axhline(found.kept, color=TRUTH, linewidth=1, linestyle=":")
        total = np.zeros(len(found.releases))
        days = [release.day for release in found.releases]
        for release in found.releases:
            _compare(above, release.day, release.seen, sentence(release.seen, found.unit))
        above.axvline(found.window_days, color=SOFT, linewidth=1, linestyle="--")
        above.annotate(
            "window ends", (found.window_days + 1, 0.95), xycoords=("data", "axes fraction")
        )
        _scale(above, "y", found.unit)
        for level, colour in enumerate(LEVELS):
            counts = np.array([release.by_level[level] for release in found.releases])
            bars = below.bar(days, counts, 1.2, total, color=colour)
            for bar, count in zip(bars, counts.tolist(), strict=True):
                bar.set_gid(titled(f"{count:,} reports at level {level + 1}"))
            total += counts
        _scale(below, "y", "min", "reports by level")
        below.set_xticks(range(0, int(max(days)) + 1, 7))
        below.set_xlabel("days since the window began")

    return chart(
        f"{found.label} of one window as of {len(found.releases)} moments: the interval narrows "
        "around the truth as stronger levels replace weaker ones",
        draw,
        height=370,
        parts=(5, 2),
    )


def shares(
    values: Sequence[Comparison],
    names: Sequence[str],
    label: str,
    description: str,
    colours: Sequence[str] | None = None,
    floor: float | None = None,
) -> Markup:
    """Shares, one line each, with their intervals and truths."""

    def draw(axes: Axes) -> None:
        if floor is not None:
            axes.axvline(floor, color=BAD, linewidth=1.4, linestyle="--")
        for line, seen in enumerate(values):
            colour = colours[line] if colours else ESTIMATE
            _compare(axes, line, seen, sentence(seen, ""), colour=colour, across=True, every=True)
        rows(axes, names)
        _scale(axes, "x", "", label)

    return chart(description, draw, WIDE, 19 * len(values) + 60)


def windows(series: WindowSeries) -> Markup:
    """One quantity over the year, window by window, with the truth of all flights as a line."""

    def draw(axes: Axes) -> None:
        days = [start / DAY for start in series.starts]
        axes.plot(days, [seen.every for seen in series.values], color=EVERY, linewidth=1.5)
        for day, start, seen in zip(days, series.starts, series.values, strict=True):
            title = f"28 days from {date(start)}: {sentence(seen, series.unit)}"
            _compare(axes, day, seen, title, colour=ESTIMATE if seen.covers else BAD)
        _days(axes, series.starts, 5, "28 days from")
        _scale(axes, "y", series.unit)

    return chart(f"{series.label} in {len(series.starts)} windows with intervals and truth", draw)


def delay_curve(curve: DelayCurve) -> Markup:
    """The distribution of delays: estimate with its band, and the truth."""

    def draw(axes: Axes) -> None:
        axes.fill_between(curve.grid, curve.low, curve.high, color=WASH, linewidth=0)
        axes.step(curve.minutes, curve.kept, where="post", color=TRUTH, linewidth=1.4)
        axes.plot(curve.grid, curve.value, color=ESTIMATE, linewidth=2)
        axes.set_xticks(range(-30, 181, 30))
        axes.set_ylim(0, 1)
        _scale(axes, "x", "min", "departure delay, minutes")
        _scale(axes, "y", "", "share of departures at or below")

    return chart("Estimated distribution of departure delays beside the true one", draw, height=300)


def destination_map(decoding: Decoding) -> Markup:
    """The lower 48 states drawn by their airports; destinations sized by what was flown."""

    def visible(longitude: float, latitude: float) -> bool:
        return -126 < longitude < -65 and 24 < latitude < 50

    def draw(axes: Axes) -> None:
        axes.set(xlim=(-126, -65), ylim=(23.5, 50))
        axes.set_axis_off()
        land = [(lon, lat) for lat, lon in decoding.airports if visible(lon, lat)]
        axes.plot(*zip(*land, strict=True), ".", color=PLAIN_DOT, markersize=2.4, alpha=0.5)
        ordered = sorted(decoding.destinations, key=lambda stop: -stop.share.kept)
        on_map = [stop for stop in ordered if visible(stop.longitude, stop.latitude)]
        for stop in on_map:
            _circle(axes, stop)
        _name(axes, [stop for stop in on_map if stop.fate is not Fate.UNDETECTABLE])
        away = ", ".join(
            f"{stop.code} ({stop.fate.value})" for stop in ordered if stop not in on_map
        )
        if away:
            axes.text(0.01, 0.02, f"Not on the map: {away}", transform=axes.transAxes)

    return chart("Map of destinations: found, missed and undetectable", draw, WIDE, 560)


def _circle(axes: Axes, stop: Destination) -> None:
    missed, found = stop.fate is Fate.MISSED, stop.fate is Fate.FOUND
    edge = EVERY if stop.fate is Fate.UNDETECTABLE else FATES[stop.fate]
    axes.plot(
        stop.longitude,
        stop.latitude,
        "o",
        gid=titled(f"{stop.code} {stop.name} ({stop.fate.value}). {sentence(stop.share, '')}"),
        markersize=5 + 110 * math.sqrt(max(stop.share.kept, 0.0)),
        markerfacecolor=WASH if found else BAD if stop.fate is Fate.FALSE else "none",
        markeredgecolor=edge,
        markeredgewidth=1.8 if missed else 1.2,
    )


def _name(axes: Axes, stops: Sequence[Destination]) -> None:
    """Write codes on their circles, or beside them where another one is."""
    taken: list[tuple[float, float]] = []
    for stop in stops:
        x, y, side = stop.longitude, stop.latitude, 1.2 + 3.2 * math.sqrt(stop.share.kept)
        places = [(x, y), (x - side, y), (x + side, y), (x, y + 0.7 * side), (x, y - 0.7 * side)]
        free = [
            p for p in places if all(abs(p[0] - a) > 2 or abs(p[1] - b) > 0.7 for a, b in taken)
        ]
        taken.append((free or places)[0])
        named: Text = axes.text(*taken[-1], stop.code, color=INK, ha="center", va="center")
        named.set(fontweight="bold", fontsize=9, clip_on=True)


def destination_ranks(decoding: Decoding, most: int = 32) -> Markup:
    """The largest destinations with intervals, truth and the detection floor."""
    listed = decoding.destinations
    top = sorted(listed, key=lambda stop: -max(stop.share.kept, stop.share.value))[:most]
    shown = top + [stop for stop in listed if stop.fate is Fate.FALSE and stop not in top]
    return shares(
        [stop.share for stop in shown],
        [f"{stop.name} {stop.code}" for stop in shown],
        "share of the year's weekly first flights",
        "Destinations by share, with intervals, truth and the detection floor",
        [FATES[stop.fate] for stop in shown],
        decoding.floor,
    )


def level_errors(errors: MetricErrors) -> Markup:
    """Error of one metric at each level: dots are observed, strokes predicted."""
    scale, unit = (100, "points") if errors.unit == "" else (1, errors.unit)

    def draw(axes: Axes) -> None:
        for at, (level, colour) in enumerate(zip(errors.levels, LEVELS, strict=True)):
            low, high, seen, due = (
                scale * each for each in (level.low, level.high, level.observed, level.predicted)
            )
            title = (
                f"ε {level.epsilon:g}: observed {plain(seen)} {unit}, predicted {plain(due)} {unit}"
            )
            axes.plot([at, at], [low, high], color=colour, linewidth=2.4, gid=titled(title))
            axes.plot(at, seen, "o", color=colour, markersize=8, gid=titled(title))
            axes.plot(at, due, "_", color=TRUTH, markersize=22, mew=2, gid=titled(title))
        axes.set_xticks(
            range(len(errors.levels)), [f"ε {level.epsilon:g}" for level in errors.levels]
        )
        axes.set(xlim=(-0.5, len(errors.levels) - 0.5), ylim=(0, None))
        _scale(axes, "y", "min", f"error, {unit}")

    return chart(
        f"Error of {errors.label} at each level beside the predicted error", draw, 320, 230
    )


def relaxed_over_fresh(errors: Sequence[MetricErrors]) -> Markup:
    """Squared error of the last level over that of fresh answers, one line a metric."""
    found = [(each.label, each.ratio, each.low, each.high) for each in errors]

    def draw(axes: Axes) -> None:
        axes.axvline(1, color=BAD, linewidth=1.4, linestyle="--")
        for line, (label, ratio, low, high) in enumerate(found):
            title = f"{label}: {ratio:.3f}; by chance {low:.3f} to {high:.3f}"
            _within(axes, line, ratio, low, high, title)
        rows(axes, [f"{label} {ratio:.2f}" for label, ratio, _, _ in found])
        axes.set_xlabel("squared error, relaxed / fresh")

    return chart("Squared error of the last level over that of fresh answers", draw, 320, 230)


def coverage(checks: Sequence[Coverage]) -> Markup:
    """Share of intervals that hold the truth, beside what chance allows."""

    def draw(axes: Axes) -> None:
        axes.axvline(0.95, color=BAD, linewidth=1.4, linestyle="--")
        for line, check in enumerate(checks):
            least, hits, most = (n / check.total for n in (check.least, check.hits, check.most))
            title = f"{check.label}: {check.hits:,} of {check.total:,}"
            title += f"; by chance {check.least:,} to {check.most:,}"
            _within(axes, line, hits, least, most, title)
        rows(axes, [f"{check.label} ({check.total:,})" for check in checks])
        _scale(axes, "x", "", "intervals that hold the truth")
        axes.locator_params("x", nbins=5)

    description = "Interval coverage of each kind of estimate beside 95 percent"
    return chart(description, draw, height=30 * len(checks) + 60)


def _within(axes: Axes, line: int, value: float, low: float, high: float, title: str) -> None:
    """Draw a value over the range that chance allows it."""
    axes.barh(line, high - low, 0.5, low, color=WASH)[0].set_gid(titled(title))
    colour = ESTIMATE if low <= value <= high else BAD
    axes.plot(value, line, "o", color=colour, markersize=8, gid=titled(title))


def scores(values: Sequence[float]) -> Markup:
    """Errors in units of their standard error, beside the normal curve."""

    def draw(axes: Axes) -> None:
        axes.hist(
            np.clip(values, -4, 3.999),
            np.arange(-4, 4.1, 0.25).tolist(),
            density=True,
            color=LEVELS[1],
        )
        z = np.linspace(-4, 4, 161)
        axes.plot(z, np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi), color=TRUTH, linewidth=1.6)
        axes.set_yticks([])
        _scale(axes, "x", "min", "error, in standard errors")

    description = "Histogram of standardized errors with the standard normal curve"
    return chart(description, draw)


def ledger(periods: Sequence[LedgerPeriod]) -> Markup:
    """What the aggregator counted each week, over what devices spent beyond that."""

    def draw(above: Axes, below: Axes) -> None:
        for period in periods:
            day, gap = period.start / DAY + 3.5, (period.spent - period.counted) / 1e6
            title = titled(
                f"week of {date(period.start)}: {period.pseudonyms:,} pseudonyms spent "
                f"{period.spent / 1e6:,.3f}, counted {period.counted / 1e6:,.3f}, withheld from "
                f"revoked ones {period.withheld / 1e6:,.3f}"
            )
            above.bar(day, period.counted / 1e6, 6.4, color=LEVELS[1])[0].set_gid(title)
            if gap:
                below.bar(day, gap, 6.4, color=BAD)[0].set_gid(title)
                below.annotate(plain(gap), (day, gap), ha="center", va="bottom")
            else:
                below.plot(day, 0, "o", color=ESTIMATE, markersize=5, gid=title)
        below.margins(y=0.25)
        _scale(above, "y", "min", "counted by the aggregator: ε a week, summed over the aircraft")
        _scale(below, "y", "min", "spent by aircraft, minus counted")
        _days(below, [period.start for period in periods], 10, "week from")

    description = "Budget counted by the aggregator, and what devices spent beyond it"
    return chart(description, draw, WIDE, 380, parts=(3, 1.4))


def lifetimes(values: Sequence[float], ceiling: float) -> Markup:
    """How much each aircraft spent in the year, beside the lifetime ceiling."""

    def draw(axes: Axes) -> None:
        axes.hist(values, np.arange(0, ceiling + 20, 20).tolist(), color=LEVELS[1], edgecolor=CARD)
        axes.axvline(ceiling, color=BAD, linewidth=1.4, linestyle="--")
        axes.annotate(
            "lifetime ceiling ", (ceiling, 0.95), xycoords=("data", "axes fraction"), ha="right"
        )
        _scale(axes, "x", "min", "ε spent in the year")
        _scale(axes, "y", "min", "aircraft")

    return chart("Histogram of the budget that each aircraft spent in the year", draw)
