"""Errors by level, relaxed beside fresh, and the second count of the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.flights.data import Flights, load_flights, write_events
from examples.flights.demo import PLAN
from examples.flights.faults import FaultyNetwork, Target
from examples.flights.findings import MetricErrors
from examples.flights.recount import Reports, read_reports
from examples.flights.theory import metric_errors
from examples.flights.truth import KeptReports, Truth
from mechanisms.testing import SeededSource
from sotto.plan.compile import load_plan
from sotto.plan.compiled import CompiledPlan
from sotto_cli.simulation.playback import Replay
from sotto_cli.simulation.table import Columns, read_recordings

SEED = 20130101
REPORTS = 20_000
WEEK = 7 * 86_400_000
FIRST = 2243


@pytest.fixture(scope="module")
def plan() -> CompiledPlan:
    return load_plan(PLAN).compile()


@pytest.fixture(scope="module")
def truth(plan: CompiledPlan) -> Truth:
    """One flight a report, in twenty weeks."""
    rng = np.random.default_rng(SEED)
    period = FIRST + rng.integers(0, 20, REPORTS)
    flights = Flights(
        tailnum=np.full(REPORTS, "x", dtype=object),
        scheduled=period * WEEK,
        carrier=rng.choice(np.array(["UA", "DL", "AA"], dtype=object), REPORTS, p=[0.5, 0.3, 0.2]),
        dest=rng.choice(np.array(["ORD", "ATL"], dtype=object), REPORTS),
        dep_delay=np.where(rng.random(REPORTS) < 0.03, np.nan, rng.integers(-20, 90, REPORTS)),
        distance=rng.integers(100, 2500, REPORTS).astype(np.float64),
    )
    pseudonyms = SeededSource(SEED).words(2 * REPORTS).reshape(-1, 2)
    kept = KeptReports(np.arange(REPORTS), period, np.arange(REPORTS), pseudonyms)
    return Truth(plan, flights, {metric.name: kept for metric in plan.metrics})


def randomized(truth: Truth, name: str) -> Reports:
    metric, kept = truth.plan.metric(name), truth.kept[name]
    chains = SeededSource(SEED + 1).words(2 * REPORTS).reshape(-1, 2)
    payload = metric.mechanism.randomize(
        truth.symbols(name), chains, kept.pseudonym, SeededSource(SEED + 2)
    )
    event = truth.flights.scheduled
    return Reports(
        kept.pseudonym, chains, event, payload, np.ones(payload.shape[:2], np.bool_), event
    )


def errors(truth: Truth, name: str, reports: Reports) -> MetricErrors:
    return metric_errors(truth.plan.metric(name), reports, truth)


@pytest.mark.parametrize("name", ["delayed", "dest", "dep_delay"])
def test_true_chains_agree_with_theory(truth: Truth, name: str) -> None:
    """Bounds are some six standard deviations of the mean of 117 squared errors away."""
    found = errors(truth, name, randomized(truth, name))
    assert 0.3 < found.ratio < 2, f"seed {SEED}"
    assert found.low < 1 < found.high
    observed = [level.observed for level in found.levels]
    assert observed == sorted(observed, reverse=True)
    for level in found.levels:
        assert level.low <= level.observed <= level.high
        assert 0.3 < level.observed / level.predicted < 2.2, f"seed {SEED}"


def test_a_rung_that_is_too_noisy_is_caught(truth: Truth) -> None:
    reports = randomized(truth, "delayed")
    payload = reports.payload.copy()
    payload[::3, -1] ^= 1
    found = errors(truth, "delayed", replace(reports, payload=payload))
    assert found.ratio > found.high


def test_values_and_symbols(truth: Truth) -> None:
    flights = truth.flights
    delay = np.asarray(truth.symbols("dep_delay"))
    assert np.array_equal(np.isnan(delay), flights.cancelled)
    assert np.nanmax(np.abs(delay * 210 - 30 - flights.dep_delay)) < 1e-9
    labels = np.array(truth.plan.metric("carrier").labels)
    assert (labels[np.asarray(truth.symbols("carrier"))] == flights.carrier).all()
    assert list(truth.symbols("dest")) == [name.encode() for name in flights.dest]
    assert (np.asarray(truth.symbols("delayed")) == flights.delayed).all()


def test_the_second_count_finds_every_chain_once(plan: CompiledPlan, tmp_path: Path) -> None:
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
        assert reports.seen.all()
        assert (reports.arrived > reports.event + metric.delays[0]).all()
    assert not len(read_reports(tmp_path / "log", plan, names[:1])["dest"]) > len(names) // 2
