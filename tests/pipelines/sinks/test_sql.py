"""The database: one transaction a commit, never backwards, only one state directory's."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
import sqlalchemy as sql
from sink_documents import TABLES, window_row

from pipelines.sinks import tables
from pipelines.sinks.sql import Projection, Results, of_state
from pipelines.sinks.tables import ESTIMATES, QUARANTINE, WINDOWS
from sotto.errors import AggregationError


def window(start: int, revision: int) -> dict[str, object]:
    own = {"segment": "", "reports_by_level": [3, 4], "revision": revision}
    return {**window_row(start), **own}


def estimate(start: int, item: str, value: float, revision: int = 1) -> dict[str, object]:
    row = {key: each for key, each in window(start, revision).items() if key in ESTIMATES.columns}
    row |= {"kind": "share", "item": item, "position": 0, "unit": "share", "method": "unbiased"}
    return {**row, "value": value, "standard_error": math.inf, "low": -math.inf, "high": 1.0}


FIRST = Projection(
    state="mine",
    generation=3,
    clock=99,
    changed=[
        ([window(0, 1), window(10, 3)], [estimate(0, "red", 0.25), estimate(10, "red", math.nan)])
    ],
    periods=[],
    quarantine=[{"generation": 1, "reason": "late", "rows": 4, "requeued": 1}],
)


@pytest.fixture
def database(tmp_path):
    with Results(f"sqlite:///{tmp_path / 'results.db'}") as opened:
        assert opened.projected("mine") == 0
        yield opened


def content(database: Results) -> dict[str, list[dict[str, object]]]:
    return {table.name: database.table(table) for table in TABLES}


def test_what_is_projected_is_there(database):
    database.project(FIRST)
    assert database.projected("mine") == 3
    known, unknown = database.estimates()
    assert (known["value"], known["standard_error"], known["low"], known["high"]) == (
        0.25,
        None,
        None,
        1.0,
    )
    assert unknown["value"] is None
    assert known["reports_by_level"] == [3, 4]
    assert database.table(QUARANTINE) == [
        {"generation": 1, "reason": "late", "rows": 4, "requeued": 1}
    ]


def test_changed_windows_are_replaced_and_others_left(database):
    database.project(FIRST)
    later = replace(
        FIRST,
        generation=5,
        changed=[([window(10, 5)], [estimate(10, "blue", 0.5, 5)])],
        quarantine=[],
    )
    database.project(later)
    assert [(r["window_start"], r["item"], r["revision"]) for r in database.estimates()] == [
        (0, "red", 1),
        (10, "blue", 5),
    ]
    assert [row["revision"] for row in database.table(WINDOWS)] == [1, 5]
    assert database.table(QUARANTINE) == []


@pytest.mark.parametrize("generation", [2, 3])
def test_a_generation_that_is_not_ahead_is_refused(database, generation):
    database.project(FIRST)
    before = content(database)
    with pytest.raises(AggregationError, match="not behind"):
        database.project(replace(FIRST, generation=generation, changed=[([window(0, 9)], [])]))
    assert content(database) == before


def test_another_state_directory_is_refused(database):
    database.project(FIRST)
    before = content(database)
    with pytest.raises(AggregationError, match="another state directory"):
        database.projected("theirs")
    with pytest.raises(AggregationError, match="not behind"):
        database.project(replace(FIRST, state="theirs", generation=9))
    assert content(database) == before


def test_a_failure_leaves_everything_as_it_was(database, monkeypatch):
    database.project(FIRST)
    before = content(database)
    whole = tables._insert

    def fails(connection: sql.Connection, table: sql.Table, rows: object) -> None:
        if table is QUARANTINE:
            raise sql.exc.OperationalError("INSERT", {}, Exception("disk full"))
        whole(connection, table, rows)

    monkeypatch.setattr(tables, "_insert", fails)
    with pytest.raises(AggregationError, match=r"generation 4 is committed.*disk full"):
        database.project(replace(FIRST, generation=4))
    assert content(database) == before
    monkeypatch.undo()
    database.project(replace(FIRST, generation=4))
    assert database.projected("mine") == 4


def test_estimates_are_found_by_metric_and_time(database):
    database.project(FIRST)
    assert len(database.estimates("colour")) == 2
    assert database.estimates("shape") == []
    assert [row["window_start"] for row in database.estimates(at=9)] == [0]
    assert [row["window_start"] for row in database.estimates("colour", 10)] == [10]
    assert database.estimates(at=20) == []


def test_a_database_that_cannot_be_used_is_an_error(tmp_path):
    with pytest.raises(AggregationError, match="cannot be used"):
        Results("no url")
    with (
        Results(f"sqlite:///{tmp_path / 'none' / 'results.db'}") as database,
        pytest.raises(AggregationError, match="unable to open"),
    ):
        database.projected("mine")
    with pytest.raises(AggregationError, match="no results"):
        Results(f"sqlite:///{tmp_path / 'results.db'}", create=False)
    (tmp_path / "empty.db").touch()
    with (
        Results(f"sqlite:///{tmp_path / 'empty.db'}", create=False) as database,
        pytest.raises(AggregationError, match="no such table"),
    ):
        database.estimates()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory"])
def test_results_are_not_kept_in_memory(url):
    with pytest.raises(AggregationError, match="must be a file"):
        Results(url)


@pytest.mark.parametrize("name", ["a?mode=ro", "pc%20x", "a#b"])
def test_a_state_directory_may_have_any_name(tmp_path, name):
    (tmp_path / name).mkdir()
    with Results(of_state(tmp_path / name)) as database:
        database.projected("mine")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["results.db"]
    assert (tmp_path / name / "results.db").exists()


def test_who_reads_does_not_keep_a_run_from_writing(database, tmp_path):
    database.project(FIRST)
    with closing(sqlite3.connect(tmp_path / "results.db", isolation_level=None)) as reader:
        reader.execute("begin")
        before = reader.execute("select projected_generation from meta").fetchall()
        database.project(replace(FIRST, generation=4))
        assert reader.execute("select projected_generation from meta").fetchall() == before
    assert database.projected("mine") == 4


def test_the_tables_are_made_in_postgresql_too():
    from sqlalchemy.dialects import postgresql

    for table in TABLES:
        statement = sql.schema.CreateTable(table).compile(dialect=postgresql.dialect())
        assert "PRIMARY KEY" in str(statement)


def test_a_database_made_before_a_column_was_there_is_given_it(tmp_path):
    file = tmp_path / "results.db"
    with Results(f"sqlite:///{file}") as database:
        database.projected("mine")
        database.project(FIRST)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE estimates DROP COLUMN method")
        connection.execute("ALTER TABLE quarantine DROP COLUMN requeued")
        for table, column in (("estimates", "withheld"), ("windows", "withheld")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("ALTER TABLE windows DROP COLUMN minimum_reports")
        for table in ("estimates", "windows"):
            found = connection.execute(f"SELECT name FROM pragma_table_info('{table}')")
            names = ", ".join(name for (name,) in found if name != "segment")
            connection.execute(f"CREATE TABLE former AS SELECT {names} FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE former RENAME TO {table}")
    with Results(f"sqlite:///{file}") as database:
        assert database.projected("mine") == 3
        assert {row["method"] for row in database.estimates()} == {None}
        assert {row["withheld"] for row in database.table(WINDOWS)} == {None}
        assert {row["segment"] for row in database.estimates()} == {""}
        later = Projection("mine", 4, 99, [([window(0, 4)], [estimate(0, "red", 0.5, 4)])], [], [])
        database.project(later)
        assert [row["method"] for row in database.estimates()] == ["unbiased", None]
