"""`sotto export`: every format has the same rows, and is read by the tools that it is for."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from invented_results import DAY, START, app_of, ask, write_results

from pipelines.results.encode import WRITERS
from pipelines.results.views import VIEW_SHARES, VIEWS
from sotto_cli import main


@pytest.fixture
def state(tmp_path: Path) -> Path:
    write_results(tmp_path)
    return tmp_path


def frame(path: Path) -> pd.DataFrame:
    readers = {
        ".parquet": pd.read_parquet,
        ".arrow": pd.read_feather,
        ".csv": lambda file: pd.read_csv(file, keep_default_na=False),
        ".json": lambda file: pd.DataFrame(json.loads(file.read_text("utf-8"))),
    }
    return readers[path.suffix](path)


def test_every_format_has_every_view(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (out := state / "out").mkdir()
    (out / "shares.csv").symlink_to(state / "linked.csv")
    for name in WRITERS:
        assert main(["export", "--state", str(state), "--format", name, "--out", str(out)]) == 0
    assert "shares.json" in capsys.readouterr().out
    assert len([*out.iterdir()]) == len(WRITERS) * len(VIEWS)
    for view in VIEWS:
        frames = [frame(out / f"{view.name}.{name}") for name in WRITERS]
        for name, each in zip(WRITERS, frames, strict=True):
            # JSON has names in its rows alone.
            names = [] if (name, len(each)) == ("json", 0) else [at.name for at in view.columns]
            assert [*each.columns] == names
        assert len({len(each) for each in frames}) == 1
    shares = frame(out / "shares.parquet")
    assert shares.window_start.min() == pd.Timestamp(START, unit="ms", tz="UTC")
    assert shares.equals(frame(out / "shares.arrow"))
    assert [*shares.share] == [*frame(state / "linked.csv").share]
    (line,) = json.loads((out / "budgets.json").read_text())
    assert (line["closed"], line["period_start"]) == (True, "2025-01-02T00:00:00.000Z")
    field = pq.read_schema(out / "shares.parquet").field("share")
    assert field.metadata[b"comment"].decode() == VIEW_SHARES.columns[9].about.text


def test_no_cell_of_csv_is_a_formula_and_numbers_stay_numbers(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = ["=1+1", "+x", "-y", "@z", "\tt", "\rr", "-30.0", "a=b", "a;=1", "a\n=1"]
    with closing(sqlite3.connect(state / "results.db")) as connection, connection:
        connection.execute("DELETE FROM stored_estimates WHERE metric <> 'theme' OR segment <> ''")
        rows = connection.execute("SELECT rowid FROM stored_estimates").fetchall()
        connection.execute("DELETE FROM stored_estimates WHERE rowid <> ?", rows[0])
        columns = [each[1] for each in connection.execute("PRAGMA table_info(stored_estimates)")]
        kept = ", ".join(name for name in columns if name not in ("item", "value"))
        for item in items:
            connection.execute(
                f"INSERT INTO stored_estimates (item, value, {kept}) "
                f"SELECT ?, -0.5, {kept} FROM stored_estimates WHERE rowid = ?",
                (item, *rows[0]),
            )
        connection.execute("DELETE FROM stored_estimates WHERE rowid = ?", rows[0])
    shown = ["'=1+1", "'+x", "'-y", "'@z", "'\tt", "'\rr", "-30.0", "a=b", "a;'=1", "a\n'=1"]
    capsys.readouterr()
    assert main(["estimates", "--state", str(state), "--format", "csv"]) == 0
    printed = capsys.readouterr().out
    out = state / "two" / "shares.csv"
    arguments = ["export", "--state", str(state), "--table", "shares", "--table", "means"]
    assert main([*arguments, "--format", "csv", "--out", str(out.parent)]) == 0
    assert {each.name for each in out.parent.iterdir()} == {"means.csv", out.name}
    url = f"sqlite:///{state / 'results.db'}"
    answered = ask(app_of(url), "/api/v1/estimates?format=csv").text
    assert sorted(printed.split()) == sorted(answered.split())
    for text in (printed, out.read_bytes().decode(), answered):
        read = [*csv.DictReader(io.StringIO(text, newline=""))]
        assert sorted(each["item"] for each in read) == sorted(shown)
        assert {each.get("share", each.get("value")) for each in read} == {"-0.5"}


def test_duckdb_reads_what_is_exported(state: Path) -> None:
    for name in ("parquet", "csv", "json"):
        file = state / f"shares.{name}"
        given = ["--table", "shares", "--format", name, "--out", str(file)]
        assert main(["export", "--state", str(state), *given]) == 0
        query = f"SELECT item, window_start FROM '{file}' WHERE segment = 'os=linux' LIMIT 1"
        assert duckdb.sql(f"SELECT item, epoch_ms(window_start) FROM ({query})").fetchall() == [
            ("light", START + 14 * DAY)
        ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--state", ".", "--table", "shares", "--out", "pipe"],
            "must be a file; got a folder, device",
        ),
        (["--state", ".", "--out", "results.db"], "names a file: give a folder, or one --table"),
        (["--database", "sqlite:///results.db", "--out", "results.db/x"], "results.db"),
    ],
)
def test_what_cannot_be_exported_is_said_and_nothing_is_left(
    state: Path,
    given: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(state)
    os.mkfifo("pipe")
    before = sorted(state.iterdir())
    assert main(["export", *given]) == 2
    assert said in capsys.readouterr().err
    assert sorted(state.iterdir()) == before


def test_a_carriage_return_in_a_name_ends_no_line_of_csv() -> None:
    names = [column.name for column in VIEW_SHARES.columns]
    row: list[object] = [None] * len(names)
    row[names.index("item")] = "one\rother"
    file = io.BytesIO()
    WRITERS["csv"](VIEW_SHARES, [[row]], file)
    (read,) = csv.DictReader(io.StringIO(file.getvalue().decode(), newline=""))
    assert read["item"] == "one\rother"
    assert pd.read_csv(io.BytesIO(file.getvalue()))["item"].tolist() == ["one\rother"]
