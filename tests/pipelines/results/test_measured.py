"""Devices that measure, from their first use to conversions and retention in the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgi_client import get
from device_plans import WEEK
from fastapi import FastAPI
from plan_texts import plan_head
from report_logs import Sent, write
from step_plans import HOUR

import sotto_cli
from clientsdk.testing import FakeClock, SeededClient
from pipelines.bounded.run import aggregate
from pipelines.results.api import create_router
from pipelines.results.ordinals import metrics_of, of_range
from pipelines.results.range_windows import WindowRange, runs_of
from pipelines.results.ranges import parts_of
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.retention import retention_of
from pipelines.web.metric import retention, shares
from pipelines.web.rendering import Anchors, static_file
from pipelines.web.snapshot import ResultsSnapshot
from pipelines.web.views import MetricView, headlines, name_of
from sotto.plan.compile import parse_plan

START = 2800 * WEEK
#: At these epsilons hardly any answer is another than the truth.
LAST = "{epsilon: 14}"
REST = f"stored: true, window: 7d, ladder: [{LAST}]"
METRICS = f"""\
  age: {{type: ordinal, measure: {{age: 7d, up_to: 3}}, {REST}}}
  checkout: {{type: ordinal, measure: {{furthest: [cart, paid]}}, {REST}}}
  exports: {{type: ordinal, edges: [0, 1, 2], measure: {{count: export}}, {REST}}}
  opened: {{type: boolean, measure: {{used: open}}, window: 7d, ladder: [{LAST}, {{epsilon: 15}}]}}
"""
HEAD = plan_head("measured", (60, 6000), shards=1, minimum_reports=1)
SPLIT = HEAD.replace("metrics:", "segments: {os: [linux, mac]}\nmetrics:")
PLAN = parse_plan(SPLIT + METRICS).compile()
DEVICES, WEEKS = 60, 4
SEGMENTS = {"", "os=linux", "os=mac"}


def lives() -> list[Sent]:
    """Return what 60 devices send: all in a week, and of these half, a third, none of the next."""
    sent = []
    for number in range(DEVICES):
        clock = FakeClock(START + HOUR)
        client = SeededClient(
            PLAN, seed=number, clock=clock, segments={"os": "linux" if number % 2 else "mac"}
        )
        for week in range(WEEKS):
            clock.now = START + week * WEEK + HOUR
            if number < DEVICES // (week + 1) and week < 3:
                client.flush()
                client.reach("checkout", ("none", "cart", "paid")[number % 3])
                client.count("export", number % 3)
                client.count("open", number % 2)
            clock.now += 3 * HOUR
            if week == 3 or number < DEVICES // (week + 1):
                client.flush()
                sent += [Sent(clock.now, data) for _, data in client.publisher.messages]
                client.publisher.messages.clear()
    return sent


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    aggregate(write(folder / "log", lives()), folder / "state", [PLAN])
    return folder / "state"


@pytest.fixture
def reader(results: Path) -> Iterator[ResultsReader]:
    with ResultsReader.of_state(results) as opened:
        yield opened


def test_reports_of_a_level_that_is_withheld_count_in_retention(reader: ResultsReader) -> None:
    """Estimates of a segment in the first week are made of two thirds of its reports.

    Half of these were new, by as little noise as there is: which half of the others is chance.
    """
    asked = Chosen(metric="age")
    plans, windows, rows = reader.plans(), reader.windows(asked), reader.estimates(asked)
    at = windows[0].window_start, "os=linux"
    for number, row in enumerate(rows):
        if (row.window_start, row.segment) == at:
            half = row.value and row.value / 2
            rows[number] = replace(row, value=half, reports=20, reports_by_level=(20,))
    found = retention_of(plans, rows, windows)
    [rate] = [each for each in found if (each.since, each.segment) == at and each.age == 1]
    assert (rate.value, rate.low, rate.high) == pytest.approx((1, 0.8, 1.34), abs=0.05)
    [linux, _] = parts_of(runs_of(WindowRange("age", by="os"), windows, plans), rows)
    assert linux.items["retention", "1"].drawn.value == pytest.approx(1, abs=0.05)


def test_who_came_back_says_how_far_and_how_often(reader: ResultsReader) -> None:
    rows = {
        (row.metric, row.kind, row.item): row.value
        for row in reader.estimates()
        if row.window_start.timestamp() == START / 1000 and not row.segment
    }
    assert rows["checkout", "conversion", "cart"] == pytest.approx(2 / 3, abs=0.05)
    assert rows["checkout", "conversion", "paid"] == pytest.approx(1 / 2, abs=0.05)
    assert rows["exports", "share", "2 or more"] == pytest.approx(1 / 3, abs=0.05)
    assert rows["opened", "share", "true"] == pytest.approx(1 / 2, abs=0.05)


def test_the_command_prints_retention(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["estimates", "--state", str(results), "--returning"]
    assert sotto_cli.main(command) == 0
    said = capsys.readouterr().out
    assert "came again" in said
    assert "os=linux" in said
    assert sotto_cli.main([*command, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    first = next(row for row in rows if (row["segment"], row["age"]) == ("", 1))
    assert first["metric"] == "age"
    assert first["low"] < 0.5 < first["high"]


def test_the_interface_answers_retention(reader: ResultsReader) -> None:
    app = FastAPI()
    app.include_router(create_router(reader))
    query = {"metric": "age", "segment": "os=linux"}
    first, *more = get(app, "/api/v1/retention", query).json()["retention"]
    assert (first["age"], first["since"]) == (1, "2023-08-31T00:00:00.000Z")
    assert first["low"] < 0.5 < first["high"]
    assert {each["segment"] for each in more} == {"os=linux"}
    assert get(app, "/api/v1/retention", {"metric": "exports"}).json()["retention"] == []
    assert get(app, "/api/v1/retention", {"limit": 1}).status == 422
    rows = get(app, "/api/v1/ranges", {"metric": "age", "by": "os"}).json()["ranges"]
    pooled = [row for row in rows if row["kind"] == "retention"]
    named = sorted((row["segment"], row["item"]) for row in pooled)
    assert named == [(segment, age) for segment in ("os=linux", "os=mac") for age in "12"]
    for row in pooled:
        assert row["value"] == pytest.approx(1 / (int(row["item"]) + 1), abs=0.05)
        assert row["low"] < row["value"] < row["high"]


def test_ranges_have_what_people_ask_and_no_mean_of_ranks(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"exports": "at least one", "checkout": "reached paid", "age": "mean (× 7 days, count"}
    for metric, name in names.items():
        for more in (["--to", "2099-01-01"], ["--segment", "os=mac", "--compare", "os=linux"]):
            command = ["estimates", "--state", str(results), "--metric", metric, *more]
            for everything in (False, True):
                assert sotto_cli.main([*command, *["--all"] * everything]) == 0
                said = capsys.readouterr().out
                assert (name in said, "rank" in said) == (True, everything and metric != "age")


def test_of_two_shares_beyond_a_bin_each_is_what_the_share_up_to_it_leaves(
    reader: ResultsReader,
) -> None:
    mac, linux = (WindowRange("exports", segment=f"os={each}") for each in ("mac", "linux"))
    rows = reader.compared(mac, linux)
    # A version whose plan is not known is asked nothing.
    others = [replace(row, **of) for row in rows for of in ({"version": 2}, {"kind": "group"})]
    shown = of_range([*others, *rows], metrics_of(reader.plans()).get)
    found = {(row.kind, row.item): row for row in shown}
    up_to, more, rank = found["cdf", "0"], found["beyond", "0"], found["mean", ""]
    assert (more.value, more.against, rank.version) == (1 - up_to.value, 1 - up_to.against, 2)
    assert {row.version for row in shown if row.kind == "share"} == {2}
    assert (more.difference, more.low, more.high) == (-up_to.difference, -up_to.high, -up_to.low)


def test_nothing_is_said_where_nothing_is_known(reader: ResultsReader) -> None:
    plans, rows, windows = reader.plans(), reader.estimates(), reader.windows()
    none = [replace(row, value=0.0) if row.item == "0" else row for row in rows]
    assert {each.value for each in retention_of(plans, none, windows) if each.age == 1} == {None}
    withheld = [replace(row, value=None, standard_error=None) for row in rows]
    assert list(retention_of(plans, withheld, windows)) == []
    # The last age is open: who comes at it may be of any earlier week.
    last = max(row.window_start for row in rows)
    fourth = [
        replace(row, window_start=last + timedelta(days=7))
        for row in rows
        if row.window_start == last
    ]
    found = retention_of(plans, [*rows, *fourth], windows)
    assert {each.age for each in found} == {1, 2}


def test_the_page_of_ages_says_who_came_again(results: Path, reader: ResultsReader) -> None:
    """60 devices were new in the first week; 30 of them had a second and 20 a third."""
    snapshot = ResultsSnapshot(reader, reader.revision(), results)
    [key] = (each for each in snapshot.newest if each.metric == "age")
    shown: dict[int, Any] = {}
    for window in snapshot.windows(key):
        view = MetricView(snapshot, Anchors(), key=key, shown=window)
        week = (window.window_start.timestamp() * 1000 - START) // WEEK
        shown[week] = retention(view)
    page = static_file(snapshot)
    assert shown[0] is None
    assert [rate.value for rate in shown[1]["rates"]] == pytest.approx([1 / 2], abs=0.01)
    # Nobody was new in the second week.
    old = shown[2]["rates"]
    assert [rate.age for rate in old] == [1, 2]
    assert old[0].value is None
    assert old[1].value == pytest.approx(1 / 3, abs=0.01)
    [_, charted] = shown[2]["chart"].table()
    assert charted["low"] < charted["value"] < charted["high"]
    assert "Who came again" in page
    # All others are answered after the period.
    assert page.count("came back in time") == len(snapshot.newest) - 1


def test_pages_begin_with_what_people_ask_of_measures(results: Path, reader: ResultsReader) -> None:
    """They have no mean of ranks: of 60 devices 40 exported, 20 paid, and none was old."""
    expected = {
        "age": ("mean", "", "mean", 0.0, "× 7 days, counted to 3"),
        "checkout": ("reached", "paid", "reached paid", 1 / 3, "share"),
        "exports": ("beyond", "0", "at least one", 2 / 3, "share"),
        "opened": ("share", "true", "true", 1 / 2, "share"),
    }
    snapshot = ResultsSnapshot(reader, reader.revision(), results)
    assert set(snapshot.headlines) == set(snapshot.newest)
    for key in snapshot.newest:
        kind, item, name, value, unit = expected[key.metric]
        windows = snapshot.windows(key)
        view = MetricView(snapshot, Anchors(), key=key, shown=windows[0])
        (row,) = view.headlines
        assert (row.kind, row.item, name_of(row), row.unit) == (kind, item, name, unit)
        assert row.value == pytest.approx(value, abs=0.01)
        assert row.low < row.value < row.high
        assert row.forged_down >= 0 <= row.forged_up
        if key.metric == "checkout":
            steps = [(each["name"], each["value"]) for each in shares(view)["chart"].table()]
            assert [name for name, _ in steps] == ["reached cart", "reached paid"]
            assert [each for _, each in steps] == pytest.approx([2 / 3, 1 / 3], abs=0.02)
        card, *others = headlines(snapshot.headlines[key])
        assert (card.kind, card.item) == (kind, item)
        assert card not in others
        course = snapshot.history(key, [(kind, item)], windows)
        assert course[kind, item, ""][row.window_start] == row
        assert snapshot.courses([row], 1) == [row]
        assert {each.segment for each in view.all_rows if each.kind == kind} == SEGMENTS
