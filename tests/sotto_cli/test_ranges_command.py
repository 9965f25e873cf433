"""Ranges and their comparison, from a table of values to what the command prints."""

from __future__ import annotations

import csv
import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from plan_texts import plan_head

from pipelines.results.range_windows import WindowRange
from pipelines.results.reader import ResultsReader
from sotto.errors import ParameterError
from sotto_cli import main

PLAN = plan_head("replayed", (33, 900), collector="test.example", segments="{os: [linux, mac]}")
PLAN += """\
  startup: {type: number, range: [0, 5000], unit: ms, outside: clip, window: 7d,
    mechanism: threshold, ladder: [{epsilon: 6}]}
  theme: {type: category, domain: [light, dark], outside: other, window: 7d,
    ladder: [{epsilon: 2}, {epsilon: 6, after: 1d}]}
  page: {type: string, bits: 128, hashes: 2, cohorts: 4, window: 7d, candidates: pages.txt,
    ladder: [{epsilon: 6}]}
"""
FIRST = datetime(2025, 6, 5, tzinfo=UTC)
WEEKS, DEVICES, RELEASE = 6, 500, datetime(2025, 6, 26, tzinfo=UTC)
#: ms that a start takes before the release, and on mac after it.
FAST, SLOW = 800, 1900


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the state of a job to whose devices on mac a release came that slowed the start."""
    folder, chance = tmp_path_factory.mktemp("ranges"), random.Random(5)
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "pages.txt").write_text("home\ncart\nabout\n")
    with (folder / "t.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["who", "when", "startup", "theme", "page", "platform"])
        for week in range(WEEKS):
            when = FIRST + week * timedelta(days=7, hours=1)
            for device in range(DEVICES):
                system = "mac" if device % 2 else "linux"
                slow = system == "mac" and when >= RELEASE
                start = (SLOW if slow else FAST) + chance.uniform(-200, 200)
                theme = "dark" if device % 5 == 0 else "light"
                page = "home" if device % 4 else "cart"
                out.writerow([f"d{device}", when.isoformat(), start, theme, page, system])
        # A last report, by whose time all others are due.
        after = FIRST + timedelta(weeks=WEEKS, days=9)
        out.writerow(["late", after.isoformat(), FAST, "light", "home", "linux"])
    table = ["--input", str(folder / "t.csv"), "--device-column", "who", "--time-column", "when"]
    plan, log = ["--plan", str(folder / "plan.yaml")], str(folder / "log")
    more = ["--segment", "os=platform", "--processes", "1", "--out", log]
    assert main(["replay", *plan, *table, *more]) == 0
    where = ["--state", str(folder / "state")]
    assert main(["aggregate", *plan, "--log", log, *where]) == 0
    return folder / "state"


def read(state: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["estimates", "--state", str(state), "--format", "json", *more]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_a_release_that_slowed_the_start_is_found_and_for_whom(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = ["--metric", "startup", "--from", "2025-06-26", "--to", "2025-07-17"]
    compared = [*after, "--compare", "previous"]
    by_item = {(row["kind"], row["item"]): row for row in read(state, capsys, *compared)}
    mean, median = by_item["mean", ""], by_item["quantile", "0.75"]
    for row, truth in ((mean, (SLOW - FAST) / 2), (median, SLOW - FAST)):
        assert row["significant"] is True
        assert row["difference"] == pytest.approx(truth, abs=4 * row["standard_error"] + 150)
        starts = [row[each][:10] for each in ("start", "against_start")]
        assert starts == ["2025-06-26", "2025-06-05"]
    by_system = {
        row["segment"]: row
        for row in read(state, capsys, *compared, "--by", "os")
        if row["kind"] == "mean"
    }
    assert by_system["os=mac"]["significant"] is True
    assert by_system["os=mac"]["low"] > 4 * by_system["os=linux"]["standard_error"]
    assert by_system["os=linux"]["low"] < 250
    capsys.readouterr()
    assert main(["estimates", "--state", str(state), *compared, "--by", "os"]) == 0
    said = capsys.readouterr().out
    assert "startup [os=mac], 2025-06-26 to 2025-07-17 (replayed version 1) against" in said
    assert "found from" in said
    # How far chance moves shares is said beside shares alone.
    assert "points" not in said
    pages = ["--metric", "page", "--from", "2025-06-05", "--under", "5%"]
    found = {row["item"]: row for row in read(state, capsys, *pages)}["cart"]
    assert found["under_low"] < found["low"] < found["high"] < found["under_high"]
    assert main(["estimates", "--state", str(state), *pages]) == 0
    assert re.search(r"5 % forged +forged down +forged up", capsys.readouterr().out)


@pytest.mark.slow
def test_figures_of_strings_are_those_of_all_reports(state: Path) -> None:
    reader = ResultsReader.of_state(state)
    whole = WindowRange("page", until=FIRST + timedelta(weeks=WEEKS))
    strings = {row.item: row for row in reader.range_estimates(whole)}
    assert strings["cart"].windows == WEEKS
    themes = {row.item: row for row in reader.range_estimates(replace(whole, metric="theme"))}
    assert themes["dark"].value == round(themes["dark"].value, 12)
    assert strings["cart"].significant
    assert strings["cart"].value == pytest.approx(0.25, abs=6 * strings["cart"].standard_error)
    assert not strings["about"].significant
    of_windows = [row for row in reader.estimates() if (row.item, row.segment) == ("cart", "")]
    least = min(row.forged_up for row in of_windows if row.forged_up) / WEEKS
    assert 0.8 * least < strings["cart"].forged_up < 1.2 * least
    # Devices on mac record other pages.
    found_in = {row.segment for row in reader.estimates() if row.item == "cart" and row.significant}
    assert found_in >= {"", "os=linux"}


@pytest.mark.slow
def test_a_database_without_a_state_directory_has_averages_alone(state: Path) -> None:
    url, plan = f"sqlite:///{state / 'results.db'}", ResultsReader.of_state(state).plans()
    alone = ResultsReader(url, plans=plan)
    assert {row.kind for row in alone.range_estimates(WindowRange("startup"))} == {"mean"}
    with pytest.raises(ParameterError, match=r"strings .*state directory"):
        alone.range_estimates(WindowRange("page"))
    with pytest.raises(ParameterError, match="give it with --plan"):
        ResultsReader(url).range_estimates(WindowRange("startup"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--compare", "all"], "have reports in common"),
        (["--segment", "os=mac", "--from", "2025-06-12", "--compare", "2025-06-05..2025-06-26"],
         "only some windows in common"),
        (["--compare", "yesterday"], "must be 'previous', a range"),
    ],
)  # fmt: skip
def test_ranges_that_cannot_be_are_refused_in_words(
    state: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(["estimates", "--state", str(state), "--metric", "startup", *more]) == 2
    assert said in capsys.readouterr().err
