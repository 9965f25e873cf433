"""Development plans: the same metrics at high speed, under a name that no real collector has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from plan_texts import plan_head

import sotto_cli
from clientsdk import Client, MemoryPublisher
from clientsdk.testing import SeededClient, reported
from pipelines.collector.plans import ServedPlans
from sotto.errors import PlanError
from sotto.plan.compile import load_plan, parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.development import SUFFIX, development_plan, is_development
from sotto.plan.registry import Registry
from sotto.wire.decode import decode
from sotto.wire.reasons import Reason

PLANS = sorted(Path("examples").glob("*/plan.yaml"))
WEEKLY = plan_head(
    "trial", (12, 640), collector="fleet.example", version=3, panel="1/13", minimum_reports=50
)
WEEKLY += """\
  colour:
    type: category
    domain: [a, b]
    outside: other
    window: 28d
    ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 2, after: 7d}]
  delay:
    type: number
    range: [0, 9]
    outside: clip
    window: 1h
    repeat: {once: reservoir}
    ladder: [{epsilon: 0.5, after: 7d}, {epsilon: 1.5, after: 14d}]
  model:
    type: boolean
    window: 28d
    repeat: {constant: true}
    ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 4}]
"""


@pytest.fixture
def weekly() -> CompiledPlan:
    return parse_plan(WEEKLY).compile()


def test_a_period_lasts_a_minute_and_all_else_is_in_proportion(weekly):
    fast = development_plan(weekly)
    assert (fast.collector, fast.plan, fast.version) == ("fleet.example" + SUFFIX, "trial", 3)
    assert (fast.period, fast.resolution, fast.grace) == (60_000, 1000, 9000)
    assert fast.metric("colour").delays == (0, 9000, 60_000)
    assert fast.metric("colour").window == 240_000
    assert fast.metric("delay").delays == (60_000, 120_000)
    assert fast.metric("delay").window == 1000
    assert {metric.panel for metric in fast.metrics} == {1}
    assert fast.minimum_reports == 1
    assert (fast.ceilings, fast.cost, fast.expires) == (
        weekly.ceilings,
        weekly.cost,
        weekly.expires,
    )
    assert [metric.mechanism for metric in fast.metrics] == [
        metric.mechanism for metric in weekly.metrics
    ]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parent.name)
def test_every_plan_that_is_shipped_has_one(path):
    fast = development_plan(load_plan(path).compile())
    assert CompiledPlan.from_json(fast.to_json()) == fast


def test_nothing_of_a_collector_takes_it_for_the_real_plan(weekly, tmp_path):
    fast = development_plan(weekly)
    assert fast.fingerprint not in ServedPlans([weekly]).fingerprints
    with pytest.raises(
        PlanError, match=r"collector 'fleet\.example\.development\.invalid' must be"
    ):
        Registry([weekly, fast])
    # Nor does the device of a user: its file belongs to the real collector.
    publisher = MemoryPublisher()
    with Client(weekly, state=tmp_path / "device.db", publisher=publisher) as client:
        client.give_consent()
    with pytest.raises(PlanError, match=r"pinned to 'fleet\.example'"):
        Client(fast, state=tmp_path / "device.db", publisher=publisher)


def test_an_aggregator_of_the_real_plan_counts_no_report_under_it(weekly):
    client = SeededClient(development_plan(weekly), seed=1)
    client.record("colour", "a")
    client.clock.advance(minutes=2)
    assert client.flush().sent == 1
    [(_, message)] = client.publisher.messages
    found = np.array([0]), np.array([len(message)]), np.array([client.clock.now])
    decoded = decode(message, *found, Registry([weekly]))
    assert [reject.reason for reject in decoded.rejects] == [Reason.UNKNOWN_PLAN]
    assert not decoded.batches


def test_there_is_none_of_a_development_plan(weekly):
    fast = development_plan(weekly)
    assert is_development(fast)
    assert not is_development(weekly)
    with pytest.raises(PlanError, match="already"):
        development_plan(fast)


def test_all_levels_are_sent_within_little_more_than_a_minute(weekly):
    client = SeededClient(development_plan(weekly), seed=1)
    client.record("colour", "a")
    levels = []
    for _ in range(62):
        client.clock.advance(seconds=1)
        client.flush()
        levels = [report.level for report in reported(client).of("colour")]
    assert levels == [1, 2, 3]


def test_the_command_writes_it_beside_the_plan(tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    path.write_text(WEEKLY)
    assert sotto_cli.main(["plan", "compile", "--development", str(path)]) == 0
    fast = CompiledPlan.from_file(tmp_path / "plan.dev.json")
    assert capsys.readouterr().out.strip() == fast.fingerprint_hex
    assert not (tmp_path / "plan.json").exists()
    assert (
        sotto_cli.main(["plan", "compile", "--development", str(tmp_path / "plan.dev.json")]) == 2
    )
    assert "development plan already" in capsys.readouterr().err
    assert json.loads(fast.to_json())["collector"].endswith(".invalid")
