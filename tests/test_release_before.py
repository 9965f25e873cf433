"""Everything that the release before has written is read: plans, reports, devices, results.

A test here fails where this version refuses or loses it. Then this version has to read it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import release_before as before
import sqlalchemy as sql

from clientsdk import MemoryPublisher, Outcome
from clientsdk.ledger import read_file
from clientsdk.preview import preview_file
from clientsdk.testing import FakeClock, SeededClient
from pipelines.bounded.run import RunResult, aggregate
from pipelines.results.documents import parse
from pipelines.results.reader import ResultsReader
from pipelines.sinks.base import Advance, ReadTopic
from pipelines.sinks.sql import SqlSink
from pipelines.sources.frozen import FrozenLog
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.directory import StateDirectory
from sotto.errors import PlanError
from sotto.log.writer import LogWriter
from sotto.plan.compile import load_plan, parse_plan
from sotto_cli import main

pytestmark = pytest.mark.slow

#: Metrics whose text compiles to another mechanism than in 0.4.0, by plan, and why. Devices then
#: do something else, so that the plan needs a new version.
CHOSEN_ANEW = {
    ("chosen", "top_item"): "top_response is the default: its estimates are unbiased",
    ("fleet", "screen"): "top_response is the default: its estimates are unbiased",
}


@pytest.mark.parametrize("name", before.names())
def test_a_compiled_plan_keeps_its_fingerprint(name: str) -> None:
    assert before.compiled(name).fingerprint_hex == before.fingerprints()[name]


@pytest.mark.parametrize("name", before.names())
def test_the_text_of_a_plan_compiles_to_what_devices_have(name: str) -> None:
    old, new = before.compiled(name), load_plan(before.text(name)).compile()
    anew = {metric for plan, metric in CHOSEN_ANEW if plan == name}
    if not anew:
        assert new.to_json() == old.to_json()
        return
    assert [metric.name for metric in new.metrics] == [metric.name for metric in old.metrics]
    for was, metric in zip(old.metrics, new.metrics, strict=True):
        if metric.name not in anew:
            assert metric.document() == was.document()
    assert {**new.document(), "metrics": ()} == {**old.document(), "metrics": ()}


def windows(reader: ResultsReader) -> dict[tuple[object, ...], int]:
    """Return how many reports each window has, of all reports and of segments."""
    return {
        (each.metric, each.window_start, each.segment): each.reports for each in reader.windows()
    }


def aggregated(state: Path, log: Path) -> RunResult:
    return aggregate(EmbeddedLog(log), state, [])


def test_results_are_read_before_anything_is_aggregated(tmp_path: Path) -> None:
    state = before.unpacked("state", tmp_path)
    with closing(sqlite3.connect(state / "results.db")) as connection:
        counted = connection.execute(
            "SELECT metric, window_start, segment, n FROM stored_windows"
        ).fetchall()
        estimated = connection.execute("SELECT count(*) FROM stored_estimates").fetchone()
    with ResultsReader.of_state(state) as reader:
        found = {
            (metric, int(start.timestamp() * 1000), segment): reports
            for (metric, start, segment), reports in windows(reader).items()
        }
        assert found == {(metric, start, segment): n for metric, start, segment, n in counted}
        assert (len(reader.estimates()),) == estimated
        assert [plan.plan for plan in reader.plans()] == ["fleet"]


def test_commands_read_the_results_before_anything_is_aggregated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = before.unpacked("state", tmp_path)
    assert main(["estimates", "--state", str(state), "--metric", "colour"]) == 0
    shown = capsys.readouterr().out
    assert "colour, 2023-08-31 to 2023-09-07" in shown
    assert "forged" not in shown
    for name in ("windows", "estimates", "latest_estimates", "alarms", "metrics", "budgets"):
        out = tmp_path / "out"
        command = ["export", "--state", str(state), "--table", name, "--format", "csv"]
        assert main([*command, "--out", str(out)]) == 0, name
    assert main(["report", "--state", str(state), "--out", str(tmp_path / "report.html")]) == 0


def test_a_text_that_compiles_to_another_plan_loses_nothing(tmp_path: Path) -> None:
    """The operator is told; without the text, or with the next version, old reports count."""
    state, log = before.unpacked("state", tmp_path), before.unpacked("log", tmp_path)
    text = before.text("fleet").read_text()
    given = load_plan(before.text("fleet")).compile()
    assert given.fingerprint_hex != before.fingerprints()["fleet"]
    with pytest.raises(PlanError, match="this release chooses another mechanism") as caught:
        aggregate(EmbeddedLog(log), state, [given])
    assert "nothing where a state directory keeps it" in str(caught.value)
    second = parse_plan(text.replace("version: 1", "version: 2"), before.text("fleet").parent)
    result = aggregate(EmbeddedLog(log), state, [second.compile()])
    assert result.rejects == {}
    assert (result.tally.counted, result.tally.superseded) == (36, 72)


def test_naming_the_old_mechanism_gives_the_old_fingerprint() -> None:
    text = before.text("fleet").read_text().replace("clip: 10,", "clip: 10, mechanism: OLD,")
    named = parse_plan(text.replace("OLD", "permute_and_flip"), before.text("fleet").parent)
    assert named.compile().fingerprint_hex == before.fingerprints()["fleet"]


def test_a_state_directory_goes_on_and_keeps_its_history(tmp_path: Path) -> None:
    state, log = before.unpacked("state", tmp_path), before.unpacked("log", tmp_path)
    with ResultsReader.of_state(state) as reader:
        earlier = windows(reader)
    result = aggregated(state, log)
    assert result.rejects == {}
    tally = result.tally
    assert (tally.counted, tally.superseded, tally.duplicates) == (36, 72, 6)
    with ResultsReader.of_state(state) as reader:
        later = windows(reader)
        rejected = {each.reason: each.reports for each in reader.rejections()}
    totals = {key: reports for key, reports in earlier.items() if key[2] == ""}
    assert {key: later[key] for key in totals} == totals
    assert sum(n for key, n in later.items() if key[2] == "") == sum(totals.values()) + 36
    assert rejected == {"malformed": 1, "unknown_plan": 1}


def test_a_run_that_was_killed_is_finished_for_a_new_database(tmp_path: Path) -> None:
    """Committed windows have to be published before they can be projected."""
    state, log = before.unpacked("state", tmp_path), before.unpacked("log", tmp_path)
    directory = StateDirectory(state)
    intent = FrozenLog(log, directory.manifest()).take(1_000_000)
    assert intent is not None
    directory.write_intent(intent, lambda step: None)
    with ResultsReader.of_state(state) as reader:
        earlier = windows(reader)
    (state / "results.db").unlink()
    assert aggregated(state, log).tally.counted == 36
    with ResultsReader.of_state(state) as reader:
        totals = {key: number for key, number in windows(reader).items() if key[2] == ""}
        assert {each.withheld for each in reader.windows() if each.reports >= 20} == {None}
    assert sum(totals.values()) == sum(n for key, n in earlier.items() if key[2] == "") + 36


def test_a_device_goes_on_and_its_reports_count(tmp_path: Path) -> None:
    state, log = before.unpacked("state", tmp_path), before.unpacked("log", tmp_path)
    device = before.unpacked("device-fleet", tmp_path)
    clock = FakeClock(before.UPGRADED + 2 * before.DAY)
    with SeededClient(
        before.compiled("fleet"), seed=6, state=device / "device.db", clock=clock, consent=False
    ) as client:
        ledger = client.ledger()
        assert (ledger.reserved, ledger.spent) == (32_000_000, 6_000_000)
        assert len(ledger.pending) == 6
        assert client.record("colour", "red") is Outcome.PERIOD_FULL
        client.flush()
        assert client.ledger().spent == 28_000_000
        publisher = client.publisher
        assert isinstance(publisher, MemoryPublisher)
        with LogWriter(log, "old-device") as writer:
            for _, message in publisher.messages:
                writer.append(message, clock.now)
    result = aggregated(state, log)
    assert result.rejects == {}
    assert result.tally.counted == 36 + 6


@pytest.mark.parametrize(
    ("name", "now", "reserved", "reports"),
    [
        ("device-fleet", before.UPGRADED, 32_000_000, 6),
        ("device-attributes", 2800 * 7 * before.DAY + 3 * before.DAY, 16_000_000, 10),
    ],
)
def test_a_device_is_shown_before_an_app_opens_it(
    tmp_path: Path, name: str, now: int, reserved: int, reports: int
) -> None:
    device = before.unpacked(name, tmp_path) / "device.db"
    held = device.read_bytes()
    assert read_file(device).reserved == reserved
    assert len(preview_file(device, now).reports) == reports
    assert device.read_bytes() == held


def test_a_device_with_everything_goes_on(tmp_path: Path) -> None:
    """A signed plan with groups, segments, an experiment, a permanent response and a top item."""
    device = before.unpacked("device-attributes", tmp_path)
    plan = before.compiled("attributes")
    clock = FakeClock(2800 * plan.period + 3 * before.DAY)
    with SeededClient(
        plan, seed=6, state=device / "device.db", clock=clock, consent=False
    ) as client:
        ledger = client.ledger()
        assert (ledger.reserved, ledger.spent) == (16_000_000, 7_000_000)
        assert [each.metric for each in ledger.permanent] == ["attributes/constant"]
        assert client.arm("onboarding") in (None, "control", "treatment")
        assert client.record("constant", "red") is Outcome.PERIOD_FULL
        clock.advance(days=9)
        client.flush()
        ledger = client.ledger()
        assert ledger.reserved == 16_000_000


def test_documents_are_read_and_a_sink_goes_on(tmp_path: Path) -> None:
    url = sql.URL.create("sqlite", database=str(before.sink_database(tmp_path)))
    with ResultsReader(url) as reader:
        earlier = windows(reader)
    records = before.documents()
    newest = [parse(*each) for each in records]
    with SqlSink(url) as database:
        offsets = database.offsets(before.TOPIC, before.TOPIC_ID)
        assert offsets == {0: len(records)}
        read = [Advance(0, len(records), 2 * len(records))]
        applied = database.write(newest, ReadTopic(before.TOPIC, before.TOPIC_ID, read))
    assert (applied.written, applied.stale) == (0, len(records))
    with ResultsReader(url) as reader:
        assert windows(reader) == earlier


MEASURES = ("measure", "first_use")


def columns(file: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(file)) as connection:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = connection.execute(listed).fetchall()
        return {
            name: connection.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in tables
        }


def test_a_new_device_s_file_has_the_same_tables_and_those_of_measures(tmp_path: Path) -> None:
    old = before.unpacked("device-fleet", tmp_path) / "device.db"
    with SeededClient(before.compiled("fleet"), seed=1, state=tmp_path / "device.db"):
        pass
    new = columns(tmp_path / "device.db")
    assert columns(old) == {name: new[name] for name in new if name not in MEASURES}
    with SeededClient(before.compiled("fleet"), seed=1, state=old, consent=False):
        pass
    assert columns(old) == new
