"""Options that several commands have mean the same to all of them."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

import pytest
from waiting import wait_until

from clientsdk.testing import small_plan
from sotto.kafka.brokers import Broker
from sotto.plan.files import plans_of
from sotto_cli import command_module, command_parser, options

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


#: Options of one name that mean different things to different commands.
DIFFERENT = {"--out", "--segment", "--devices", "--experiment", "--mechanism"}


def options_of(parser, name=""):
    """Yield the command, flag, value and help of every option of a parser and those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, command in action.choices.items():
                yield from options_of(command, f"{name} {below}".strip())
        for flag in action.option_strings:
            yield name, flag, action.metavar, action.help


def test_an_option_takes_the_same_kind_of_value_in_all_commands():
    values = {}
    for _, flag, value, _ in options_of(command_parser()):
        values.setdefault(flag, set()).add(value)
    assert {flag for flag, each in values.items() if len(each) > 1} == DIFFERENT


def test_an_option_that_is_shared_is_declared_once():
    """Its text is in the table alone, and several commands have it."""
    users = {flag: set() for flag in options._SHARED}
    for name, flag, value, help in options_of(command_parser()):
        word, text, _ = options._SHARED.get(flag, ("", None, None))
        if text is not None and help.startswith(text):
            assert value == (word or None)
            users[flag].add(name)
    assert all(len(names) > 1 for names in users.values()), users


def test_an_interrupt_amid_a_wait_ends_it():
    with options.stopping() as stopped:
        # A wait has the event's lock when it begins and ends.
        with stopped._cond:
            signal.raise_signal(signal.SIGINT)
        assert stopped.wait(60)


def test_a_signal_that_interrupts_no_wait_ends_it():
    """Such as one that comes in the instant before the wait begins."""
    with options.stopping() as stopped:

        def interrupt():
            wait_until(lambda: stopped._cond._waiters)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        threading.Thread(target=interrupt).start()
        assert stopped.wait(60)
