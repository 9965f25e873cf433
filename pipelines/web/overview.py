"""The sections of the first page: what is collected, what it showed last, and how the data are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipelines.results.fields import grouped
from pipelines.results.records import EstimateRecord, MetricKey, Window
from pipelines.web import alerts, charts, formats
from pipelines.web.views import OverviewView, PageView, headlines, name_of, newest, title_of
from pipelines.web.watching import stale
from sotto.clocks import now_ms

#: The most problems, and figures that moved, that are named.
_PROBLEMS, _NAMED = 20, 5
#: The most cards of a page, metrics without a search field, and windows of a card's line.
_CARDS, _SEARCHED, _SPARK = 48, 8, 60
#: The largest number that is drawn.
_LARGEST = 1e120


class Spark(NamedTuple):
    """The course of a figure: paths of its line and its band, in a box of 100 by 24."""

    name: str
    line: str
    band: str


class Card(NamedTuple):
    """A metric and its newest figures."""

    title: str
    key: MetricKey
    window: Window
    link: str | None
    figures: list[EstimateRecord]
    #: The newest complete window, if that is withheld and so another one is shown.
    withheld: Window | None
    #: The newest window, if that is still open and another one is shown, and its figures.
    open: Window | None
    so_far: list[EstimateRecord]
    spark: Spark | None


def metrics(view: OverviewView | PageView) -> Mapping[str, object]:
    """Return metrics with the figures of their newest complete window, and those so far.

    A server's page shows one part of the metrics that match the search; a static file shows all.
    """
    find, part = (view.find, view.part) if isinstance(view, OverviewView) else ("", 0)
    known = {key: view.snapshot.metric_of(key) for key in view.snapshot.newest}
    named = {key: title_of(metric, key) for key, metric in known.items()}
    groups = {key: metric.group for key, metric in known.items() if metric and metric.group}
    words = find.casefold().split()
    about = {key: f"{title} {' '.join(map(str, key))}" for key, title in named.items()}
    about |= {key: f"{about[key]} group:{group}" for key, group in groups.items()}
    wanted = [key for key in named if all(word in about[key].casefold() for word in words)]
    first = (part - 1) * _CARDS if part else 0
    shown = wanted[first : first + _CARDS] if part else wanted
    heads = {key: headlines(view.snapshot.headlines.get(key, [])) for key in shown}
    firsts = [rows[0] for rows in heads.values() if rows]
    courses = grouped(view.snapshot.courses(firsts, _SPARK), lambda row: row.key)
    return {
        "cards": [_card(view, key, named[key], heads[key], courses.get(key, [])) for key in shown],
        "find": find,
        "groups": sorted({*groups.values()}),
        "searches": part > 0 and len(named) > _SEARCHED,
        "total": len(wanted),
        "parts": range(1, -(-len(wanted) // _CARDS) + 1) if part else range(0),
        "part": part,
    }


def _card(
    view: PageView,
    key: MetricKey,
    title: str,
    rows: list[EstimateRecord],
    course: Sequence[EstimateRecord],
) -> Card:
    windows = view.snapshot.newest[key]
    shown = newest(windows)
    later = windows[windows.index(shown) + 1 :]
    return Card(
        title,
        key,
        shown,
        view.links.metric(key),
        rows,
        next((each for each in later[::-1] if each.complete and each.withheld), None),
        next((each for each in later[::-1] if not each.complete), None),
        headlines(view.snapshot.so_far.get(key, [])),
        _spark(course),
    )


def _spark(course: Sequence[EstimateRecord]) -> Spark | None:
    """Return the course of a figure, oldest first; None without two windows that have it."""
    known = [each for each in course if each.value is not None and abs(each.value) < _LARGEST]
    if len(known) < 2:
        return None
    figures = np.array([(each.value, each.low, each.high) for each in known], dtype=float)
    figures = np.where(np.isnan(figures), figures[:, :1], figures)
    heights = 23 - 22 * (figures - figures.min()) / (np.ptp(figures) or 1)
    starts, ends = zip(*((each.window_start, each.window_end) for each in known), strict=True)
    days = np.array(charts.places(starts))
    across = 100 * (days - days[0]) / (days[-1] - days[0])
    pairs = zip(across, heights, strict=True)
    places = [[f"{x:.1f},{y:.1f}" for y in of_window] for x, of_window in pairs]
    line, band = "", ""
    for first, last in pairwise([0, *charts.gaps(starts, ends), len(known)]):
        values, lows, highs = zip(*places[first:last], strict=True)
        # ``h0`` makes a dot of a window without neighbours: a path that goes nowhere.
        line += f"M{' '.join(values)}h0"
        band += f"M{' '.join(highs + lows[::-1])}z"
    return Spark(name_of(course[0]), line, band)


def glance(view: PageView) -> Mapping[str, object]:
    """Return the few numbers that show whether the data can be relied on."""
    snapshot = view.snapshot
    return {
        "decoded": sum(each.numbers.get("reports") or 0 for each in snapshot.health),
        "rejected": sum(each.reports for each in snapshot.rejections),
        "revoked": sum(each.over_budget + each.equivocation for each in snapshot.budgets),
        "pseudonyms": sum(each.pseudonyms for each in snapshot.budgets),
        "alarms": sum(map(len, snapshot.alarms.values())),
        "clocks": [each.clock for each in snapshot.health if each.clock is not None],
        "problems": problems(view),
    }


def problems(view: PageView) -> list[tuple[str, str | None]]:
    """Return what an operator has to look at, each with the address of more about it."""
    snapshot = view.snapshot
    job = snapshot.job
    seen = stale(snapshot.health, snapshot.last_run, now_ms()) if job is None else job.problems
    found = [(text, view.links.page("health")) for text in seen]
    moved = alerts.standing(snapshot.watch)
    if moved:
        names = list(dict.fromkeys(each.figure.name for each in moved))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        text = f"Moved: {', '.join(names[:_NAMED])}{more}."
        found.append((text, view.links.page("alerts")))
    for key, start in sorted(snapshot.alarms)[: _PROBLEMS - len(found)]:
        window = next((w for w in snapshot.windows(key) if w.window_start == start), None)
        day = formats.day(start)
        text = f"Reports of {key.metric} from {day} are not what honest devices send."
        found.append((text, view.links.metric(key, window) or view.links.metric(key)))
    return found[:_PROBLEMS]
