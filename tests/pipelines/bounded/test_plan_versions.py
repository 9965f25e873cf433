"""One version of a plan has one fingerprint at an aggregator, in one run and in all later ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from committed_states import projected
from report_logs import START, Device, write
from step_plans import DAY, category, plan

from mechanisms.frozen import replace
from pipelines.bounded.run import aggregate
from pipelines.requeue.state import requeue
from pipelines.results.documents import WindowDocument
from pipelines.sinks.committed import CommittedGeneration
from pipelines.storage.directory import StateDirectory
from sotto.errors import PlanError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

FIRST = plan(3, 4, category("colour", 3, 0.5, 1))
#: A plan whose fingerprint is sent only by devices that were given it.
MARKED = replace(FIRST, grace=2 * DAY)


def log(folder: Path, under: CompiledPlan, reports: bool = True, seed: int = 1) -> Path:
    device = Device(under, random.Random(seed))
    folder.mkdir(exist_ok=True)
    return write(folder, device.chain(under.metrics[0], START) if reports else [], lanes=1)


def partition(folder: Path, under: CompiledPlan, devices: int, source: random.Random) -> Path:
    """Add a partition of devices under a plan to a log."""
    made = [Device(under, source) for _ in range(devices)]
    sent = [one for each in made for metric in under.metrics for one in each.chain(metric, START)]
    lane = write(folder.with_name(f"log-{under.version}"), sent, lanes=1) / "lane-0"
    folder.mkdir(exist_ok=True)
    lane.rename(folder / f"lane-{under.version}")
    return folder


@pytest.mark.parametrize("reports", [False, True], ids=["given", "counted"])
def test_another_fingerprint_of_a_version_is_refused_in_a_later_run(tmp_path, reports):
    """Also where nothing was counted: the directory has seen the plan."""
    source, state = log(tmp_path / "log", FIRST, reports), tmp_path / "state"
    aggregate(source, state, [FIRST])
    for again in (lambda: aggregate(source, state, [MARKED]), lambda: requeue(state, [MARKED])):
        with pytest.raises(PlanError, match="two fingerprints") as caught:
            again()
        assert FIRST.fingerprint_hex in str(caught.value)
        assert MARKED.fingerprint_hex in str(caught.value)
    with pytest.raises(PlanError, match="has two fingerprints"):
        aggregate(source, state, [FIRST, MARKED])
    assert aggregate(source, state, [FIRST, replace(MARKED, version=4)]).runs == 0


def test_a_metric_that_two_versions_share_is_estimated_once(tmp_path):
    """Under the lowest version, of the reports of both; what differs stays apart."""
    changed = category("shape", 4, 0.5, 1)
    first = plan(1, 4, category("colour", 3, 0.5, 1), category("shape", 3, 0.5, 1))
    later = replace(plan(2, 4, changed, category("colour", 3, 0.5, 1)), minimum_reports=2)
    state, log, source = tmp_path / "state", tmp_path / "log", random.Random(1)
    aggregate(partition(log, first, 3, source), state, [first])
    aggregate(partition(log, later, 5, source), state, [first, later])
    windows = projected(state)["windows"]
    found = sorted((w["metric"], w["version"], w["n"], w["minimum_reports"]) for w in windows)
    assert found == [("colour", 1, 8, 2), ("shape", 1, 3, 1), ("shape", 2, 5, 2)]


def test_a_lower_version_that_comes_later_takes_the_place_of_the_higher(tmp_path):
    """Otherwise the same reports would stand under both; whoever follows is told so."""
    first, later = (plan(version, 4, category("colour", 3, 0.5, 1)) for version in (1, 2))
    state, log, source = tmp_path / "state", tmp_path / "log", random.Random(1)
    given: list[CompiledPlan] = []
    for under, number in ((later, 5), (first, 3)):
        given.append(under)
        aggregate(partition(log, under, number, source), state, given)
    windows = projected(state)["windows"]
    assert [(window["version"], window["n"]) for window in windows] == [(1, 8)]
    directory = StateDirectory(state)
    found = CommittedGeneration(directory, directory.manifest(), Registry(given), {}).projection(1)
    rows = [told.window for told in found.documents if isinstance(told, WindowDocument)]
    assert sorted((row["version"], row["n"]) for row in rows) == [(1, 8), (2, 0)]
