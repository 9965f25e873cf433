"""The whole job: flights to devices, log, runs, estimates, and everything beside the truth."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tqdm import tqdm

from pipelines.bounded import run
from sotto.cli.replay.devices import Played
from sotto.cli.replay.playback import Replay, write_audit
from sotto.cli.replay.table import Columns, Recordings, read_recordings
from sotto.errors import ParameterError
from sotto.plan.compile import Plan, load_plan

from .data import Flights, load_flights, write_events
from .faults import FaultyNetwork, Misbehaviour, Target, damage
from .findings import Run, Timing
from .truth import Truth

DAY = 86_400_000
PLAN = Path(__file__).with_name("plan.yaml")
#: The window that is watched as rungs arrive, 28 days from 20 June 2013: its number.
WATCHED = 567
#: Days after that window's start at which the aggregator aggregates the log.
STOPS = (1, 2, 4, 7, 11, 14, 18, 21, 28, 35, 42, 49, 56)
#: The budget period in which aircraft misbehave, two a process: the last week of the watched
#: window. Its state is open, and all its reports delivered, at the last stop.
MISBEHAVIOUR = 4 * WATCHED + 3


@dataclass
class Demo:
    """Where the demo works, and what it has so far.

    Attributes
    ----------
    out : Path
        A directory of its own, made anew.
    processes : int
        In which devices are played back.
    aircraft : int or None
        Only so many of them; None for all.
    """

    out: Path
    processes: int = 2
    aircraft: int | None = None
    timings: list[Timing] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """The embedded log."""
        return self.out / "log"

    @property
    def state(self) -> Path:
        """The aggregator's state directory."""
        return self.out / "state"

    @property
    def database(self) -> str:
        """URL of the results."""
        return f"sqlite:///{self.out / 'results.db'}"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        began = time.perf_counter()
        yield
        self.timings.append(Timing(name, time.perf_counter() - began))

    def start_afresh(self) -> None:
        """Empty the demo's directory.

        Raises
        ------
        ParameterError
            It holds something else than a former run.
        """
        mark = self.out / ".sotto-demo"
        if self.out.exists() and any(self.out.iterdir()) and not mark.exists():
            raise ParameterError(f"{self.out} is not empty and not a former demo's directory")
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        mark.touch()


@dataclass(frozen=True)
class Inputs:
    """Plan, flights, and what devices record of them."""

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
    with tqdm(total=inputs.recordings.devices, unit=" aircraft", desc="  replay") as bar:
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
    """Aggregate what had arrived as of a time, or all there is."""
    plan = inputs.plan.compile()
    # The destinations of the year are looked for once, when all is in.
    candidates = {} if as_of is not None else {plan.fingerprint: inputs.plan.candidates}
    result = run.aggregate(
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
