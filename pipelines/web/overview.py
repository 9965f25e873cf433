"""The sections of the first page: what is collected, what it showed last, and how the data are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipelines.exporter.freshness import stale
from pipelines.results.records import EstimateRecord, Window
from pipelines.web import alerts, formats
from pipelines.web.snapshot import MetricKey
from pipelines.web.views import PageView, headlines, name_of, newest, title_of
from sotto.clocks import now_ms

#: Problems, and figures that moved, that are named at most.
_PROBLEMS, _NAMED = 20, 5


class Bar(NamedTuple):
    """Places of an estimate, its interval and zero on a line of 100."""

    value: float
    low: float
    high: float
    zero: float | None


class HeadlineFigure(NamedTuple):
    """A figure that stands for a metric."""

    name: str
    estimate: EstimateRecord
    bar: Bar | None


class Card(NamedTuple):
    """A metric and its newest figures."""

    title: str
    key: MetricKey
    window: Window
    link: str | None
    figures: list[HeadlineFigure]
    #: The newest complete window, if that is withheld and so another one is shown.
    withheld: Window | None
    #: The newest window, if that is still open and another one is shown, and its figures.
    open: Window | None
    so_far: list[HeadlineFigure]


def metrics(view: PageView) -> Mapping[str, object]:
    """Return every metric with the figures of its newest complete window, and those so far."""
    cards = []
    for key, windows in view.snapshot.newest.items():
        shown = newest(windows)
        later = windows[windows.index(shown) + 1 :]
        cards.append(
            Card(
                title_of(view.snapshot.metric_of(key), key),
                key,
                shown,
                view.links.metric(key),
                figures(headlines(view.snapshot.headlines.get(key, []))),
                next((each for each in later[::-1] if each.complete and each.withheld), None),
                next((each for each in later[::-1] if not each.complete), None),
                figures(headlines(view.snapshot.so_far.get(key, []))),
            )
        )
    return {"cards": cards}


def figures(rows: Sequence[EstimateRecord]) -> list[HeadlineFigure]:
    """Return figures with their bars, those of one unit on one scale."""
    scales: dict[str | None, tuple[float, float]] = {}
    for row in rows:
        if row.value is None or row.low is None or row.high is None:
            continue
        low, high = min(row.low, 0.0), max(row.high, 0.0)
        before = scales.get(row.unit, (low, high))
        scales[row.unit] = (min(before[0], low), max(before[1], high))
    return [HeadlineFigure(name_of(row), row, _bar(row, scales)) for row in rows]


def _bar(row: EstimateRecord, scales: Mapping[str | None, tuple[float, float]]) -> Bar | None:
    if row.value is None or row.low is None or row.high is None:
        return None
    low, high = scales[row.unit]
    length = (high - low) or 1.0
    if not math.isfinite(length):
        return None

    def place(value: float) -> float:
        return round(2 + 96 * min(max((value - low) / length, 0), 1), 2)

    return Bar(place(row.value), place(row.low), place(row.high), place(0.0))


class Tile(NamedTuple):
    """A number and what it counts; ``state`` is ``good``, ``note`` or empty."""

    number: str
    text: str
    state: str = ""


def glance(view: PageView) -> Mapping[str, object]:
    """Return in few numbers whether the data can be relied on."""
    snapshot = view.snapshot
    numbers = [each.numbers for each in snapshot.health]
    decoded = sum(each.get("reports") or 0 for each in numbers)
    rejected = sum(each.reports for each in snapshot.rejections)
    revoked = sum(each.over_budget + each.equivocation for each in snapshot.budgets)
    pseudonyms = sum(each.pseudonyms for each in snapshot.budgets)
    alarms = sum(map(len, snapshot.alarms.values()))
    clocks = [each.clock for each in snapshot.health if each.clock is not None]
    share = f", {formats.percent(rejected / (decoded + rejected))} of all" if decoded else ""
    tiles = [
        Tile(f"{snapshot.reports:,}", "answers count, each at its newest level"),
        Tile(f"{rejected:,}", f"reports rejected{share}", "note" if rejected else "good"),
        Tile(
            f"{revoked:,}",
            f"of {pseudonyms:,} pseudonyms revoked for misbehaving",
            "note" if revoked else "good",
        ),
        Tile(
            f"{alarms:,}",
            "alarms about reports that honest devices do not send",
            "note" if alarms else "good",
        ),
        Tile(
            formats.day(max(clocks)) if clocks else formats.NOTHING,
            "the log's clock: reports are read up to here",
        ),
    ]
    return {"tiles": tiles, "link": view.links.page("health"), "problems": problems(view)}


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
        text = (
            f"Reports of {key.metric} from {formats.day(start)} are not what honest devices send."
        )
        found.append((text, view.links.metric(key, window) or view.links.metric(key)))
    return found[:_PROBLEMS]
