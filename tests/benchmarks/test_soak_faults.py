"""A few faults of the fault run, with a broker, a network that is cut, and real devices."""

from __future__ import annotations

import pytest
from programs import fetched

from benchmarks.soak.faults import Outcome, run, schedule, table
from benchmarks.soak.runs import Runs
from benchmarks.soak.stage import Injection, Stage, wait_until
from deploy import jars
from deploy.kafka.broker import SOURCE

PLANNED = (
    Injection("run killed at a step", "committed"),
    Injection("network", "deaf", delay=0.1, seconds=0.3),
    Injection("sender killed", "fleet", delay=0.1),
)


@pytest.fixture(scope="module")
def _archives():
    with fetched():
        jars.java()
        jars.jars("kafka", SOURCE)


@pytest.mark.real_randomness
@pytest.mark.slow
@pytest.mark.usefixtures("_archives")
def test_nothing_is_lost_and_nothing_counts_twice(tmp_path, capsys):
    with Stage(tmp_path, 20_261_121, 60, Runs.DISK) as stage:
        # every draw: a slow machine only needs a while until the senders are at work.
        assert wait_until(lambda: stage.progress.known().sum() > 200, 3600)
        outcome = run(Runs(stage), PLANNED, len(PLANNED), 3600)
    assert outcome.holds, table(outcome, (), 0) + capsys.readouterr().out
    assert sum(outcome.faults.values()) >= 2  # every draw: the faults are planned.
    assert outcome.verdict is not None
    assert outcome.verdict.acknowledged > 200  # every draw: so many were awaited above.
    assert outcome.audited is not None
    # every draw: a pseudonym records each metric once.
    assert outcome.audited.pseudonyms > outcome.verdict.once // 5
    assert table(outcome, (), 0).endswith("\nheld")


def test_a_schedule_follows_from_its_seed_and_has_every_kind():
    shares, choices = {"a": 5, "b": 1, "c": 1}, {"a": ("x", "y")}
    planned = schedule(3, 40, shares, choices)
    assert planned == schedule(3, 40, shares, choices) != schedule(4, 40, shares, choices)
    assert {fault.kind for fault in planned} == set(shares)
    assert {fault.what for fault in planned if fault.kind == "a"} == {"x", "y"}
    assert len(planned) == 40


def test_a_run_without_a_check_has_not_held():
    assert not Outcome().holds
    assert "DID NOT HOLD" in table(Outcome(), (), 0)
