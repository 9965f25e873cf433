"""Results of figures that were made up, in a database as aggregation runs write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from made_documents import estimate_row, project, projection, window_row
from plan_texts import plan_head

from pipelines.results.reader import ResultsReader
from pipelines.sinks.sql import of_state
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

DAY = 86_400_000
WEEK = 7 * DAY
#: The start of the first window, ms.
START = 1_700_000_000_000 - 1_700_000_000_000 % WEEK
#: A window is ripe a day and an hour after its end.
RIPE = DAY + 3_600_000
PLAN = (
    plan_head("moving", (9, 9000))
    + """\
  colour: {type: category, domain: [red, blue], outside: blue, window: 7d, repeat: {once: first},
           ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]}
"""
)


@cache
def compiled() -> CompiledPlan:
    """Return the plan of the results."""
    return parse_plan(PLAN).compile()


def when(window: int) -> datetime:
    """Return where a window begins."""
    return datetime.fromtimestamp((START + window * WEEK) / 1000, UTC)


class MovingResults:
    """A database in a folder, with shares by window of the items of one metric."""

    def __init__(self, folder: Path, version: int = 1) -> None:
        self.folder = folder
        self.url = of_state(folder)
        self._version = version
        self._generation = 0

    def reader(self) -> ResultsReader:
        return ResultsReader(self.url, plans=[compiled()])

    def write(
        self,
        items: Mapping[str, Sequence[tuple[float, float] | None]],
        first: int = 0,
        clock: int | None = None,
        segment: str = "",
    ) -> None:
        """Write (value, standard error) of windows from ``first`` on, in a new generation.

        None is a window that is withheld. The clock (ms) is where the last window is ripe, if not
        given. With a ``segment``, all reports are written to be of that one.
        """
        self._generation += 1
        (length,) = {len(series) for series in items.values()}
        changed = [
            (
                [{**self._window(first + at), "segment": each} for each in sorted({"", segment})],
                [
                    {**self._row(first + at, place, item, series[at]), "segment": each}
                    for each in sorted({"", segment})
                    for place, (item, series) in enumerate(items.items())
                ],
            )
            for at in range(length)
        ]
        if clock is None:
            clock = START + (first + length) * WEEK + RIPE
        project(self.url, projection("tests.example", "state", self._generation, clock, changed))

    def _window(self, window: int) -> dict[str, object]:
        about = {"plan": "moving", "version": self._version, "revision": self._generation}
        return window_row("colour", START + window * WEEK, WEEK, 1000, **about)

    def _row(
        self, window: int, position: int, item: str, told: tuple[float, float] | None
    ) -> dict[str, object]:
        known = dict(zip(("value", "standard_error"), told or (), strict=False))
        known["withheld"] = None if told else "7 reports, the plan asks for 20"
        known["method"] = "em" if item == "likely" else "unbiased"
        return estimate_row(self._window(window), position, "share", item, **known)
