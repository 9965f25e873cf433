"""Runs the demo stage by stage: flights to devices, log, estimates, all beside the truth."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from scipy.stats import binom
from tqdm import tqdm

from pipelines.bounded.run import aggregate
from pipelines.results.reader import ResultsReader
from pipelines.sinks.sql import Results
from pipelines.web.rendering import write_static_file
from sotto.errors import ParameterError
from sotto.plan.compile import Plan, load_plan
from sotto_cli.simulation.devices import Played
from sotto_cli.simulation.playback import Replay, write_audit
from sotto_cli.simulation.table import Columns, Recordings, read_recordings

from . import books, story
from .collect import DAY, Collected, Row, decode_destinations, scores
from .data import Flights, load_airlines, load_airports, load_flights, write_events
from .faults import FaultyNetwork, Misbehaviour, Target, damage
from .findings import (
    Comparison,
    Coverage,
    Findings,
    Release,
    Run,
    Sharpening,
    Timing,
    Totals,
    WindowSeries,
)
from .report import write_report
from .truth import QUANTILES, Truth
from .witness import Opinion, equal_windows, form_opinion

PLAN = Path(__file__).with_name("plan.yaml")
#: The window that is watched as levels arrive, 28 days from 20 June 2013: its number.
WATCHED = 567
WATCHED_START = WATCHED * 28 * DAY
WATCHED_METRICS = ("delayed", "dep_delay")
#: Days after that window's start at which the aggregator aggregates the log.
STOPS = (1, 2, 4, 7, 11, 14, 18, 21, 28, 35, 42, 49, 56)
#: The budget period in which aircraft misbehave, two a process: the last week of the watched
#: window. Its state is open, and all its reports delivered, at the last stop.
MISBEHAVIOUR = 4 * WATCHED + 3


@dataclass
class Demo:
    """Where the demo works, a directory made anew, and what it has so far.

    Only so many ``aircraft``, or all of them, are played back in so many ``processes``.
    """

    out: Path
    processes: int = 2
    aircraft: int | None = None
    timings: list[Timing] = field(default_factory=list)

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
        self.timings.append(Timing(name, time.perf_counter() - began))

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
    """Write the table and the plan that ``sotto replay`` would read, and read them."""
    plan = load_plan(PLAN)
    (demo.out / "plan.json").write_bytes(plan.compile().to_json())
    flights = load_flights()
    if demo.aircraft is not None:
        flights = flights.of_aircraft(demo.aircraft)
    events = demo.out / "events.csv"
    write_events(flights, events)
    columns = Columns.of_plan(plan.compile(), "tailnum", "scheduled")
    return Inputs(plan, flights, read_recordings(events, plan.compile(), columns))


@dataclass(frozen=True)
class Replayed:
    """What the replay left: the devices' side, the network's faults, the truth."""

    played: Played
    planted: Mapping[str, int]
    misbehaved: Sequence[Misbehaviour]
    truth: Truth


def replay(demo: Demo, inputs: Inputs) -> Replayed:
    """Play all aircraft back through a network that is not to be trusted."""
    plan = inputs.plan.compile()
    network = FaultyNetwork(Target.of_plan(plan, "carrier"), periods=frozenset([MISBEHAVIOUR]))
    job = Replay(demo.log, processes=demo.processes, network=network, witness=True)
    with tqdm(total=len(inputs.recordings), unit=" flights", desc="  replay") as bar:
        played = job.run(plan, inputs.recordings, bar.update)
    networks = cast(Sequence[FaultyNetwork], played.networks)
    planted = sum((each.planted for each in networks), Counter[str]())
    misbehaved = [case for each in networks for case in each.misbehaved]
    planted["corrupt_log"] = damage(demo.log)
    write_audit(demo.out / "devices.csv", played.audit)
    truth = Truth.of_replay(plan, inputs.flights, played.kept, played.audit, misbehaved)
    truth.write(demo.out / "truth.csv")
    return Replayed(played, planted, misbehaved, truth)


def aggregate_until(demo: Demo, inputs: Inputs, as_of: int | None) -> Run:
    plan = inputs.plan.compile()
    # The destinations of the year are looked for once, when all is in.
    candidates = {} if as_of is not None else {plan.fingerprint: inputs.plan.candidates}
    result = aggregate(
        demo.log, demo.state, [plan], demo.database, as_of=as_of, candidates=candidates
    )
    return Run(
        as_of,
        result.runs,
        result.size,
        result.tally.reports,
        result.tally.counted,
        result.tally.superseded,
        result.tally.duplicates,
        result.seconds,
    )


@dataclass(frozen=True)
class Aggregated:
    """What the aggregator did: its stops, and what it said of the watched window at each."""

    runs: Sequence[Run]
    rows: Sequence[Sequence[Row]]
    audited: dict[str, tuple[int, int, int]]


def run(demo: Demo) -> Findings:
    """Run the demo; return what the report says."""
    story.title()
    demo.start_afresh()
    with demo.stage("read"):
        inputs = prepare(demo)
    story.flights(inputs.recordings.rows, inputs.recordings.devices, inputs.recordings.skipped)
    with demo.stage("replay"):
        replayed = replay(demo, inputs)
    story.replayed(replayed.played, demo.timings[-1].wall)
    story.faults(replayed.planted)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        plan_json, kept = inputs.plan.compile().to_json(), replayed.truth.kept
        waiting = pool.submit(form_opinion, demo.log, plan_json, inputs.flights, kept)
        with demo.stage("aggregate"):
            aggregated = aggregate_all(demo, inputs)
        story.runs(aggregated.runs)
        with demo.stage("check"):
            opinion = waiting.result()
            findings = assemble(demo, inputs, replayed, aggregated, opinion)
    report, results = demo.out / "report.html", demo.out / "results.html"
    write_static_file(ResultsReader(demo.database, demo.state), results, demo.state)
    write_report(findings, report, results.name)
    story.found(findings)
    story.end(findings, report, results)
    return findings


def aggregate_all(demo: Demo, inputs: Inputs) -> Aggregated:
    runs, rows = [], []
    audited: dict[str, tuple[int, int, int]] = {}
    for day in tqdm([*STOPS, None], desc="  runs", unit=" stop"):
        as_of = None if day is None else WATCHED_START + day * DAY
        runs.append(aggregate_until(demo, inputs, as_of))
        if day is not None:
            rows.append(_watched_rows(demo))
        if day == STOPS[-1]:
            audited = books.audit_of(demo.state, inputs.plan.compile(), MISBEHAVIOUR)
    return Aggregated(runs, rows, audited)


def _watched_rows(demo: Demo) -> list[Row]:
    with Results(demo.database) as results:
        return [
            row for metric in WATCHED_METRICS for row in results.estimates(metric, WATCHED_START)
        ]


def assemble(
    demo: Demo, inputs: Inputs, replayed: Replayed, aggregated: Aggregated, opinion: Opinion
) -> Findings:
    plan, truth, audit = inputs.plan.compile(), replayed.truth, replayed.played.audit
    collected = Collected.read(truth, demo.database)
    series = _series(collected)
    checked = _checked(collected, series)
    duplicates = sum(each.duplicates for each in aggregated.runs)
    year = collected.windows("dest")[0]
    candidates = inputs.plan.candidates["dest"]
    return Findings(
        totals=_totals(inputs, replayed, opinion),
        sharpening=[
            _sharpening(replayed, aggregated, opinion, *each)
            for each in (
                ("delayed", "share", "true", "delayed or cancelled", ""),
                ("dep_delay", "mean", "", "mean departure delay", "min"),
            )
        ],
        carriers=collected.shares("carrier", WATCHED_START),
        carriers_window=WATCHED_START,
        airlines=load_airlines(),
        series=series,
        quantiles=collected.quantiles("dep_delay", WATCHED_START),
        curve=collected.curve("dep_delay", WATCHED_START),
        decoding=decode_destinations(collected, load_airports(), candidates, year),
        coverage=_coverage(checked),
        scores=scores([one for _, one in checked]),
        errors=opinion.errors,
        ledger=books.ledger_periods(plan, audit, replayed.misbehaved, demo.database),
        lifetimes=books.lifetimes(audit),
        revocations=books.revocations(plan, audit, replayed.misbehaved, aggregated.audited),
        agreeing=books.agreeing(audit, aggregated.audited, MISBEHAVIOUR),
        quarantine=books.quarantined(replayed.planted, demo.database),
        planted=books.planted_faults(replayed.planted, duplicates),
        runs=aggregated.runs,
        equal_windows=equal_windows(demo.state, plan, opinion),
        timings=demo.timings,
        withheld=collected.withheld(),
    )


def _totals(inputs: Inputs, replayed: Replayed, opinion: Opinion) -> Totals:
    plan, played = inputs.plan.compile(), replayed.played
    return Totals(
        flights=inputs.recordings.rows,
        devices=inputs.recordings.devices,
        recordings=sum(played.outcomes.values()),
        chains=sum(len(kept) for kept in replayed.truth.kept.values()),
        reports=opinion.reports,
        messages=played.messages,
        log_bytes=played.written,
        skipped=inputs.recordings.skipped,
        week_epsilon=plan.cost / 1e6,
        ceiling=plan.ceilings.period / 1e6,
        lifetime=plan.ceilings.lifetime / 1e6,
    )


def _series(collected: Collected) -> dict[str, WindowSeries]:
    return {
        "delayed": collected.series("delayed", "share", "true", "delayed or cancelled", ""),
        "delay": collected.series("dep_delay", "mean", "", "mean departure delay", "min"),
        "missing": collected.series("dep_delay", "missing", "", "cancelled", ""),
        "distance": collected.series("distance", "mean", "", "mean distance", "mi"),
    }


def _checked(collected: Collected, series: dict[str, WindowSeries]) -> list[tuple[str, Comparison]]:
    """Return every estimate of every window beside its truth, by kind."""
    checked = [
        ("airline shares", one)
        for start in collected.windows("carrier")
        for one in collected.shares("carrier", start)
    ]
    for each in series.values():
        checked += [(each.label, one) for one in each.values]
    for tau in QUANTILES:
        quantile = collected.series("dep_delay", "quantile", repr(tau), "delay quantiles", "min")
        checked += [("delay quantiles", one) for one in quantile.values]
    start = collected.windows("dest")[0]
    checked += [
        ("destinations", one)
        for row in collected.rows
        if row["kind"] == "string"
        and (one := collected.compare("dest", start, "string", str(row["item"]), str(row["item"])))
    ]
    return checked


def _coverage(checked: Sequence[tuple[str, Comparison]]) -> list[Coverage]:
    groups: dict[str, list[Comparison]] = {}
    for label, one in checked:
        groups.setdefault(label, []).append(one)
        groups.setdefault("all", []).append(one)
    groups["all"] = groups.pop("all")
    found = []
    for label, ones in groups.items():
        total = len(ones)
        least, most = (int(binom.ppf(p, total, 0.95)) for p in (0.0005, 0.9995))
        found.append(Coverage(label, sum(one.covers for one in ones), total, least, most))
    return found


def _sharpening(
    replayed: Replayed,
    aggregated: Aggregated,
    opinion: Opinion,
    metric: str,
    kind: str,
    item: str,
    label: str,
    unit: str,
) -> Sharpening:
    releases = []
    for day, rows in zip(STOPS, aggregated.rows, strict=True):
        then = Collected(replayed.truth, rows)
        arrived = np.asarray(opinion.arrived[metric] <= WATCHED_START + day * DAY)
        seen = then.compare(metric, WATCHED_START, kind, item, label, arrived)
        row = then.find(metric, WATCHED_START, kind, item)
        if seen is not None and row is not None:
            by_level = tuple(cast(list[int], row["reports_by_level"]))
            releases.append(Release(float(day), by_level, seen))
    return Sharpening(label, unit, 28, releases[-1].seen.kept, releases)
