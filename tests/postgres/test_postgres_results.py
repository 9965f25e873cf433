"""Results in PostgreSQL are those of SQLite: views with timestamps and comments, reader, pandas."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sql
from documented_queries import DEVICES, comparable, grafana_queries, queries
from invented_results import DAY, START, invented, write_results
from local_postgres import LocalPostgres
from made_documents import project
from waiting import at_once

from examples.notebooks.small_job import play
from pipelines.bounded.run import aggregate
from pipelines.results.database import NoResultsError, ResultsError, UnreadableError
from pipelines.results.fields import moment
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.tables import METADATA, SINK_METADATA
from pipelines.results.views import VIEWS
from pipelines.sinks.sql import SqlSink

pytestmark = pytest.mark.slow


@pytest.fixture
def reader(url: sql.URL) -> Iterator[ResultsReader]:
    with ResultsReader(url) as opened:
        yield opened


def test_the_reader_reads_what_it_reads_of_sqlite(
    reader: ResultsReader, url: sql.URL, tmp_path: Path
) -> None:
    with pytest.raises(NoResultsError):
        reader.revision()
    project(url, invented())
    other = ResultsReader(write_results(tmp_path))
    assert reader.revision() == other.revision()
    second = moment(START + 7 * DAY)
    for chosen in (Chosen(), Chosen(newest=True), Chosen(segment="os=linux"), Chosen(until=second)):
        assert reader.estimates(chosen) == other.estimates(chosen)
        assert reader.windows(chosen) == other.windows(chosen)
        assert reader.metrics(chosen) == other.metrics(chosen)
    assert reader.newest_windows() == other.newest_windows()
    assert reader.newest_estimates(["share", "mean"], 2) == other.newest_estimates(
        ["share", "mean"], 2
    )
    assert reader.reports() == other.reports()
    assert reader.budgets() == other.budgets()
    assert reader.rejections() == other.rejections()
    assert reader.health() == other.health()
    for view in VIEWS:
        page = reader.page(view, limit=1)
        assert page == other.page(view, limit=1)
        if page.next is not None:
            assert reader.page(view, after=page.next) == other.page(view, after=page.next)
    lengths = [sum(map(len, batches)) for batches in reader.read_all(VIEWS, lambda _, b: [*b])]
    assert lengths == [len(other.page(view).rows) for view in VIEWS]


def test_views_have_timestamps_and_all_has_comments(url: sql.URL) -> None:
    project(url, invented())
    with SqlSink(url) as database:
        database.prepare()
    engine = sql.create_engine(url)
    with engine.connect() as connection:
        shares = pd.read_sql("SELECT * FROM shares WHERE metric = 'theme'", connection)
        assert shares.window_start.dt.tz is not None
        assert shares.window_start.min() == pd.Timestamp(START, unit="ms", tz="UTC")
        inspected = sql.inspect(connection)
        for name in (view.name for view in VIEWS):
            assert inspected.get_table_comment(name)["text"]
            assert all(each["comment"] for each in inspected.get_columns(name))
        for metadata in (METADATA, SINK_METADATA):
            for table in metadata.sorted_tables:
                assert inspected.get_table_comment(table.name)["text"] == table.comment
                for column in inspected.get_columns(table.name):
                    assert column["comment"] == table.columns[column["name"]].comment
        # Values that a document may hold, and no timestamp or number can.
        connection.execute(sql.text("UPDATE stored_windows SET window_end = 9000000000000000000"))
        connection.execute(sql.text("UPDATE stored_estimates SET item = item || 'x'"))
        assert (
            connection.execute(sql.text("SELECT window_end FROM windows")).scalars().first() is None
        )
        query = sql.text("SELECT probability FROM quantiles")
        assert connection.execute(query).scalars().all() == [None] * 3
    engine.dispose()


def test_several_writers_make_the_views_at_once(reader: ResultsReader, url: sql.URL) -> None:
    failures = []

    def prepare(_: int) -> None:
        try:
            with SqlSink(url) as database:
                database.prepare()
        except Exception as error:
            failures.append(error)

    at_once(prepare, range(4))
    assert failures == []
    project(url, invented())
    assert len(reader.windows()) == 10


def test_what_the_reader_is_given_is_only_read(
    reader: ResultsReader, url: sql.URL, server: LocalPostgres
) -> None:
    project(url, invented())
    statement = sql.text("DELETE FROM stored_windows")
    with pytest.raises(ResultsError, match="read-only"):
        reader._database.read(lambda connection: connection.execute(statement))
    assert len(reader.windows()) == 10
    server.stop()
    with pytest.raises(UnreadableError):
        reader.windows()
    server.start()
    assert len(reader.windows()) == 10


def test_documented_queries_give_the_same_rows_as_in_sqlite(
    server: LocalPostgres, url: sql.URL, tmp_path: Path
) -> None:
    state = play(tmp_path, DEVICES)
    # The same state, projected to another database.
    aggregate(tmp_path / "log", state, (), url)
    with closing(sqlite3.connect(state / "results.db")) as lite:
        for query in [*queries(), *grafana_queries()]:
            rows = comparable(lite.execute(query))
            assert comparable(server.execute(url.database, query)) == rows, query
