"""The report's figures of estimates: a dot and a line are an estimate and its 95 % interval, a
short dark stroke is the truth of the reports that were counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from ..findings import Comparison, Decoding, DelayCurve, Destination, Fate, Sharpening, WindowSeries
from .svg import Chart, Format, Scale, percent, plain

DAY = 86_400_000
#: What an axis of each unit counts; ``""`` is a share.
UNITS = {"": "share of reports", "min": "minutes", "mi": "miles"}


def date(milliseconds: int, form: str = "%-d %b") -> str:
    """Return a day in UTC as people write it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(form)


def form_of(unit: str) -> Format:
    """Return how numbers of ``unit`` are written: ``""`` is a share."""
    return percent if unit == "" else plain


def told(seen: Comparison, unit: str) -> str:
    """Return a comparison as a sentence, for the pointer that rests on a mark."""
    write = form_of(unit)
    mark = f" {unit}" if unit else ""
    return (
        f"{seen.label}: {write(seen.value)}{mark}, 95 % interval {write(seen.low)} to "
        f"{write(seen.high)}; truth of the counted reports {write(seen.kept)}{mark}, "
        f"of all flights {write(seen.every)}{mark}"
    )


def padded(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """Return a range a little wider than that of ``values``."""
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * share
    return low - room, high + room


def sharpening(found: Sharpening, width: float = 520) -> str:
    """One window's estimate as of each run, over the mix of rungs it was made from."""
    days = [release.day for release in found.releases]
    reach = (0.0, max(days) + 3)
    ends = [end for r in found.releases for end in (r.seen.low, r.seen.high)]
    chart = Chart(reach, padded([*ends, found.kept]), width=width, height=400, bottom=164, left=52)
    chart.axis_y(form_of(found.unit), UNITS[found.unit])
    chart.rule_y(found.kept, "truth-line")
    for release in found.releases:
        title = told(release.seen, found.unit)
        chart.interval(release.day, release.seen.low, release.seen.high, "interval", title)
        chart.dash_mark(release.day, release.seen.kept, "truth", 6, title)
        chart.dot(release.day, release.seen.value, "estimate", 4, title)
    chart.rule_x(found.window_days, "edge")
    chart.label(chart.x(found.window_days) + 5, chart.top + 8, "window ends", "note")
    chart.axis_x(ticks=list(range(0, int(reach[1]) + 1, 7)))
    _mix(chart, found, width)
    return chart.svg(
        f"{found.label} of one window as of {len(days)} moments: the interval narrows around "
        "the truth as stronger rungs replace weaker ones"
    )


def _mix(chart: Chart, found: Sharpening, width: float) -> None:
    """Below a sharpening: how many reports at which rung."""
    most = max(sum(release.by_level) for release in found.releases)
    base, roof = 362.0, 290.0
    rise = Scale(0, most, base, roof)
    for release in found.releases:
        total = 0
        for level, count in enumerate(release.by_level):
            low, high = rise(total), rise(total + count)
            total += count
            if count:
                chart.add(
                    f'<rect x="{chart.x(release.day) - 4:.1f}" y="{high:.1f}" width="8" '
                    f'height="{low - high:.1f}" class="rung{level}">'
                    f"<title>{count:,} reports at rung {level + 1}</title></rect>"
                )
    chart.add(
        f'<line x1="{chart.left}" y1="{base}" x2="{width - chart.right}" y2="{base}" class="axis"/>'
    )
    chart.label(chart.left - 6, roof + 5, plain(most), "tick", "end")
    chart.label(chart.left - 6, base + 4, "0", "tick", "end")
    chart.label(4, roof - 14, "reports by rung", "axis-label")
    middle = (chart.left + width - chart.right) / 2
    chart.label(middle, 390, "days since the window began", "axis-label", "middle")


def rows(
    values: Sequence[Comparison],
    names: Sequence[str],
    unit: str,
    label: str,
    description: str,
    left: float = 150,
    width: float = 520,
    pitch: float = 22,
    styles: Sequence[str] | None = None,
    floor: float | None = None,
) -> str:
    """A dot plot: one line a comparison, its name on the left."""
    ends = [end for v in values for end in (v.low, v.high, v.kept, v.every)]
    reach = padded(ends, 0.03)
    if unit == "" and reach[0] > -0.02:
        reach = (min(0.0, *ends), reach[1])
    height = pitch * len(values) + 58
    chart = Chart(
        reach, (len(values) - 0.5, -0.5), width=width, height=height, left=left, bottom=42, top=10
    )
    chart.axis_x(form_of(unit), label, grid=True)
    if floor is not None:
        chart.rule_x(floor, "floor")
    for line, (seen, name) in enumerate(zip(values, names, strict=True)):
        style = styles[line] if styles else ""
        title = told(seen, unit)
        chart.label(left - 8, chart.y(line) + 4, name, "name", "end")
        chart.span(line, seen.low, seen.high, f"interval {style}", title)
        chart.tick_mark(seen.every, line, "every", 6, title)
        chart.tick_mark(seen.kept, line, "truth", 7, title)
        chart.dot(seen.value, line, f"estimate {style}", 3.6, title)
    return chart.svg(description)


def windows(series: WindowSeries, width: float = 520) -> str:
    """One quantity over the year, window by window, with the truth of all flights as a line."""
    days = [start / DAY for start in series.starts]
    ends = [end for v in series.values for end in (v.low, v.high, v.kept, v.every)]
    chart = Chart((days[0] - 12, days[-1] + 16), padded(ends), width=width, height=260, left=52)
    chart.axis_y(form_of(series.unit), UNITS[series.unit])
    chart.line([(d, v.every) for d, v in zip(days, series.values, strict=True)], "every-line")
    for day, start, seen in zip(days, series.starts, series.values, strict=True):
        title = f"28 days from {date(start)}: {told(seen, series.unit)}"
        chart.interval(day, seen.low, seen.high, "interval", title)
        chart.dash_mark(day, seen.kept, "truth", 6, title)
        chart.dot(day, seen.value, "estimate" if seen.covers else "estimate out", 3.6, title)
    chart.axis_x(
        lambda day: date(int(day) * DAY), "28 days from", ticks=days[:: max(1, len(days) // 5)]
    )
    return chart.svg(f"{series.label} in {len(days)} windows with intervals and truth")


def delay_curve(curve: DelayCurve, width: float = 520) -> str:
    """The distribution of delays: estimate with its band, and the truth."""
    reach = (min(curve.minutes), max(curve.minutes))
    chart = Chart(reach, (0, 1), width=width, height=320, left=52)
    chart.axis_y(percent, "share of departures at or below")
    chart.band(curve.grid, curve.low, curve.high, "band")
    chart.steps(list(zip(curve.minutes, curve.kept, strict=True)), "truth-curve")
    chart.line(zip(curve.grid, curve.value, strict=True), "estimate-line")
    chart.axis_x(plain, "departure delay, minutes", ticks=range(-30, 181, 30))
    return chart.svg("Estimated distribution of departure delays beside the true one")


def destination_map(decoding: Decoding, width: float = 1080) -> str:
    """The lower 48 states drawn by their airports; destinations sized by what was flown."""
    chart = Chart(
        (-126.0, -65.0), (23.5, 50.0), width=width, height=600, left=8, right=8, top=8, bottom=8
    )

    def visible(longitude: float, latitude: float) -> bool:
        return -126 < longitude < -65 and 24 < latitude < 50

    dots = "".join(
        f"M{chart.x(lon):.0f} {chart.y(lat):.0f}h0"
        for lat, lon in decoding.airports
        if visible(lon, lat)
    )
    chart.add(f'<path d="{dots}" class="airport"/>')
    ordered = sorted(decoding.destinations, key=lambda d: -d.share.kept)
    on_map = [d for d in ordered if visible(d.longitude, d.latitude)]
    for stop in on_map:
        title = f"{stop.code} {stop.name} ({stop.fate.value}). {told(stop.share, '')}"
        chart.dot(stop.longitude, stop.latitude, f"stop {_style(stop)}", _radius(stop), title)
    taken: list[tuple[float, float]] = []
    for stop in on_map:
        if stop.fate is not Fate.UNDETECTABLE:
            _name(chart, stop, taken)
    away = [f"{d.code} ({d.fate.value})" for d in ordered if d not in on_map]
    if away:
        chart.label(12, chart.height - 12, f"Not on the map: {', '.join(away)}", "note")
    return chart.svg("Map of destinations: found, missed and undetectable")


def _radius(stop: Destination) -> float:
    return 2.5 + 60 * math.sqrt(max(stop.share.kept, 0.0))


def _name(chart: Chart, stop: Destination, taken: list[tuple[float, float]]) -> None:
    """Write a destination's code on its circle, or beside it where another name is."""
    x, y = chart.x(stop.longitude), chart.y(stop.latitude) + 4
    aside = _radius(stop) + 17
    places = [(x, y), (x - aside, y), (x + aside, y), (x, y - aside + 4), (x, y + aside - 4)]
    free = [
        place
        for place in places
        if all(abs(place[0] - a) > 30 or abs(place[1] - b) > 13 for a, b in taken)
    ]
    chosen = free[0] if free else places[0]
    taken.append(chosen)
    chart.label(*chosen, stop.code, "stop-name", "middle")


def destination_ranks(decoding: Decoding, most: int = 32) -> str:
    """The largest destinations with intervals, truth and the detection floor."""
    listed = decoding.destinations
    top = sorted(listed, key=lambda d: -max(d.share.kept, d.share.value))[:most]
    false = [d for d in listed if d.fate is Fate.FALSE and d not in top]
    shown = top + false
    return rows(
        [d.share for d in shown],
        [f"{d.name} {d.code}" for d in shown],
        "",
        "share of the year's weekly first flights",
        "Destinations by share, with intervals, truth and the detection floor",
        left=270,
        width=1080,
        pitch=19,
        styles=[_style(d) for d in shown],
        floor=decoding.floor,
    )


def _style(stop: Destination) -> str:
    return stop.fate.name.lower()
