"""Segments in the commands: a table is played back with them, and estimates are shown by them."""

from __future__ import annotations

import json

import pytest
from log_records import records_of
from plan_texts import plan_head

from sotto.plan.compile import parse_plan
from sotto.plan.segments import cell_label
from sotto.wire.format import decode_message
from sotto_cli import main

PLAN = plan_head(
    "replayed",
    (33, 900),
    collector="test.example",
    minimum_reports=2,
    # A run rejects what a device has not signed.
    authentication="required",
    segments='{os: [linux, mac], app: ["1", "2"]}',
)
PLAN += """\
  colour: {type: category, domain: [red], outside: other, window: 7d, ladder: [{epsilon: 9}]}
"""
DEVICES = [("linux", "1")] * 3 + [("mac", "2")] * 4 + [("beos", "1")] * 2 + [("", "7")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(PLAN)
    rows = (f"d{at},2025-06-02T00:00:00Z,red,{','.join(of)}\n" for at, of in enumerate(DEVICES))
    (tmp_path / "t.csv").write_text("who,when,colour,platform,app_version\n" + "".join(rows))
    return tmp_path


def replay(*more):
    table = ["--input", "t.csv", "--device-column", "who", "--time-column", "when"]
    return main(
        ["replay", "--plan", "plan.yaml", *table, "--out", "log", "--processes", "1", *more]
    )


@pytest.mark.slow
def test_a_table_is_played_back_and_shown_by_segment(folder, capsys):
    assert replay("--segment", "os=platform", "--segment", "app=app_version") == 0
    attributes = parse_plan(PLAN).compile().attributes
    sent = [decode_message(record.body) for record in records_of(folder / "log")]
    cells = [cell_label(attributes, message.cell) for message in sent]
    assert sorted(cells) == sorted(
        f"os={os if os in ('linux', 'mac') else 'other'},app={app if app in '12' else 'other'}"
        for os, app in DEVICES
    )
    main(["aggregate", "--plan", "plan.yaml", "--log", "log", "--state", "state"])
    capsys.readouterr()

    def shown(*more):
        assert main(["estimates", "--state", "state", "--format", "json", *more]) == 0
        return {row["segment"]: row["reports"] for row in json.loads(capsys.readouterr().out)}

    assert shown() == {"": 10}
    by_os = {"os=linux": 3, "os=mac": 4, "os=other": 3, "os=mac or other": 7}
    assert shown("--by", "os") == by_os
    # Combinations that no device has sent, such as mac and 1, have no row.
    by_both = {"os=linux,app=1": 3, "os=mac,app=2": 4, "os=other,app=1": 2, "os=other,app=other": 1}
    assert shown("--by", "app,os") == shown("--by", "os,app") == by_both
    assert shown("--segment", "app=1,os=linux") == {"os=linux,app=1": 3}
    assert main(["estimates", "--state", "state", "--by", "browser"]) == 2
    assert "there are results by app, or by os, or by os,app" in capsys.readouterr().err
    assert main(["estimates", "--state", "state", "--segment", "os=beos"]) == 2
    wanted = "no results of 'os=beos'; there are os=linux, os=mac, os=mac or other, os=other"
    assert wanted in capsys.readouterr().err
    assert main(["estimates", "--state", "state", "--collector", "a.example"]) == 2
    assert "the collector 'a.example'; did you mean 'test.example'?" in capsys.readouterr().err
    assert main(["estimates", "--state", "state", "--segment", "os=mac"]) == 0
    assert "colour [os=mac], 2025-05-29" in capsys.readouterr().out


def test_a_segment_of_a_column_that_is_not_there_is_refused(folder, capsys):
    assert replay("--segment", "os=nothing") == 2
    assert "no column 'nothing'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_segment_without_a_column_is_warned_of(folder, capsys):
    assert replay("--segment", "os=platform") == 0
    warned = capsys.readouterr().err
    assert "no column for the segment 'app': all devices will be 'other'" in warned
    assert "the segment 'os'" not in warned


def test_plan_check_and_design_say_what_segments_show_and_tell(folder, capsys):
    assert main(["plan", "check", "plan.yaml"]) == 0
    printed = capsys.readouterr()
    text = " ".join(printed.out.split())
    assert "os (linux, mac, other) x app (1, 2, other): 9 cells, sent in the clear" in text
    assert "by at most 3.2 bits (log2 of 9) on average over devices" in text
    assert "segments:" not in printed.err
    trial = (
        "experiment: {name: trial, arms: [a, b], decision: "
        "{metric: colour, start: 2026-01-01, end: 2026-12-30, looks: 2}}\nmetrics:\n"
        "  page: {type: string, window: 28d, ladder: [{epsilon: 2}]}\n"
    )
    (folder / "trial.yaml").write_text(PLAN.replace("metrics:\n", trial) + "\n")
    assert main(["plan", "check", "trial.yaml"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "at 2 looks until a planned end: 2026-07-02, 2026-12-31." in text
    assert "Arms are not compared by page: several strings set the same bit" in text
    many = PLAN.replace('app: ["1", "2"]', 'app: ["1", "2", "3", "4", "5"]')
    (folder / "many.yaml").write_text(many + "\n")
    assert main(["plan", "check", "--strict", "many.yaml"]) == 1
    assert "18 cells can single out a device" in capsys.readouterr().err
    assert main(["design", "plan.yaml", "--users", "9000", "--format=json"]) == 0
    (metric,) = json.loads(capsys.readouterr().out)["metrics"]
    rows = {row["of"]: row for row in metric["segments"]}
    assert {name: (row["slices"], row["fewest"]) for name, row in rows.items()} == {
        "os": (3, 3000),
        "app": (3, 3000),
        "os,app": (9, 1000),
    }
    whole = metric["levels"][-1]["error"]
    assert rows["os,app"]["largest_error"] == pytest.approx(3 * whole, rel=0.01)
