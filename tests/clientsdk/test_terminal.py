"""A tool asks at a terminal alone, once for each document of the plan, and defaults to no."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from unittest.mock import Mock

import pytest
from device_plans import metric, plan, threadless

from clientsdk import Client, Outcome, Settings, TelemetryAction, ask, telemetry
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan

PLAN = plan(metric("colour", "every", 6, description="Which colour you like"))
LATER = dataclasses.replace(PLAN, purpose="To sell it")
GROUPED = plan(
    metric("colour", group="look"), metric("shape", group="use"), groups={"look": "L", "use": "U"}
)


class Terminal(io.StringIO):
    """A stream of a terminal, or of a file."""

    def __init__(self, text: str = "", terminal: bool = True) -> None:
        super().__init__(text)
        self.terminal = terminal

    def isatty(self) -> bool:
        return not self.closed and self.terminal


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """One run of a tool: what the person was shown, what ``ask`` returned, how a value fared."""

    def run(typed="", document=PLAN, stdin=True, stderr=True, state=tmp_path / "device.db", **more):
        shown = Terminal(terminal=stderr)
        monkeypatch.setattr(sys, "stdin", Terminal(typed, stdin))
        monkeypatch.setattr(sys, "stderr", shown)
        with client_of(state, document, **more) as client:
            agreed = ask(client)
            outcomes = [client.record(each.name, "a") for each in document.metrics]
        return shown.getvalue(), agreed, *outcomes

    return run


def client_of(state, document=PLAN, **options) -> Client:
    return threadless(CompiledPlan.from_json(document.to_json()), state=state, **options)


@pytest.mark.parametrize("typed", ["y\n", "Yes\n", " YES"])
def test_a_yes_is_asked_for_with_the_plans_texts_and_remembered(tool, typed):
    shown, agreed, outcome = tool(typed)
    assert "Which colour you like" in shown
    assert PLAN.collector in shown
    assert shown.endswith("Do you agree? [y/N] ")
    assert agreed
    assert outcome is Outcome.ACCEPTED
    # Also where there is no terminal.
    assert tool(stdin=False, stderr=False) == ("", True, Outcome.ACCEPTED)


@pytest.mark.parametrize("typed", ["\n", "n\n", "no\n", "yep\n", "ye s\n"])
def test_anything_else_is_no_and_remembered(tool, typed):
    assert tool(typed)[1:] == (False, Outcome.NO_CONSENT)
    assert tool("y\n") == ("", False, Outcome.NO_CONSENT)


@pytest.mark.parametrize("terminals", [{"stdin": False}, {"stderr": False}])
def test_nobody_is_asked_but_at_a_terminal(tool, terminals, tmp_path):
    assert tool("y\n", **terminals) == ("", False, Outcome.NO_CONSENT)
    assert not (tmp_path / "device.db-asked").exists()
    assert tool("y\n")[1]


@pytest.mark.parametrize("name", ["stdin", "stderr"])
def test_nor_where_there_is_no_stream_or_a_closed_one(tmp_path, monkeypatch, name):
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setattr(sys, name, stream)
        with client_of(tmp_path / "device.db") as client:
            assert not ask(client)


@pytest.mark.skipif(not hasattr(os, "tcgetpgrp"), reason="Windows has no jobs")
def test_a_job_in_the_background_does_not_ask_which_would_stop_it(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(Terminal, "fileno", lambda terminal: 0)
    monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + 1)
    assert tool("y\n") == ("", False, Outcome.NO_CONSENT)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp())
    assert tool("y\n")[1:] == (True, Outcome.ACCEPTED)


def test_the_end_of_the_input_and_an_interrupt_are_no_answer(tool, monkeypatch):
    assert tool("")[1:] == (False, Outcome.NO_CONSENT)
    with monkeypatch.context() as patched:
        patched.setattr(Terminal, "readline", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tool("y\n")
    assert tool("y\n")[1:] == (True, Outcome.ACCEPTED)


@pytest.mark.parametrize("first", ["y\n", "n\n"])
def test_another_document_is_asked_for_again_and_nothing_recorded_before_the_answer(tool, first):
    tool(first)
    assert tool(document=LATER, stdin=False)[1:] == (False, Outcome.NO_CONSENT)
    shown, *said = tool("y\n", document=LATER)
    assert "To sell it" in shown
    assert said == [True, Outcome.ACCEPTED]
    assert tool(document=LATER)[1:] == (True, Outcome.ACCEPTED)


def test_a_client_that_waits_for_an_answer_records_once_consent_is_given(tool, tmp_path):
    tool("y\n")
    with client_of(tmp_path / "device.db", LATER) as client:
        ask(client)
        assert client.record("colour", "a") is Outcome.NO_CONSENT
        assert client.give_consent()
        assert client.record("colour", "a") is Outcome.ACCEPTED


def test_a_yes_to_an_earlier_document_elsewhere_is_no_answer_here(tmp_path, monkeypatch):
    """The client that asks has opened no file yet, since nobody had agreed to anything."""
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    state = tmp_path / "device.db"
    with client_of(state, LATER) as waiting:
        assert not ask(waiting)
        with client_of(state) as earlier:
            assert earlier.give_consent()
        assert waiting.consented
        assert waiting.record("colour", "a") is Outcome.NO_CONSENT
        assert waiting.renew_consent()
        assert waiting.record("colour", "a") is Outcome.ACCEPTED


def test_each_group_has_a_question(tool, tmp_path):
    shown, *said = tool("n\ny\n", document=GROUPED)
    assert "'look'? [y/N]" in shown
    assert said == [True, Outcome.NO_CONSENT, Outcome.ACCEPTED]
    assert tool(document=GROUPED)[0] == ""
    later = dataclasses.replace(GROUPED, purpose="To sell it")
    assert tool("y\nn\n", document=later)[1:] == (True, Outcome.ACCEPTED, Outcome.NO_CONSENT)
    assert tool("\n\n", document=GROUPED)[1:] == (False, *[Outcome.NO_CONSENT] * 2)


def test_switched_off_or_without_a_place_for_the_answer_nobody_is_asked(tool, tmp_path):
    off = tool("y\n", settings=Settings(disabled=True))
    assert off == ("", False, Outcome.DISABLED)
    (tmp_path / "device.db-asked").mkdir()
    assert tool("y\n") == ("", False, Outcome.NO_CONSENT)


def test_the_command_switches_on_and_off_and_says_which_holds(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal(terminal=False))
    state = tmp_path / "device.db"
    with client_of(state) as client:
        assert telemetry(client, "status") == "Telemetry is off: you have not been asked."
        client.give_consent()
        assert telemetry(client, "status") == "Telemetry is on: you have agreed."
        assert not ask(client), "without a terminal the question stays open"
        assert telemetry(client, "status").startswith("Telemetry waits for your answer")
        said = telemetry(client, TelemetryAction.ON)
        assert said.startswith("Telemetry is on: you have agreed.\n\n")
        assert "Which colour you like" in said
    assert tool() == ("", True, Outcome.ACCEPTED)
    with client_of(state) as client:
        shown = telemetry(client, "show")
        assert "Which colour you like" in shown
        assert "randomized answer" in shown
        assert "is spent" in shown
    with client_of(state, LATER) as client:
        assert "has changed since you agreed" in telemetry(client, "status")
        assert telemetry(client, "off") == "Telemetry is off: it has no consent."
        assert client.ledger().pending == ()
    assert tool("y\n", document=LATER)[0] == ""


def test_where_telemetry_is_switched_off_the_command_says_by_what(tool, tmp_path, monkeypatch):
    tool("y\n")
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    why = "Telemetry is off: the SDK is switched off (DO_NOT_TRACK)."
    with client_of(tmp_path / "device.db") as client:
        assert telemetry(client, "status") == why
        for action in ("on", "show"):
            said = telemetry(client, action)
            assert said.startswith(f"{why}\n\n")
            assert "Which colour you like" in said
        telemetry(client, "off")
    monkeypatch.delenv("DO_NOT_TRACK")
    assert tool("y\n") == ("", False, Outcome.NO_CONSENT)


def test_a_tool_without_a_readable_plan_says_so(tmp_path):
    client = Client.open(b"{}", state=tmp_path / "device.db", publisher="https://a.example")
    said = {telemetry(client, action).partition(";")[0] for action in TelemetryAction}
    assert said == {"Telemetry is off: the plan is not a compiled plan"}


def test_what_makes_no_sense_is_refused(tmp_path):
    with client_of(tmp_path / "device.db") as client:
        with pytest.raises(ParameterError, match="action"):
            telemetry(client, "of")
        with pytest.raises(ParameterError, match="client"):
            telemetry(None, "on")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="client"):
        ask("device.db")  # type: ignore[arg-type]
