"""The views for people, and the page that says what they and the tables are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from invented_results import write_results

from docs.writers import tables
from pipelines.results import schema
from pipelines.results.tables import METADATA, SINK_METADATA
from pipelines.results.views import VIEWS
from pipelines.sinks.sql import Results, SqlSink

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "tables.md"


@pytest.fixture
def connection(tmp_path):
    write_results(tmp_path)
    with closing(sqlite3.connect(tmp_path / "results.db")) as opened:
        yield opened


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == tables.page(), "write it again with `make docs`"


def test_every_table_and_column_is_described():
    for metadata in (METADATA, SINK_METADATA):
        for table in metadata.sorted_tables:
            assert table.comment, table.name
            assert [column.name for column in table.columns if not column.comment] == []


def test_views_have_their_columns_and_rows(connection):
    numbers = {}
    for view in VIEWS:
        cursor = connection.execute(f"SELECT * FROM {view.name}")
        assert [name for name, *_ in cursor.description] == [each.name for each in view.columns]
        numbers[view.name] = len(cursor.fetchall())
    assert numbers == {
        "latest_estimates": 26,
        "shares": 30,
        "means": 5,
        "quantiles": 3,
        "estimates": 62,
        "windows": 10,
        "experiments": 0,
        "alarms": 0,
        "metrics": 4,
        "rejections": 2,
        "budgets": 1,
    }


def test_times_are_times_and_epsilon_is_epsilon(connection):
    query = "SELECT window_start, segment, share FROM shares WHERE item = 'light'"
    assert connection.execute(query).fetchall()[2:] == [
        ("2025-01-16T00:00:00.000Z", "", 0.6),
        ("2025-01-16T00:00:00.000Z", "os=linux", 0.7),
    ]
    query = "SELECT period_end, accepted, most_observed FROM budgets"
    assert connection.execute(query).fetchall() == [("2025-01-09T00:00:00.000Z", 1400, 31)]
    assert connection.execute("SELECT probability, quantile FROM quantiles").fetchall() == [
        (0.25, 10),
        (0.5, 20),
        (0.75, 30),
    ]
    connection.execute("UPDATE stored_windows SET window_end = 1000000000000000000")
    assert connection.execute("SELECT DISTINCT window_end FROM windows").fetchall() == [(None,)]


def test_views_of_another_release_are_made_anew(tmp_path, connection):
    connection.execute(f"DROP VIEW {schema.VERSION}")
    connection.execute("DROP VIEW shares")
    connection.execute("CREATE VIEW shares AS SELECT 1 AS one")
    with SqlSink(f"sqlite:///{tmp_path / 'results.db'}") as database:
        database.prepare()
        columns = {each.name for each in VIEWS[1].columns}
        query = "SELECT name FROM pragma_table_info('shares')"
        assert {name for (name,) in connection.execute(query)} == columns
        assert connection.execute("SELECT count(*) FROM sink_jobs").fetchone() == (0,)
        assert len(connection.execute("SELECT * FROM estimates").fetchall()) == 62


def test_a_database_that_has_all_is_not_written_to(tmp_path, connection):
    before = connection.execute("PRAGMA schema_version").fetchone()
    with Results(f"sqlite:///{tmp_path / 'results.db'}") as results:
        results.prepare()
    assert connection.execute("PRAGMA schema_version").fetchone() == before
