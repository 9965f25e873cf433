"""The second count of the log, without the aggregator."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.flights.data import load_flights, write_events
from examples.flights.demo import PLAN
from examples.flights.faults import FaultyNetwork, Target
from examples.flights.recount import NEVER, read_reports
from examples.flights.truth import Truth
from sotto.plan.compile import load_plan
from sotto_cli.simulation.playback import Replay
from sotto_cli.simulation.table import Columns, read_recordings


def test_the_second_count_finds_every_chain_once(tmp_path: Path) -> None:
    plan = load_plan(PLAN).compile()
    flights = load_flights().of_aircraft(2)
    write_events(flights, tmp_path / "events.csv")
    columns = Columns.of_plan(plan, "tailnum", "scheduled")
    recordings = read_recordings(tmp_path / "events.csv", plan, columns)
    network = FaultyNetwork(Target.of_plan(plan, "carrier"), duplicates=0.5, garbage=0.05)
    job = Replay(tmp_path / "log", processes=1, network=network, witness=True)
    played = job.run(plan, recordings)
    truth = Truth.of_replay(plan, flights, played.kept, played.audit, [])
    names = truth.kept["carrier"].pseudonym
    found = read_reports(tmp_path / "log", plan, names)
    for metric in plan.metrics:
        reports = found[metric.name]
        assert len(reports) == len(truth.kept[metric.name]) == len(names)
        # Every level came after its delay, and none is missing.
        due = reports.event[:, None] + np.array(metric.delays)
        assert (reports.arrived > due).all()
        assert (reports.arrived < NEVER).all()
    assert not len(read_reports(tmp_path / "log", plan, names[:1])["dest"]) > len(names) // 2
