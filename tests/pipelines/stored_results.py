"""A small database of results: two windows of a category with segments, one of a number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sql
from made_documents import projection as made

from pipelines.results.tables import Row
from pipelines.sinks.sql import Projection, Results

COLLECTOR = "tests.example"
DAY = 86_400_000
FIRST, SECOND = (datetime(2013, 6, day, tzinfo=UTC) for day in (1, 2))
SEGMENTS = ("", "os=linux", "os=mac")


def _start(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _window(start: datetime, metric: str, segment: str, n: int, **more: object) -> Row:
    at = _start(start)
    return {
        "collector": COLLECTOR,
        "plan": "small",
        "version": 1,
        "metric": metric,
        "window_start": at,
        "window_end": at + DAY,
        "segment": segment,
        "type": "category",
        "mechanism": "grr",
        "n": n,
        "reports_by_level": [0, n],
        "revision": 1,
        "minimum_reports": 20,
        "withheld": None,
        **more,
    }


def _estimate(window: Row, position: int, kind: str, item: str, **more: object) -> Row:
    left_out = ("type", "mechanism", "minimum_reports")
    numbers = ("value", "standard_error", "low", "high", "display", "detection_floor")
    about = ("significant", "p_value", "confounded_with", "unit", "method")
    return {
        **{name: value for name, value in window.items() if name not in left_out},
        "position": position,
        "kind": kind,
        "item": item,
        **dict.fromkeys((*numbers, *about)),
        **more,
    }


def changed() -> tuple[list[Row], list[Row]]:
    """Return rows of windows and estimates; those of one segment are withheld."""
    windows, estimates = [], []
    for start in (FIRST, SECOND):
        for at, segment in enumerate(SEGMENTS):
            few = segment == "os=mac"
            why = "7 reports, the plan asks for 20" if few else None
            window = _window(start, "colour", segment, 7 if few else 100, withheld=why)
            windows.append(window)
            for position, item in enumerate(("red", "blue")):
                share = abs(position - 0.25 - at / 10)
                more = {"standard_error": 0.05, "low": share - 0.1, "high": share + 0.1}
                known = {"value": share, **more, "display": share, "method": "unbiased"}
                given = {"unit": "share", **({} if few else known)}
                estimates.append(_estimate(window, position, "share", item, **given))
    delay = _window(SECOND, "delay", "", 50, type="number", mechanism="threshold")
    windows.append(delay)
    known = {"standard_error": 1.0, "unit": "min", "method": "unbiased"}
    estimates.append(_estimate(delay, 0, "mean", "", value=4.5, low=2.5, high=6.5, **known))
    more = {"method": "monotone", "confounded_with": ["1", "2"], "significant": True}
    median = _estimate(delay, 1, "quantile", "0.5", value=4.0, **{**known, **more})
    return windows, [*estimates, median]


def projection(generation: int = 1) -> Projection:
    """Return the results as of a generation."""
    period: Row = {
        "collector": COLLECTOR,
        "period_start": _start(FIRST),
        "period_end": _start(SECOND),
        "closed": True,
        "pseudonyms": 3,
        "chains": 5,
        "over_budget": 1,
        "equivocation": 0,
        "accepted": 2_500_000,
        "observed": 3_000_000,
        "most_accepted": 1_000_000,
        "most_observed": 1_500_000,
    }
    rejected = [(1, "late", 4, 1), (2, "late", 2, 0), (2, "malformed", 1, 0)]
    names = ("generation", "reason", "rows", "requeued")
    return made(
        collector=COLLECTOR,
        state="mine",
        generation=generation,
        clock=_start(SECOND) + DAY,
        changed=[changed()],
        periods=[period],
        quarantine=[
            {"collector": COLLECTOR, **dict(zip(names, row, strict=True))} for row in rejected
        ],
        lineage=f"digest of {generation}",
    )


def project(url: str | sql.URL, generation: int = 1) -> None:
    """Write the results to a database."""
    with Results(url) as results:
        results.projected(COLLECTOR, "mine")
        results.project(projection(generation))
