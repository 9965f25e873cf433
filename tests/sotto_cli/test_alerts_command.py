"""``sotto alerts``: what is new is printed once, and the exit status says so."""

from __future__ import annotations

import json

import pytest
from moving_results import PLAN, MovingResults

import sotto_cli

JUMP = [(0.2, 0.02)] * 19 + [(0.5, 0.02)] * 2


@pytest.fixture
def results(tmp_path):
    found = MovingResults(tmp_path)
    found.write({"red": JUMP[:-2], "blue": [(0.7, 0.02)] * 19})
    (tmp_path / "plan.yaml").write_text(PLAN)
    return found


def command(results, *more):
    """Run the command on a database; return its exit status."""
    folder = results.folder
    where = [
        "--database",
        f"sqlite:///{folder / 'results.db'}",
        "--plan",
        f"{folder / 'plan.yaml'}",
    ]
    return sotto_cli.main(["alerts", *where, "--kept", str(folder / "alerts.json"), *more])


def test_a_new_alert_is_printed_once(results, capsys):
    assert command(results) == 0
    assert capsys.readouterr().out == "0 new alerts of 2 figures\n"
    results.write({"red": JUMP[-2:], "blue": [(0.7, 0.02)] * 2}, first=19)
    assert command(results) == 1
    out = capsys.readouterr().out
    assert "colour red rose from 20 % by 30 points (95 %:" in out
    assert "1 false alarm a year are expected of the 2 figures watched" in out
    assert out.endswith("1 new alert of 2 figures\n")
    assert command(results) == 0
    assert command(results, "--all", "--format", "json") == 0
    printed = capsys.readouterr().out
    (alert,) = json.loads(printed[printed.index("[") :])
    assert (alert["item"], alert["direction"]) == ("red", "up")


def test_what_is_watched_is_shown_and_nothing_is_kept(results, capsys):
    assert command(results, "--watched") == 0
    head, blue, red, *_ = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "figure"
    assert blue.startswith("colour blue")
    assert red.split()[:4] == ["colour", "red", "19", "0.2"]
    # The larger one is found within two windows.
    twice, four = map(float, red.split()[-2:])
    assert 0.02 < four < twice < 0.3
    assert not (results.folder / "alerts.json").exists()


def test_what_cannot_be_delivered_has_a_status_of_its_own(results, capsys, tmp_path):
    configuration = tmp_path / "alerts.yaml"
    configuration.write_text('notify: {webhook: {url: "http://127.0.0.1:9/none"}}')
    results.write({"red": JUMP[-2:], "blue": [(0.7, 0.02)] * 2}, first=19)
    assert command(results, "--alerts", str(configuration)) == 3
    errors = capsys.readouterr().err
    assert "1 message is not delivered and will be tried again: webhook: 127.0.0.1" in errors
    assert command(results, "--alerts", str(configuration)) == 3
