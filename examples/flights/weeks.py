"""Plays the first weeks under a plan of measures: how often, on how many days, and who came again.

Each aircraft adds its flights up by itself. The truth comes from the table alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
from tqdm import tqdm

from pipelines.bounded.run import aggregate
from pipelines.results.reader import ResultsReader
from pipelines.results.records import RetentionRate
from sotto.plan.compile import load_plan
from sotto_cli.simulation.playback import Replay

from .collect import Collected
from .data import Flights, recordings_of
from .findings import Comparison, MeasuredWeeks
from .truth import Truth
from .witness import equal_windows, form_opinion

PLAN = Path(__file__).with_name("measures.yaml")
WEEKS = 6


def measure(out: Path, flights: Flights, processes: int) -> MeasuredWeeks:
    """Replay, aggregate and compare the first weeks; files are made in ``out``."""
    plan = load_plan(PLAN).compile()
    first = flights.scheduled.min() // plan.period
    flights = flights.select(flights.scheduled < (first + WEEKS) * plan.period)
    log, state = out / "weeks-log", out / "weeks-state"
    recordings = recordings_of(flights, plan, out / "weeks.csv")
    with tqdm(total=len(recordings), unit=" flights", desc="  weeks") as bar:
        played = Replay(log, processes=processes).run(plan, recordings, bar.update)
    database = f"sqlite:///{out / 'weeks.db'}"
    aggregate(log, state, [plan], database)
    truth = Truth.of_weeks(plan, flights, played.audit)
    collected = Collected.read(truth, database)
    again = dict(came_again(truth, ResultsReader(database, state).retention()))
    # The first week began before the data.
    shown = int(first + 1) * plan.period
    mean_days = collected.series("days", "mean", "", "days flown in a week")
    return MeasuredWeeks(
        start=shown,
        days=sorted(collected.shares("days", shown), key=lambda one: one.label),
        again=[one for (since, _), one in again.items() if since == first],
        compared={
            "flights in a week": collected.of_kind("flights", "share"),
            mean_days.label: mean_days.values,
            "came again": list(again.values()),
        },
        equal_windows=equal_windows(state, plan, form_opinion(log, plan, truth.kept)),
    )


def came_again(
    truth: Truth, rates: Iterable[RetentionRate]
) -> Iterator[tuple[tuple[int, int], Comparison]]:
    """Yield retention beside its truth, by age and the week in which aircraft were new.

    Noise alone can show some where no aircraft was new: there is no truth beside those.
    """
    ages, weeks = truth.all_values("age"), truth.all_windows("age")
    for rate in rates:
        since = int(rate.since.timestamp() * 1000) // truth.plan.period
        new, again = (
            np.count_nonzero((ages == age) & (weeks == since + age)) for age in (0, rate.age)
        )
        label = "1 week later" if rate.age == 1 else f"{rate.age} weeks later"
        if rate.value is not None and new:
            estimate = rate.value, cast(float, rate.low), cast(float, rate.high)
            truths = again / new, again / new
            yield (since, rate.age), Comparison(label, "share", *estimate, *truths, rate.reports)
