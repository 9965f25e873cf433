"""A few faults of the collector's fault run, with an embedded log and real devices."""

from __future__ import annotations

import pytest

from benchmarks.soak.collected import Collected, HttpStage
from benchmarks.soak.faults import run, schedule, table
from benchmarks.soak.stage import Injection, wait_until

PLANNED = (
    Injection("collector ended", "SIGKILL", delay=0.1, seconds=0.1),
    Injection("network", "torn", delay=0.1, seconds=0.3),
    Injection("collector and run killed", delay=0.1),
    Injection("run killed at a step", "committed"),
    Injection("disk full", "file size", room=65_536, seconds=0.1),
    Injection("network", "slow", delay=0.1, seconds=0.3),
    Injection("sender killed", "devices", delay=0.1),
    Injection("collector ended", "SIGTERM", delay=0.1, seconds=0.1),
)


@pytest.mark.real_randomness
@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path, capsys):
    with HttpStage(tmp_path, 20_261_122, 60, "log") as stage:
        # every draw: a slow machine only needs a while until the senders are at work.
        assert wait_until(lambda: stage.progress.known().sum() > 200, 3600)
        outcome = run(Collected(stage), PLANNED, len(PLANNED), 3600)
    assert outcome.holds, table(outcome, (), 0) + capsys.readouterr().out
    assert outcome.faults.total() >= 7  # every draw: the faults are planned.
    assert outcome.verdict.acknowledged > 200  # every draw: so many were awaited above.
    assert outcome.audited is not None
    # every draw: a pseudonym records each metric once.
    assert outcome.audited.pseudonyms > outcome.verdict.once // 5


@pytest.mark.parametrize(("store", "away"), [("log", "broker killed"), ("kafka", "disk full")])
def test_each_store_has_its_own_faults(tmp_path, store, away):
    stage = HttpStage(tmp_path, 1, 60, store)
    try:
        play = Collected(stage)
    finally:
        stage.proxy.close()
        stage.disk.close()
    planned = schedule(3, 40, play.shares, play.choices)
    assert {fault.kind for fault in planned} == set(play.shares)
    assert away not in play.shares
    assert {"broker killed", "disk full"} & set(play.shares)
