"""What several commands are given means the same to all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from clientsdk.testing import small_plan
from sotto.kafka.brokers import Broker
from sotto.plan.files import plans_of
from sotto_cli import command_module, options

ELSE = {
    "aggregate": ["--topic", "reports-e1-p2", "--state", "s"],
    "requeue": ["--topic", "reports-e1-p2"],
    "sink": ["--topic", "reports-estimates", "--database", "sqlite:///x.db"],
    "topics": ["check", "reports-e1-p2"],
    "exporter": ["--topic", "reports-e1-p2", "--database", "sqlite:///x.db"],
    "stream": ["--state", "s", "--topic", "reports-e1-p2"],
}


def parsed(command, *words):
    """Return what a command makes of its arguments."""
    parser = argparse.ArgumentParser()
    command_module(command).add_arguments(parser)
    return parser.parse_args([*ELSE[command], *words])


def plans(command):
    return [] if command == "sink" else ["--plan", "a.yaml", "--plan", "b.json"]


@pytest.mark.parametrize("command", sorted(ELSE))
def test_brokers_are_named_or_described_in_a_file(command, tmp_path):
    file = tmp_path / "client.json"
    file.write_text('{"servers": "filed:9092"}')
    named = parsed(command, *plans(command), "--kafka", "named:9092")
    assert options.broker_of(named) == Broker("named:9092")
    filed = parsed(command, *plans(command), "--broker", str(file))
    assert options.broker_of(filed) == Broker("filed:9092")
    with pytest.raises(SystemExit):
        parsed(command, *plans(command), "--kafka", "named:9092", "--broker", str(file))


@pytest.mark.parametrize("command", sorted(ELSE.keys() - {"sink"}))
def test_plans_are_given_one_by_one(command):
    where = ["--broker", "client.json"]
    found = parsed(command, *where, *plans(command)).plan
    assert found == [Path("a.yaml"), Path("b.json")]
    if command in ("aggregate", "requeue", "stream"):
        assert parsed(command, *where).plan == []
    elif command != "exporter":
        with pytest.raises(SystemExit):
            parsed(command, *where)


def test_a_compiled_plan_has_no_candidates(tmp_path):
    (tmp_path / "plan.json").write_bytes(small_plan().to_json())
    found, candidates = plans_of([tmp_path / "plan.json"])
    assert found == [small_plan()]
    assert candidates == {small_plan().fingerprint: {}}
