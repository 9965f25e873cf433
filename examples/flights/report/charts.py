"""The report's charts: matplotlib draws them as SVG, the page's stylesheet colours them.

A dot and a line are an estimate and its 95 % interval, a short dark stroke is the truth of the
reports that were counted, an amber one that of all flights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pipelines.web.charts import (
    BAD,
    CARD,
    ESTIMATE,
    EVERY,
    NARROW,
    SOFT,
    TRUTH,
    WIDE,
    Chart,
    level_colours,
    rows,
    scale,
    titled,
)
from pipelines.web.formats import number, writer_of

from ..findings import Comparison, Release, WindowSeries, date

DAY = 86_400_000
WINDOW_DAYS = 28
#: Labels of axes, which say what an axis of each unit counts.
UNITS = {"share": "share of reports", "min": "minutes", "mi": "miles"}


def _compare(axes: Axes, at: float, seen: Comparison, title: str, *, across: bool = False) -> None:
    """Draw an estimate with its interval and truth, upright or ``across`` with all flights' too."""
    colour = ESTIMATE if seen.covers else BAD

    def draw(values: Sequence[float], **style: Any) -> None:
        places = [at] * len(values)
        x, y = (values, places) if across else (places, values)
        axes.plot(x, y, gid=titled(title), color=colour, **style)

    draw((seen.low, seen.high), linewidth=2.4)
    style: Any = {"linestyle": "", "markersize": 11, "markeredgewidth": 2.2, "gid": titled(title)}
    if across:
        axes.plot(seen.every, at, "|", color=EVERY, **style)
    axes.plot(*((seen.kept, at, "|") if across else (at, seen.kept, "_")), color=TRUTH, **style)
    draw((seen.value,), marker="o", markersize=6.5, markeredgecolor=CARD, markeredgewidth=0.8)


def sharpening(releases: Sequence[Release]) -> Chart:
    """One window's estimate as it was published, over the mix of levels it was made from."""
    label, unit = releases[-1].seen.label, releases[-1].seen.unit

    def draw(above: Axes, below: Axes) -> None:
        above.axhline(releases[-1].seen.kept, color=TRUTH, linewidth=1, linestyle=":")
        for release in releases:
            _compare(above, release.day, release.seen, str(release.seen))
        above.axvline(WINDOW_DAYS, color=SOFT, linewidth=1, linestyle="--")
        above.annotate("window ends", (WINDOW_DAYS + 1, 0.95), xycoords=("data", "axes fraction"))
        scale(above, "y", writer_of(unit), UNITS[unit])
        days = [release.day for release in releases]
        total = np.zeros(len(releases))
        for level, colour in enumerate(level_colours(3)):
            counts = np.array([release.by_level[level] for release in releases])
            bars = below.bar(days, counts, 1.2, total, color=colour)
            for bar, count in zip(bars, counts.tolist(), strict=True):
                bar.set_gid(titled(f"{count:,} reports at level {level + 1}"))
            total += counts
        scale(below, "y", number, "reports by level")
        below.set_xticks(range(0, max(days) + 1, 7))
        below.set_xlabel("days since the window began")

    return Chart(
        title=f"{label} of one window as of {len(releases)} days",
        draw=draw,
        height=370,
        parts=(5, 2),
    )


def shares(values: Sequence[Comparison], what: str, width: float = NARROW) -> Chart:
    """Shares of ``what``, one line each, with their intervals and truths."""

    def draw(axes: Axes) -> None:
        for line, seen in enumerate(values):
            _compare(axes, line, seen, str(seen), across=True)
        rows(axes, [seen.label for seen in values])
        scale(axes, "x", writer_of("share"), UNITS["share"])

    title = f"{what} by share with intervals and truth"
    return Chart(title=title, draw=draw, width=width, height=19 * len(values) + 60)


def windows(series: WindowSeries) -> Chart:
    """One quantity over the year, window by window, with the truth of all flights as a line."""

    def draw(axes: Axes) -> None:
        days = [start / DAY for start in series.starts]
        axes.plot(days, [seen.every for seen in series.values], color=EVERY, linewidth=1.5)
        for day, start, seen in zip(days, series.starts, series.values, strict=True):
            _compare(axes, day, seen, f"28 days from {date(start)}: {seen}")
        axes.set_xticks(days[::2], [date(start) for start in series.starts[::2]])
        axes.set_xlabel("28 days from")
        scale(axes, "y", writer_of(series.unit), UNITS[series.unit])

    title = f"{series.label} in windows with intervals and truth"
    return Chart(title=title, draw=draw, width=WIDE, height=300)
