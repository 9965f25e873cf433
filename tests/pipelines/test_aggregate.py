"""The commands ``sotto aggregate`` and ``sotto estimates``."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_kafka import FakeCluster, install
from plan_texts import plan_head
from report_logs import START, Device, append, write
from waiting import wait_until

from pipelines.results.printed import EstimateChoice, table
from pipelines.sinks.base import SinkError
from pipelines.storage.directory import FullDiskError, StateDirectory
from sotto.errors import BrokerError
from sotto.plan.compile import load_plan
from sotto_cli import main
from sotto_cli.options import follow, say

pytestmark = pytest.mark.slow

PLAN = (
    plan_head("command", (20, 640), shards=2)
    + """\
  colour:
    {type: category, domain: [red, blue, green], outside: other, window: 7d, ladder: [{epsilon: 2}]}
  delay:
    {type: number, range: [0, 10], outside: clip, unit: min, mechanism: threshold, window: 7d,
     ladder: [{epsilon: 2}]}
  path:
    {type: string, bits: 64, hashes: 2, cohorts: 2, candidates: c.txt, window: 7d,
     ladder: [{epsilon: 8}]}
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("aggregate")
    (made / "plan.yaml").write_text(PLAN)
    (made / "c.txt").write_text("home\naway\n")
    write(made / "log", sent(made, 300, 41))
    assert main(["aggregate", *arguments(made)]) == 0
    return made


def arguments(folder: Path) -> list[str]:
    names = {"--plan": "plan.yaml", "--log": "log", "--state": "state"}
    return [text for name, value in names.items() for text in (name, str(folder / value))]


def sent(folder: Path, devices: int, seed: int) -> list[object]:
    plan, source = load_plan(folder / "plan.yaml").compile(), random.Random(seed)
    made: list[object] = []
    for _ in range(devices):
        device = Device(plan, source)
        for metric in plan.metrics:
            made += device.chain(metric, START + source.randrange(86_400_000))
    return made


def test_a_run_says_what_it_came_to(folder, tmp_path, capsys):
    given = ["aggregate", *arguments(folder)[:4], "--state", str(tmp_path / "state")]
    assert main(given) == 0
    out, error = capsys.readouterr()
    assert out.startswith("generation 1: 900 reports, ")
    assert "900  counted" in out
    assert main(given) == 0
    assert capsys.readouterr().out == "generation 1: nothing new in the log\n"
    assert error == ""
    assert main([*given, "--state", str(tmp_path / "new"), "--as-of", "1999-01-01"]) == 0
    nothing = "nothing new up to 1999-01-01: --as-of leaves out what is later"
    assert capsys.readouterr().out == f"generation 0: {nothing}\n"


def test_estimates_are_printed_for_people(folder, capsys):
    assert main(["estimates", "--state", str(folder / "state")]) == 0
    shown = capsys.readouterr().out
    assert "colour, 2023-08-31 to 2023-09-07 (command version 1, revision 1)" in shown
    assert "  green" in shown
    assert "mean (min)" in shown
    assert "string home" in shown
    assert "string away" not in shown
    assert "cdf" not in shown
    assert main(["estimates", "--state", str(folder / "state"), "--all"]) == 0
    assert "string away" in capsys.readouterr().out


def test_estimates_are_printed_for_programs(folder, capsys):
    common = ["estimates", "--state", str(folder / "state"), "--metric", "colour"]
    assert main([*common, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["item"] for row in rows] == ["red", "blue", "green", "other"]
    assert {row["reports"] for row in rows} == {300}
    assert main([*common, "--format", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(line["value"]) for line in lines] == [row["value"] for row in rows]
    assert lines[0]["reports_by_level"] == "[300]"


def test_windows_are_found_by_time(folder, capsys):
    common = ["estimates", "--state", str(folder / "state"), "--window"]
    assert main([*common, "2023-09-06T23:59Z"]) == 0
    assert "colour" in capsys.readouterr().out
    assert main([*common, "2023-09-07"]) == 2
    assert "contains 2023-09-07; the first begins at 2023-08-31, the" in capsys.readouterr().err


def test_a_time_before_what_is_counted_is_refused(folder, capsys):
    assert main(["aggregate", *arguments(folder), "--as-of", "1999-01-01"]) == 2
    assert "as of 1999-01-01 00:00 is before 20" in capsys.readouterr().err


def test_a_time_to_come_leaves_out_all_that_is_there(folder, capsys):
    assert main(["aggregate", *arguments(folder), "--log", "nowhere", "--since", "2090-01-01"]) == 2
    assert "warning: --since is after now" in capsys.readouterr().err


def shown(*rows: dict[str, object], everything: bool = False) -> list[str]:
    blank = dict.fromkeys(EstimateChoice().columns)
    given = {"metric": "m", "kind": "mean", "item": "", "plan": "p", "version": 1, "revision": 3}
    times = {"window_start": "1970-01-01T00:00:00.000Z", "window_end": "1970-01-02T06:00:00.000Z"}
    usual = {"method": "unbiased", "biased": False}
    return table([blank | given | times | usual | row for row in rows], everything=everything)


def test_what_is_not_determined_is_left_blank():
    lines = shown({"reports": 0})
    assert lines[0] == "m, 1970-01-01 to 1970-01-02 06:00 (p version 1, revision 3)"
    assert lines[2].split() == ["mean", "0"]
    assert "method" not in lines[1]


def test_what_is_not_unbiased_is_said():
    share = {"kind": "share", "reports": 7, "value": 0.5}
    lines = shown(share | {"item": "a", "method": "em"}, share | {"item": "b"})
    assert lines[1].split()[-1] == "method"
    assert lines[2].split() == ["a", "0.5", "7", "em"]
    assert lines[3].split() == ["b", "0.5", "7"]


def test_a_mean_that_cannot_be_is_shown_as_the_nearest_that_can():
    mean = {"reports": 25, "value": 12_712.3, "shown": 5000.0}
    lines = shown(mean, mean | {"item": "1", "value": 4100.0, "shown": 4100.0})
    assert " ".join(lines[2].split()) == "mean 12,712 5,000 25 by chance outside the range"
    assert lines[3].split() == ["mean", "1", "4,100", "4,100", "25"]


def test_what_is_withheld_within_a_window_is_said_in_its_row():
    why = "7 reports, the plan asks for 20"
    few = {"item": "2", "reports": 7, "withheld": why}
    lines = shown({"item": "1", "reports": 25, "value": 0.5}, few, everything=True)
    assert lines[2].split() == ["mean", "1", "0.5", "25"]
    assert lines[3].split(maxsplit=3) == ["mean", "2", "7", f"withheld: {why}"]
    assert shown(few, few | {"kind": "string", "metric": "s"})[1:] == [f"  withheld: {why}", ""]


@pytest.mark.real_randomness
def test_a_plan_that_is_put_into_the_folder_needs_no_restart(folder, tmp_path):
    log, state, plans = tmp_path / "log", tmp_path / "state", tmp_path / "plans"
    plans.mkdir()
    (tmp_path / "c.txt").write_text("home\n")
    second = tmp_path / "second.yaml"
    second.write_text(PLAN.replace("version: 1", "version: 2"))
    compiled = load_plan(second).compile()
    second.write_text(second.read_text().replace("c.txt", "../c.txt"))
    write(log, sent(folder, 1, 49), lanes=1)
    place = [*arguments(folder)[:2], "--plans", plans, "--log", log, "--state", state]
    command = [sys.executable, "-m", "sotto", "aggregate", *map(str, place)]
    with subprocess.Popen(
        [*command, "--follow", "--every", "50ms"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith("generation 1: 3 reports")
        (plans / "broken.yaml").write_text("metrics: [")
        assert "broken.yaml is left out: " in process.stderr.readline()
        second.replace(plans / "second.yaml")
        kept = StateDirectory(state).plans.path(compiled.fingerprint_hex)
        wait_until(kept.exists)
        device = Device(compiled, random.Random(50))
        append(log, device.chain(compiled.metrics[0], START))
        lines = iter(process.stdout.readline, "")
        assert next(line for line in lines if line.startswith("generation 2: 1 reports"))
        assert next(lines).split() == ["1", "counted"]
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("kind", [SinkError, FullDiskError])
def test_following_tries_again_what_may_pass(kind, capsys, monkeypatch):
    stopped, rounds = threading.Event(), iter([False, True])

    def once() -> None:
        if not next(rounds):
            raise kind("locked")
        stopped.set()

    follow(once, stopped, 0.01)
    assert capsys.readouterr().err == "sotto: error: locked; trying again\n"
    # Standard error may lie on the disk that is full.
    monkeypatch.setattr("builtins.print", lambda *_, **__: os.write(-1, b""))
    say("locked")


def without_log(folder: Path) -> list[str]:
    return [*arguments(folder)[:2], *arguments(folder)[4:]]


def test_a_broker_that_is_not_there_is_told_in_one_line(folder, capsys):
    given = ["--kafka", "127.0.0.1:9", "--topic", "r-e1-p1"]
    assert main(["aggregate", *without_log(folder), *given]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sotto: error: ")
    assert "is the broker running" in error
    assert error.count("\n") == 1


def test_a_topic_is_followed_through_failures_of_its_broker(folder, tmp_path, capsys, monkeypatch):
    """It is tried again, but for what is wrong from the start."""
    cluster = FakeCluster("reports-e1-p1")
    install(monkeypatch, cluster)
    reports = sent(folder, 3, 45)
    cluster.partition(0).append(reports[0].append, reports[0].message)
    seen: list[str] = []
    real = FakeCluster.check

    def check(self: FakeCluster, wanted: object, horizon: int, **how: bool) -> object:
        seen.append("looked")
        if len(seen) == 2:
            raise BrokerError("it has gone")
        if len(seen) == 3:
            for one in reports[1:]:
                cluster.partition(0).append(reports[0].append, one.message)
        if len(seen) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, wanted, horizon, **how)

    monkeypatch.setattr(FakeCluster, "check", check)
    given = ["--kafka", "localhost:9092", "--topic", "reports-e1-p1", "--follow", "--every", "1s"]
    place = [*arguments(folder)[:2], "--state", str(tmp_path / "state")]
    assert main(["aggregate", *place, *given]) == 0
    out, error = capsys.readouterr()
    assert "generation 1: 1 reports, 1 messages, 1 runs" in out
    assert f"generation 2: {len(reports) - 1} reports, {len(reports) - 1} messages" in out
    assert error == "sotto: error: it has gone; trying again\n"
    seen[:] = ["looked"]
    assert main(["aggregate", *place, *given]) == 2
    assert capsys.readouterr().err == "sotto: error: it has gone\n"
