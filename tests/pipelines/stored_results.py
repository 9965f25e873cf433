"""A small database of results: two windows of a category with segments, one of a number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import made_documents
import sqlalchemy as sql
from made_documents import estimate_row, window_row

from pipelines.results.tables import Row
from pipelines.sinks.sql import Projection

COLLECTOR = "tests.example"
DAY = 86_400_000
FIRST, SECOND = (datetime(2013, 6, day, tzinfo=UTC) for day in (1, 2))
SEGMENTS = ("", "os=linux", "os=mac")


def _start(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def changed() -> tuple[list[Row], list[Row]]:
    """Return rows of windows and estimates; those of one segment are withheld."""
    windows, estimates = [], []
    for start in (FIRST, SECOND):
        for at, segment in enumerate(SEGMENTS):
            few = segment == "os=mac"
            why = "7 reports, the plan asks for 20" if few else None
            window = window_row(
                "colour", _start(start), DAY, 7 if few else 100, segment=segment, withheld=why
            )
            windows.append(window)
            for position, item in enumerate(("red", "blue")):
                share = abs(position - 0.25 - at / 10)
                more = {"standard_error": 0.05, "low": share - 0.1, "high": share + 0.1}
                known = {"value": share, **more, "display": share}
                given = {"method": None} if few else known
                estimates.append(estimate_row(window, position, "share", item, **given))
    delay = window_row("delay", _start(SECOND), DAY, 50, type="number", mechanism="threshold")
    windows.append(delay)
    known = {"standard_error": 1.0, "unit": "min"}
    estimates.append(estimate_row(delay, 0, "mean", "", value=4.5, low=2.5, high=6.5, **known))
    more = {"method": "monotone", "confounded_with": ["1", "2"], "significant": True}
    median = estimate_row(delay, 1, "quantile", "0.5", value=4.0, **{**known, **more})
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
    return made_documents.projection(
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
    made_documents.project(url, projection(generation))
