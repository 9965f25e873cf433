"""Arms of an experiment: from counts to rows, documents, the command and the page of a metric."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asgi_client import get
from fastapi import FastAPI
from made_documents import project, projection, window_document
from numpy.typing import NDArray
from plan_texts import plan_head

from mechanisms.experiments import Scored, difference
from mechanisms.items import OF_EXPERIMENTS
from mechanisms.testing import SeededSource
from pipelines.aggregation.breakdown import slices
from pipelines.aggregation.comparison import arms_of
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import rows_of_windows
from pipelines.results.api import create_router
from pipelines.results.documents import WindowDocument, parse
from pipelines.results.reader import ResultsReader
from pipelines.results.records import EstimateRecord
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan, canonical
from sotto.plan.registry import Registry
from sotto_cli import main

SEED = 12
#: Arms are control, treatment and, in cells, none.
TEXT = plan_head(
    "trial",
    (9, 3000),
    collector="app.example",
    experiment="{name: onboarding, arms: [control, treatment], share: 0.5}",
)
TEXT += """\
  dark: {type: boolean, window: 7d, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]}
  start: {type: number, range: [100, 300], unit: ms, outside: clip, mechanism: threshold,
    window: 28d, ladder: [{epsilon: 2}]}
  page: {type: string, bits: 16, hashes: 1, cohorts: 2, window: 7d, ladder: [{epsilon: 2}]}
"""
PLAN = parse_plan(TEXT).compile()
#: Besides, a segment of three values.
SEGMENTED = parse_plan(TEXT.replace("experiment:", "segments: {os: [a, b]}\nexperiment:")).compile()

Row = Mapping[str, Any]
#: By cell and level.
Reports = NDArray[np.int64]


def windows(
    plan: CompiledPlan, metric: str, reports: Reports, yes: float = 0.3
) -> list[tuple[WindowKey, WindowCounts]]:
    """Return a window's counts by cell, of so many reports by level; the arm treatment has more."""
    about = plan.metric(metric)
    mechanism, random, found = about.mechanism, np.random.default_rng(SEED), []
    for cell, by_level in enumerate(reports.tolist()):
        level = np.repeat(np.arange(len(by_level)), by_level)
        ids = random.integers(0, 2**63, (len(level), 2), dtype=np.uint64)
        share = yes + 0.2 * (cell % 3 == 1)
        values: Any = (random.random(len(level)) < share).astype(np.int64)
        if about.type == "number":
            values = np.full(len(level), share)
        elif about.type == "string":
            values = [b"home"] * len(level)
        payloads = mechanism.randomize(values, ids, ids, SeededSource(SEED + cell))
        counts = mechanism.accumulate(
            payloads[np.arange(len(level)), level], ids, ids, level, mechanism.levels
        )
        found.append((WindowKey(plan.fingerprint, about.index, 0, cell), WindowCounts(1, counts)))
    return found


def compared(plan: CompiledPlan, metric: str, reports: list[list[int]]) -> list[Row]:
    given = windows(plan, metric, np.array(reports))
    _, estimates = rows_of_windows(given, Registry([plan]), {})
    return [row for row in estimates if row["kind"] in OF_EXPERIMENTS]


def test_a_difference_is_of_the_last_level_alone() -> None:
    reports = np.array([[500, 2000], [400, 2100], [30, 40]])
    rows = compared(PLAN, "dark", reports.tolist())
    assert [(row["segment"], row["kind"], row["item"]) for row in rows] == [
        ("onboarding=control", "arm_share", ""),
        ("onboarding=treatment", "arm_share", ""),
        ("onboarding=treatment", "difference", "false"),
        ("onboarding=treatment", "difference", "true"),
    ]
    assert [row["value"] for row in rows[:2]] == [0.5, 0.5]
    assert [row["n"] for row in rows] == [2500, 2500, 4100, 4100]
    scores = PLAN.metric("dark").mechanism.scores(1)
    assert scores is not None
    first, arm = (
        Scored("share", "true", scores.values, window.counts[1])
        for _, window in windows(PLAN, "dark", reports)[:2]
    )
    found = difference(first, arm)
    row = rows[-1]
    assert (row["value"], row["low"], row["high"], row["p_value"]) == pytest.approx(
        found, abs=0.005
    )
    assert row["low"] < 0.2 < row["high"]
    assert row["significant"]
    assert row["arms"] == [
        [each.reports, pytest.approx(each.mean, abs=0.0025)] for each in (first, arm)
    ]
    assert all(each["arms"] is None for each in rows[:2])
    assert (row["reports_by_level"], row["method"], row["withheld"]) == ([0, 4100], "always", None)


def test_a_mean_is_in_its_unit_and_several_reports_of_a_device_widen_its_interval() -> None:
    *_, row = compared(PLAN, "start", [[5000], [5000], [100]])
    # A window of four budget periods: a device may have four reports in it.
    assert PLAN.most_reports(PLAN.metric("start")) == 4
    assert (row["kind"], row["item"], row["unit"]) == ("difference", "", "ms")
    assert row["low"] < 40 < row["high"]
    given = windows(PLAN, "start", np.array([[5000], [5000]]))
    answers = [window.counts[0].reshape(64, 2).sum(axis=0) for _, window in given]
    scores = PLAN.metric("start").mechanism.scores(0)
    pair = (Scored("mean", "", scores.values, each, "ms", 100.0, 300.0) for each in answers)
    low, high = difference(*pair)[1:3]
    assert row["high"] - row["low"] > 2 * (high - low)


def test_uneven_arms_are_told() -> None:
    rows = compared(PLAN, "dark", [[0, 2000], [0, 1500], [0, 3000]])
    assert [row["significant"] for row in rows[:2]] == [True, True]
    assert rows[0]["p_value"] == rows[1]["p_value"] < 1e-6


def test_what_is_no_average_is_not_compared() -> None:
    *_, row = compared(PLAN, "page", [[200], [200], [0]])
    assert row["kind"] == "difference"
    assert row["value"] is None
    assert row["withheld"].startswith("rappor: several strings set the same bit")


@pytest.mark.parametrize(
    ("control", "treatment", "few", "reports"),
    [([0, 19], [0, 500], "control", 19), ([0, 500], [500, 0], "treatment", 0)],
)
def test_few_reports_are_not_told_from_others(
    control: list[int], treatment: list[int], few: str, reports: int
) -> None:
    why = f"onboarding={few} at the last level: {reports} reports, the plan asks for 20"
    rows = compared(PLAN, "dark", [control, treatment, [0, 500]])
    differences = [row for row in rows if row["kind"] == "difference"]
    assert differences
    for row in differences:
        assert row["withheld"].startswith(why)
        assert {row[name] for name in ("value", "low", "high", "p_value", "significant")} == {None}


def test_a_few_that_are_late_do_not_withhold_a_difference_and_nothing_follows_of_them() -> None:
    """Every estimate is what it is without their reports."""
    given = windows(PLAN, "dark", np.array([[9, 500], [3, 500], [7, 500]]))
    few = rows_of_windows(given, Registry([PLAN]), {})
    for _, window in given:
        window.counts[0] = 0
    none = rows_of_windows(given, Registry([PLAN]), {})
    assert [row["reports_by_level"] for row in few[0][:3]] == [[19, 1500], [9, 500], [3, 500]]
    for late, punctual in zip(few[1], none[1], strict=True):
        if late["kind"] == "arm_share":
            assert late["reports_by_level"] in ([9, 500], [3, 500])
        else:
            assert late == punctual
            assert late["withheld"] is None
    # From 20 on they count.
    _, rows = rows_of_windows(
        windows(PLAN, "dark", np.array([[20, 500]] * 3)), Registry([PLAN]), {}
    )
    shares = [row["n"] for row in rows if row["item"] == "true" and row["kind"] == "share"]
    assert shares == [1560, 520, 520, 520]


def test_reports_below_the_last_level_are_left_out_of_alarms_where_they_are_few() -> None:
    text = TEXT.replace("after: 1d}]", "after: 1d}, {epsilon: 3, after: 2d}]")
    plan = parse_plan(text).compile()
    given = windows(plan, "dark", np.array([[5, 14, 9000], [0, 0, 9000], [0, 0, 9000]]))

    def alarms(equal: int, number: int) -> list[Mapping[str, Any]]:
        """Return what is found of so many pairs of the first two levels, so many of them equal."""
        cells = []
        for key, window in given:
            pairs = np.zeros((3, 6), dtype=np.int64)
            if key.cell == 0:
                pairs[1, :2] = number, equal
            pairs[2, 2:4] = 5000, honest
            whole = np.concatenate([window.counts, pairs], axis=1)
            cells.append((key, WindowCounts(1, whole)))
        (total, *_), _ = rows_of_windows(cells, Registry([plan]), {})
        found = total["alarms"]
        assert isinstance(found, list)
        return found

    honest = round(5000 * plan.metric("dark").mechanism.chain.repeats(1, 2)[0])
    assert alarms(0, 0) == []
    assert [each["kind"] for each in alarms(5000, 5000)] == ["levels"]


def test_a_difference_does_not_give_a_withheld_arm_away() -> None:
    # The five reports of no arm would follow from those of all, control and treatment.
    rows = compared(PLAN, "dark", [[0, 500], [0, 300], [0, 5]])
    differences = [row for row in rows if row["kind"] == "difference"]
    assert {row["withheld"] for row in differences} == {
        "onboarding=treatment is withheld at the last level"
    }


def test_an_arm_without_reports_has_no_rows() -> None:
    rows = compared(PLAN, "dark", [[0, 50], [0, 0], [0, 50]])
    assert [row["segment"] for row in rows] == ["onboarding=control"]


def test_differences_are_of_arms_whose_last_level_is_published() -> None:
    """So nothing follows from them that does not follow from the rows of the arms."""
    random, published = np.random.default_rng(SEED), 0
    metric, attributes = SEGMENTED.metric("dark"), SEGMENTED.attributes
    for _ in range(25):
        reports = random.choice(
            [0, 1, 12, 25, 60, 300], (SEGMENTED.cells, 2), p=[0.15, 0.05, 0.1, 0.2, 0.25, 0.25]
        )
        _, rows = rows_of_windows(windows(SEGMENTED, "dark", reports), Registry([SEGMENTED]), {})
        shown = {
            row["segment"]
            for row in rows
            if row["kind"] == "share" and row["value"] is not None
            if row["reports_by_level"][metric.sent - 1]
        }
        for row in rows:
            if row["kind"] == "difference" and row["value"] is not None:
                published += 1
                assert {row["segment"], "onboarding=control"} <= shown
    assert published > 5
    assert len(arms_of(SEGMENTED)) == 2 < len(slices(attributes))


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Results of the plan: an experiment with an effect, and one whose arms are uneven."""
    registry, url = Registry([PLAN]), f"sqlite:///{tmp_path / 'results.db'}"
    changed = [
        rows_of_windows(windows(PLAN, metric, np.array(reports)), registry, {})
        for metric, reports in (
            ("dark", [[0, 4000], [0, 4100], [0, 90]]),
            ("page", [[400], [300], [50]]),
        )
    ]
    project(url, projection("app.example", "state", 1, None, changed))
    return url


def printed(*arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*arguments]) == 0
    return out.getvalue()


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_bytes(PLAN.to_json())
    return str(path)


def test_the_command_prints_arms_and_differences(
    database: str, plan_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["estimates", "--experiment", "--database", database, "--plan", plan_file]
    text = printed(*asked)
    assert "THE ARMS' REPORTS ARE NOT AS EVEN AS PLANNED" in text
    line = next(line for line in text.splitlines() if line.startswith("  treatment  true"))
    assert line.split()[-4:] == ["8,100", "1", "1", "differs"]
    assert "treatment is not compared: several strings set the same bit" in text
    assert "treatment is not compared: no window is complete yet" in text
    rows = json.loads(printed(*asked, "--format", "json"))
    assert [row["metric"] for row in rows] == ["dark", "start", "page"]
    assert rows[0]["low"] < 0.2 < rows[0]["high"]
    table = printed(*asked, "--metric", "dark", "--format", "csv")
    assert [row["item"] for row in csv.DictReader(io.StringIO(table))] == ["true"]
    other = tmp_path / "other.yaml"
    other.write_text(
        TEXT.replace("experiment:", "#").replace("trial", "other").replace("start", "at")
    )
    assert "no plan is known" in printed(*asked[:-2])
    assert printed(*asked[:-1], str(other)).startswith("no experiment is in other version 1: one")
    capsys.readouterr()
    assert main([*asked, "--plan", str(other), "--metric", "at"]) == 2
    assert "no results of the experiments' metric 'at'; there are dark" in capsys.readouterr().err
    assert main([*asked, "--metric", "no"]) == 2
    assert "no results of the metric 'no'; there are dark, page, start" in capsys.readouterr().err
    # Estimates are those of each arm by itself.
    assert "difference" not in printed("estimates", "--database", database)


def test_the_interface_answers_experiments(database: str) -> None:
    app = FastAPI()
    app.include_router(create_router(ResultsReader(database, plans=[PLAN])))
    (effect,) = get(app, "/api/v1/effects", {"metric": "dark", "version": 1}).json()["effects"]
    assert (effect["arm"], effect["item"], effect["windows"]) == ("treatment", "true", 1)
    assert effect["start"] == "1970-01-01T00:00:00.000Z"
    for unknown, what in (({"plan": "another"}, "plan"), ({"metric": "no"}, "experiments' metric")):
        refused = get(app, "/api/v1/effects", unknown)
        assert refused.status == 404
        assert f"no results of the {what}" in refused.json()["title"]


@pytest.mark.slow
def test_the_page_shows_experiments(database: str, plan_file: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    printed("report", "--database", database, "--plan", plan_file, "--out", str(page))
    text = page.read_text()
    assert "<h2>onboarding of trial, version 1</h2>" in text
    assert text.count("not as even as planned</strong> (of page, p-value") == 1
    assert "is not compared: several strings set the same bit" in text
    assert "treatment: dark true" in text
    assert "Windows from 1 Jan 1970 to 8 Jan 1970 count.</p>" in text
    decided = json.loads(PLAN.to_json())
    decided["decision"] = {"metric": "dark", "start": 0, "end": 14 * 86_400_000, "looks": 2}
    Path(plan_file).write_bytes(canonical(decided))
    printed("report", "--database", database, "--plan", plan_file, "--out", str(page))
    text = page.read_text()
    assert "<strong>treatment, true: differs from control in dark, as look 1 decided" in text
    assert "standard errors, and the boundary" in text


def test_documents_carry_differences() -> None:
    given = windows(PLAN, "dark", np.array([[0, 2000], [0, 2000], [0, 50]]))
    (row, *segments), estimates = rows_of_windows(given, Registry([PLAN]), {})
    document = parse(*window_document("job", row, estimates, 3, "early", segments))
    assert isinstance(document, WindowDocument)
    kept = [each for each in document.rows()[EstimateRecord] if each["kind"] == "difference"]
    made = [each for each in estimates if each["kind"] == "difference"]
    for one, other in zip(kept, made, strict=True):
        names = ("segment", "item", "value", "low", "high", "p_value", "significant", "method")
        assert [one[name] for name in names] == [other[name] for name in names]
