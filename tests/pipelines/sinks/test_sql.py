"""The database: one transaction a commit, never backwards, only one state directory's."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sql
from committed_states import TABLES
from made_documents import estimate_row, projection
from sink_documents import small_window

from pipelines.results import tables
from pipelines.results.tables import ESTIMATES, QUARANTINE, WINDOWS
from pipelines.sinks import rows as written_rows
from pipelines.sinks.base import SinkError
from pipelines.sinks.sql import Projection, Results, SqlSink, of_state
from sotto.errors import AggregationError


def window(start: int, revision: int) -> dict[str, object]:
    return small_window(start, reports_by_level=[3, 4], revision=revision)


def estimate(start: int, item: str, value: float, revision: int = 1) -> dict[str, object]:
    known = {"value": value, "standard_error": math.inf, "low": -math.inf, "high": 1.0}
    return estimate_row(window(start, revision), 0, "share", item, **known)


LATE = {"collector": "tests.example", "generation": 0, "reason": "late", "rows": 4, "requeued": 1}
FIRST: dict[str, Any] = {
    "collector": "tests.example",
    "state": "mine",
    "generation": 3,
    "clock": 99,
    "changed": [
        ([window(0, 1), window(10, 3)], [estimate(0, "red", 0.25), estimate(10, "red", math.nan)])
    ],
    "periods": [],
    "quarantine": [LATE],
}


def first(**changes: Any) -> Projection:
    """Return a projection with some arguments of its own."""
    return projection(**{**FIRST, **changes})


@pytest.fixture
def database(tmp_path):
    with Results(f"sqlite:///{tmp_path / 'results.db'}") as opened:
        assert opened.projected("tests.example", "mine") == 0
        yield opened


def content(database: Results) -> dict[str, list[dict[str, object]]]:
    return {table.name: database.table(table) for table in TABLES}


def test_what_is_projected_is_there(database):
    database.project(first())
    assert database.projected("tests.example", "mine") == 3
    known, unknown = database.table(ESTIMATES)
    assert (known["value"], known["standard_error"]) == (0.25, None)
    assert (known["low"], known["high"]) == (None, 1.0)
    assert unknown["value"] is None
    assert known["reports_by_level"] == [3, 4]
    assert database.table(QUARANTINE) == [LATE]


def test_changed_windows_are_replaced_and_others_left(database):
    database.project(first())
    later = first(
        generation=5, changed=[([window(10, 5)], [estimate(10, "blue", 0.5, 5)])], quarantine=[]
    )
    database.project(later)
    assert [(r["window_start"], r["item"], r["revision"]) for r in database.table(ESTIMATES)] == [
        (0, "red", 1),
        (10, "blue", 5),
    ]
    assert [row["revision"] for row in database.table(WINDOWS)] == [1, 5]
    assert database.table(QUARANTINE) == []


@pytest.mark.parametrize("generation", [2, 3])
def test_a_generation_that_is_not_ahead_is_refused(database, generation):
    database.project(first())
    before = content(database)
    with pytest.raises(AggregationError, match="not behind"):
        database.project(first(generation=generation, changed=[([window(0, 9)], [])]))
    assert content(database) == before


def test_another_state_directory_is_refused(database):
    database.project(first())
    before = content(database)
    with pytest.raises(AggregationError, match=r"another state directory .* give --database"):
        database.projected("tests.example", "theirs")
    # One that found nothing there a moment ago projects anew.
    for anew in (False, True):
        with pytest.raises(AggregationError, match=r"another state directory"):
            database.project(first(state="theirs", generation=9, anew=anew))
    assert content(database) == before


def test_runs_of_several_collectors_share_a_database(database):
    """Each has its generation; what one projects anew takes nothing of another's."""
    database.project(first())
    before = content(database)
    theirs = [{**row, "collector": "theirs.example"} for row in (window(0, 1), LATE)]
    rows = [{**estimate(0, "red", 0.75), "collector": "theirs.example"}]
    other = {
        "collector": "theirs.example",
        "state": "theirs",
        "changed": [(theirs[:1], rows)],
        "quarantine": theirs[1:],
    }
    assert database.projected("theirs.example", "theirs") == 0
    for generation in (1, 2):
        database.project(first(**other, generation=generation, anew=True))
    found = content(database)
    assert database.projected("theirs.example", "theirs") == 2
    assert database.projected("tests.example", "mine") == 3
    for name, was in before.items():
        assert [row for row in found[name] if row["collector"] == "tests.example"] == was
    assert [row["value"] for row in found["stored_estimates"] if row["value"] == 0.75] == [0.75]
    assert len(found["quarantine"]) == 2


def test_every_row_says_whose_it_is():
    for table in tables.METADATA.sorted_tables:
        assert table.columns.keys()[0] == "collector"
        assert table.columns["collector"].primary_key


def test_a_database_of_an_earlier_release_is_refused_and_stays(tmp_path):
    file = tmp_path / "older.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE meta (id INTEGER PRIMARY KEY, state TEXT)")
        connection.execute("CREATE TABLE windows (window_start INTEGER)")
    refused = pytest.raises(AggregationError, match="--database")
    with Results(f"sqlite:///{file}") as run, refused:
        run.projected("tests.example", "mine")
    with SqlSink(f"sqlite:///{file}") as sink, refused:
        sink.offsets("reports-estimates", "id")
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE sql <> ''").fetchall()
    assert sorted(found) == [("meta",), ("windows",)]


@pytest.mark.parametrize(
    ("kind", "raised"), [("OperationalError", SinkError), ("ProgrammingError", AggregationError)]
)
def test_a_failure_leaves_everything_as_it_was(database, monkeypatch, kind, raised):
    database.project(first())
    before = content(database)
    whole = written_rows._insert

    def fails(connection: sql.Connection, table: sql.Table, rows: object) -> None:
        if table is QUARANTINE:
            raise getattr(sql.exc, kind)("INSERT", {}, Exception("disk full"))
        whole(connection, table, rows)

    monkeypatch.setattr(written_rows, "_insert", fails)
    with pytest.raises(raised, match=r"results of generation 4 could not.*disk full") as found:
        database.project(first(generation=4))
    assert found.type is raised
    assert content(database) == before
    monkeypatch.undo()
    database.project(first(generation=4))
    assert database.projected("tests.example", "mine") == 4


def test_a_database_that_cannot_be_used_is_an_error(tmp_path):
    for url in ("sqlite://", "sqlite:///r.db?mode=memory", "sqlite://./r.db", "sqlite://r.db"):
        with pytest.raises(AggregationError, match="name it after three slashes"):
            Results(url)
    with (
        Results(f"sqlite:///{tmp_path / 'none' / 'results.db'}") as database,
        pytest.raises(AggregationError, match="unable to open"),
    ):
        database.projected("tests.example", "mine")
    passing = pytest.raises(SinkError, match="no such table")
    with Results(f"sqlite:///{tmp_path / 'empty.db'}") as database, passing:
        database.table(ESTIMATES)


@pytest.mark.parametrize("name", ["a?mode=ro", "pc%20x", "a#b"])
def test_a_state_directory_may_have_any_name(tmp_path, name):
    (tmp_path / name).mkdir()
    with Results(of_state(tmp_path / name)) as database:
        database.projected("tests.example", "mine")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["results.db"]
    assert (tmp_path / name / "results.db").exists()


def test_who_reads_does_not_keep_a_run_from_writing(database, tmp_path):
    database.project(first())
    with closing(sqlite3.connect(tmp_path / "results.db", isolation_level=None)) as reader:
        reader.execute("begin")
        before = reader.execute("select projected_generation from meta").fetchall()
        database.project(first(generation=4))
        assert reader.execute("select projected_generation from meta").fetchall() == before
    assert database.projected("tests.example", "mine") == 4


def test_the_tables_are_made_in_postgresql_too():
    from sqlalchemy.dialects import postgresql

    for table in TABLES:
        statement = sql.schema.CreateTable(table).compile(dialect=postgresql.dialect())
        assert "PRIMARY KEY" in str(statement)
