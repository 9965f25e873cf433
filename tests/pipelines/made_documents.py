"""Documents of rows, as tests make them: their keys and values, or those of a generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sql

from pipelines.results.documents import (
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.results.tables import ESTIMATES, Row
from pipelines.sinks.sql import Projection, Results


def window_document(*about: Any) -> tuple[bytes, bytes]:
    return WindowDocument.of(*about).record


def period_document(*about: Any) -> tuple[bytes, bytes]:
    return PeriodDocument.of(*about).record


def rejects_document(*about: Any, revision: int | None = None) -> tuple[bytes, bytes]:
    return RejectsDocument.of(*about, *(() if revision is None else (revision,))).record


def health_document(*about: Any) -> tuple[bytes, bytes]:
    return HealthDocument.of(*about).record


def projection(
    collector: str,
    state: str,
    generation: int,
    clock: int | None,
    changed: Iterable[tuple[Sequence[Row], Sequence[Row]]] = (),
    periods: Sequence[Row] = (),
    quarantine: Sequence[Row] = (),
    **more: Any,
) -> Projection:
    """Return a generation with the documents of rows: of windows, periods and quarantine."""
    rejects, requeued = Counter[str](), Counter[str]()
    for row in quarantine:
        rejects[str(row["reason"])] += int(str(row["rows"]))
        requeued[str(row["reason"])] += int(str(row["requeued"]))

    def documents() -> Iterator[Document]:
        for windows, estimates in changed:
            for row in windows:
                if not row["segment"]:
                    revision = int(str(row["revision"]))
                    of_segments = [each for each in _same(windows, row) if each["segment"]]
                    yield WindowDocument.of(
                        state, row, _same(estimates, row), revision, "late", of_segments
                    )
        for row in periods:
            yield PeriodDocument.of(state, row, generation)
        yield RejectsDocument.of(state, collector, rejects, generation, requeued)

    return Projection(collector, state, generation, clock, _Again(documents), **more)


def project(url: str | sql.URL, given: Projection) -> None:
    """Write a generation to a database, as a run does."""
    with Results(url) as results:
        results.projected(given.collector, given.state)
        results.project(given)


def window_row(metric: str, start: int, length: int, n: int, **more: object) -> dict[str, object]:
    """Return a row of a window of all reports, which came at the second of two levels."""
    return {
        "collector": "tests.example",
        "plan": "small",
        "version": 1,
        "metric": metric,
        "window_start": start,
        "window_end": start + length,
        "segment": "",
        "type": "category",
        "mechanism": "grr",
        "n": n,
        "reports_by_level": [0, n],
        "revision": 1,
        "minimum_reports": 20,
        "withheld": None,
        **more,
    }


def estimate_row(
    window: Row, position: int, kind: str, item: str, **more: object
) -> dict[str, object]:
    """Return a row of an estimate of a window; null where nothing is given."""
    of_window = {each.name: window.get(each.name) for each in ESTIMATES.columns}
    return {
        **of_window,
        "position": position,
        "kind": kind,
        "item": item,
        "unit": "share",
        "method": "unbiased",
        **more,
    }


class _Again:
    """The documents that a function yields, anew each time it is iterated."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Document]:
        made: Iterator[Document] = self._make()
        return made


def _same(rows: Iterable[Mapping[str, object]], window: Row) -> list[Row]:
    key = WindowDocument.key_names
    return [row for row in rows if all(row[name] == window[name] for name in key)]
