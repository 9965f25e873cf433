"""The flights of 2013 and the plan that collects them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from examples.flights.collect import Population
from examples.flights.data import Flights, load_flights, package_file, write_events
from examples.flights.demo import PLAN
from examples.flights.truth import Truth
from examples.flights.weeks import PLAN as MEASURES
from examples.flights.weeks import came_again
from pipelines.results.records import RetentionRate
from sotto.plan.compile import load_plan
from sotto_cli.simulation.devices import AuditLine
from sotto_cli.simulation.table import NO_DEVICE, Columns, read_recordings

HOUR = 3_600_000


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights()


def test_size(flights: Flights) -> None:
    assert len(flights) == 336_776
    assert len(set(flights.tailnum)) == 4043 + 1


def test_delayed_means_late_or_cancelled(flights: Flights) -> None:
    assert flights.delayed[flights.cancelled].all()
    flown = ~flights.cancelled
    assert (flights.delayed[flown] == (flights.dep_delay[flown] >= 15)).all()


def test_the_plan_lists_the_package_s_airports() -> None:
    airports = pyarrow.csv.read_csv(package_file("airports.csv"))
    assert list(load_plan(PLAN).candidates["dest"]) == airports["faa"].to_pylist()


def test_the_plan_covers_the_data(flights: Flights) -> None:
    plan = load_plan(PLAN).compile()
    assert set(plan.metric("carrier").labels) == {*flights.carrier, "other"}
    assert len(set(flights.scheduled // plan.metric("dest").window)) == 1
    longest = max(max(metric.delays) for metric in plan.metrics)
    assert flights.scheduled.max() + longest + plan.period < plan.expires
    weeks = np.ptp(flights.scheduled // plan.period) + 1
    assert weeks * plan.cost <= plan.ceilings.lifetime


def test_events_read_back(flights: Flights, tmp_path: Path) -> None:
    few = flights.of_aircraft(3)
    assert len(set(few.tailnum)) == 3 + 1
    path = tmp_path / "events.csv"
    write_events(few, path)
    plan = load_plan(PLAN).compile()
    found = read_recordings(path, plan, Columns.of_plan(plan, "tailnum", "scheduled"))
    assert found.skipped == {NO_DEVICE: 2512}
    assert found.devices == 3
    row = found.row
    assert (found.time == few.scheduled[row]).all()
    assert found.values["carrier"].tolist() == few.carrier[row].tolist()
    assert found.values["delayed"].tolist() == few.delayed[row].tolist()
    assert found.values["distance"].tolist() == few.distance[row].tolist()
    delays = np.array([np.nan if v is None else v for v in found.values["dep_delay"]])
    assert np.array_equal(delays, few.dep_delay[row], equal_nan=True)


def test_weeks_hold_what_each_aircraft_did_in_them(flights: Flights) -> None:
    few = flights.of_aircraft(5)
    plan = load_plan(MEASURES).compile()
    devices: dict[str, int] = {}
    days: dict[tuple[int, int], list[int]] = {}
    for name, at, cancelled in zip(few.tailnum, few.scheduled, few.cancelled, strict=True):
        if name:
            key = devices.setdefault(name, len(devices)), int(at) // (7 * 24 * HOUR)
            days.setdefault(key, []).extend([] if cancelled else [int(at) // (24 * HOUR)])
    audit = [AuditLine(*key, f"{number:032x}", 0, 0) for number, key in enumerate(days)]
    truth = Truth.of_weeks(plan, few, audit)
    kept, expected = truth.kept["days"], sorted(days)
    assert list(zip(kept.device.tolist(), kept.period.tolist(), strict=True)) == expected
    assert truth.values("days").tolist() == [len(set(days[key])) for key in expected]
    # They are compared with estimates by their names.
    assert set(Population(truth.values("days")).shares) <= set(plan.metric("days").labels)
    labels = plan.metric("flights").labels
    flown = [plan.metric("flights").encode(len(days[key])) for key in expected]
    assert truth.values("flights").tolist() == [labels[each] for each in flown]
    first = {device: min(week for each, week in days if each == device) for device, _ in days}
    assert truth.values("age").tolist() == [week - first[device] for device, week in expected]
    assert (truth.windows("age") == kept.period).all()


def test_retention_of_a_week_in_which_no_aircraft_was_new_is_not_compared(flights: Flights) -> None:
    few = flights.of_aircraft(5)
    few = few.select(few.tailnum != "")
    plan = load_plan(MEASURES).compile()
    used = {*zip(few.tailnum.tolist(), (few.scheduled // plan.period).tolist(), strict=True)}
    # Devices are numbered as they first appear.
    devices = {name: number for number, name in enumerate(dict.fromkeys(few.tailnum.tolist()))}
    keys = sorted((devices[name], week) for name, week in used)
    audit = [AuditLine(*key, f"{number:032x}", 0, 0) for number, key in enumerate(keys)]
    first = int(few.scheduled.min() // plan.period)
    made = {
        week: RetentionRate(
            collector=plan.collector,
            plan=plan.plan,
            version=plan.version,
            metric="age",
            segment="",
            since=datetime.fromtimestamp(week * plan.period / 1000, UTC),
            age=1,
            value=0.4,
            low=0.1,
            high=0.9,
            standard_error=0.2,
            reports=40,
        )
        for week in (first, first + 30)
    }
    [(place, seen)] = came_again(Truth.of_weeks(plan, few, audit), made.values())
    assert place == (first, 1)
    new = {device for device, week in keys if week == first}
    assert {week for _, week in keys} > {first + 30}
    assert seen.kept == len(new & {device for device, week in keys if week == first + 1}) / len(new)
