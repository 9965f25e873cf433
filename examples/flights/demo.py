"""Runs the demo stage by stage: flights to devices, log, estimates, all beside the truth."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from scipy.stats import binom
from tqdm import tqdm

from pipelines.bounded.run import RunResult, aggregate
from pipelines.results.reader import ResultsReader
from pipelines.results.tables import ESTIMATES
from pipelines.sinks.sql import Results
from pipelines.web.rendering import write_static_file
from sotto.errors import ParameterError
from sotto.plan.compile import load_plan
from sotto.plan.compiled import Plan
from sotto_cli.simulation.devices import Played
from sotto_cli.simulation.playback import Replay, write_audit
from sotto_cli.simulation.table import Recordings

from . import books, story
from .collect import Collected, Row
from .data import Flights, load_flights, recordings_of
from .faults import FaultyNetwork, Misbehaviour, Target, damage
from .findings import Comparison, Coverage, Findings, MeasuredWeeks, Release, WindowSeries
from .report import write_report
from .truth import DAY, Truth
from .watched import WatchedFleet, WatchedPlay
from .weeks import measure
from .witness import Opinion, equal_windows, form_opinion

PLAN = Path(__file__).with_name("plan.yaml")
#: The window that is watched as levels arrive, 28 days from 20 June 2013: its number.
WATCHED = 567
WATCHED_START = WATCHED * 28 * DAY
#: The estimates that are shown over the year: metric, kind and item of each, and a name for people.
#: The first two are watched as levels arrive.
SERIES = (
    ("delayed", "share", "true", "delayed or cancelled"),
    ("dep_delay", "mean", "", "mean departure delay"),
    ("dep_delay", "missing", "", "cancelled"),
    ("distance", "mean", "", "mean distance"),
)
#: Days after that window's start at which the aggregator aggregates the log.
STOPS = (1, 4, 7, 14, 21, 28, 35, 42, 56)
#: The budget period in which aircraft misbehave, two a process: the last week of the watched
#: window. Its state is open, and all its reports delivered, at the last stop.
MISBEHAVIOUR = 4 * WATCHED + 3


@dataclass
class Demo:
    """The demo: its settings, its directory, made anew, and the seconds of its stages so far.

    Only so many ``aircraft``, or all of them, are played back in so many ``processes``.
    """

    out: Path
    processes: int = 2
    aircraft: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.out / "log"

    @property
    def state(self) -> Path:
        return self.out / "state"

    @property
    def database(self) -> str:
        return f"sqlite:///{self.out / 'results.db'}"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began

    def start_afresh(self) -> None:
        mark = self.out / ".sotto-demo"
        if self.out.exists() and any(self.out.iterdir()) and not mark.exists():
            raise ParameterError(f"{self.out} is not empty and not a former demo's directory")
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        mark.touch()


@dataclass(frozen=True)
class Inputs:
    plan: Plan
    flights: Flights
    recordings: Recordings


def prepare(demo: Demo) -> Inputs:
    """Write the table and the plan that ``sotto replay`` would read, and read the table."""
    plan = load_plan(PLAN)
    (demo.out / "plan.json").write_bytes(plan.compile().to_json())
    flights = load_flights()
    if demo.aircraft is not None:
        flights = flights.of_aircraft(demo.aircraft)
    recordings = recordings_of(flights, plan.compile(), demo.out / "events.csv")
    return Inputs(plan, flights, recordings)


@dataclass(frozen=True)
class Replayed:
    """Results of the replay: the devices' side, the network's faults, the truth."""

    played: Played
    planted: Mapping[str, int]
    misbehaved: Sequence[Misbehaviour]
    truth: Truth


def replay(demo: Demo, inputs: Inputs) -> Replayed:
    """Play all aircraft back through a network that is not to be trusted."""
    plan = inputs.plan.compile()
    network = FaultyNetwork(Target(plan, plan.metric("carrier")), periods=frozenset([MISBEHAVIOUR]))
    fleet = partial(WatchedFleet, network=network)
    job = Replay(demo.log, processes=demo.processes, fleet=fleet)
    with tqdm(total=len(inputs.recordings), unit=" flights", desc="  replay") as bar:
        played = cast(WatchedPlay, job.run(plan, inputs.recordings, bar.update))
    planted = sum((each.planted for each in played.networks), Counter[str]())
    misbehaved = [case for each in played.networks for case in each.misbehaved]
    planted["corrupt_log"] = damage(demo.log)
    write_audit(demo.out / "devices.csv", played.audit)
    kept = sorted(played.kept, key=lambda each: (each.device, each.row))
    truth = Truth.of_replay(plan, inputs.flights, kept, played.audit, misbehaved)
    return Replayed(played, planted, misbehaved, truth)


@dataclass(frozen=True)
class Aggregated:
    """The aggregator's work: its stops, and what it said of the watched window at each."""

    runs: Sequence[RunResult]
    rows: Sequence[Sequence[Row]]
    audited: Mapping[str, tuple[int, int, int]]


def aggregate_all(demo: Demo, inputs: Inputs) -> Aggregated:
    """Aggregate the log up to each stop, then to its end."""
    plan, runs, rows = inputs.plan.compile(), [], []
    audited: Mapping[str, tuple[int, int, int]] = {}
    for day in tqdm([*STOPS, None], desc="  runs", unit=" stop"):
        as_of = None if day is None else WATCHED_START + day * DAY
        # The destinations of the year are looked for once, when all is in.
        candidates = {} if day is not None else {plan.fingerprint: inputs.plan.candidates}
        runs.append(
            aggregate(
                demo.log, demo.state, [plan], demo.database, as_of=as_of, candidates=candidates
            )
        )
        if day is not None:
            with Results(demo.database) as results:
                found = results.table(ESTIMATES)
            rows.append([row for row in found if row["window_start"] == WATCHED_START])
        if day == STOPS[-1]:
            audited = books.audit_of(demo.state, plan, MISBEHAVIOUR)
    return Aggregated(runs, rows, audited)


def run(demo: Demo) -> Findings:
    """Run the demo; return what the report says."""
    story.title()
    demo.start_afresh()
    with demo.stage("read"):
        inputs = prepare(demo)
    story.flights(inputs.recordings.rows, inputs.recordings.devices, inputs.recordings.skipped)
    with demo.stage("replay"):
        replayed = replay(demo, inputs)
    story.replayed(replayed.played, replayed.planted)
    with demo.stage("aggregate"):
        aggregated = aggregate_all(demo, inputs)
    story.aggregated(aggregated.runs)
    with demo.stage("measure"):
        weeks = measure(demo.out, inputs.flights, demo.processes)
    with demo.stage("check"):
        opinion = form_opinion(demo.log, inputs.plan.compile(), replayed.truth.kept)
        findings = assemble(demo, inputs, replayed, aggregated, opinion, weeks)
    report, results = demo.out / "report.html", demo.out / "results.html"
    write_static_file(ResultsReader(demo.database, demo.state), results, demo.state)
    write_report(findings, report, results.name)
    story.found(findings)
    story.end(findings, report, results)
    return findings


def assemble(
    demo: Demo,
    inputs: Inputs,
    replayed: Replayed,
    aggregated: Aggregated,
    opinion: Opinion,
    weeks: MeasuredWeeks,
) -> Findings:
    plan, truth, played = inputs.plan.compile(), replayed.truth, replayed.played
    collected = Collected.read(truth, demo.database)
    same, windows = equal_windows(demo.state, plan, opinion)
    series = [collected.series(*each) for each in SERIES]
    return Findings(
        plan=plan,
        flights=inputs.recordings.rows,
        devices=inputs.recordings.devices,
        skipped=inputs.recordings.skipped,
        chains=sum(len(kept) for kept in truth.kept.values()),
        reports=opinion.reports,
        messages=played.messages,
        log_bytes=played.written,
        sharpening=[_sharpening(truth, aggregated, opinion, *each) for each in SERIES[:2]],
        carriers=collected.shares("carrier", WATCHED_START),
        carriers_window=WATCHED_START,
        series=series,
        coverage=_coverage(collected, series, weeks),
        ledger=books.ledger_periods(plan, played.audit, replayed.misbehaved, demo.database),
        revocations=books.revocations(plan, played.audit, replayed.misbehaved, aggregated.audited),
        agreeing=books.agreeing(played.audit, aggregated.audited, MISBEHAVIOUR),
        quarantine=books.quarantined(replayed.planted, demo.database),
        planted=replayed.planted,
        duplicates=sum(each.tally.duplicates for each in aggregated.runs),
        equal_windows=(same + weeks.equal_windows[0], windows + weeks.equal_windows[1]),
        weeks=weeks,
        withheld=collected.withheld(),
        seconds=demo.seconds,
    )


def _coverage(
    collected: Collected, series: Sequence[WindowSeries], weeks: MeasuredWeeks
) -> list[Coverage]:
    """Count the intervals that hold their truth, of every estimate of every window, by kind."""
    groups: dict[str, Sequence[Comparison]] = {
        "airline shares": collected.of_kind("carrier", "share"),
        **{each.label: each.values for each in series},
        "delay quantiles": collected.of_kind("dep_delay", "quantile"),
        "destinations": collected.of_kind("dest", "string"),
        **weeks.compared,
    }
    groups["all"] = [one for ones in groups.values() for one in ones]
    found = []
    for label, ones in groups.items():
        if not ones:
            # A year of few aircraft is withheld.
            continue
        hits, least = sum(one.covers for one in ones), int(binom.ppf(0.001, len(ones), 0.95))
        found.append(Coverage(label, hits, len(ones), least))
    return found


def _sharpening(
    truth: Truth,
    aggregated: Aggregated,
    opinion: Opinion,
    metric: str,
    kind: str,
    item: str,
    label: str,
) -> list[Release]:
    """Return the window's estimates as they were published; a stop may leave one as it was."""
    releases: list[Release] = []
    for day, rows in zip(STOPS, aggregated.rows, strict=True):
        then = Collected(truth, rows)
        row = then.find(metric, WATCHED_START, kind, item)
        if row is None or row["value"] is None:
            continue
        by_level = tuple(cast(list[int], row["reports_by_level"]))
        if releases and by_level == releases[-1].by_level:
            continue
        arrived = opinion.arrived[metric] <= WATCHED_START + day * DAY
        newest = np.where(arrived, np.arange(len(by_level)), -1).max(axis=1)
        # A level of few reports is left out of an estimate.
        counted = np.isin(newest, np.flatnonzero(by_level))
        seen = then.compare(metric, WATCHED_START, kind, item, label, counted)
        assert seen is not None
        releases.append(Release(day, by_level, seen))
    return releases
