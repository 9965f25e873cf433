"""A PostgreSQL database of the release before goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import release_before as before
import sqlalchemy as sql
from local_postgres import LocalPostgres

from pipelines.bounded.run import aggregate
from pipelines.results.reader import ResultsReader
from pipelines.results.tables import ESTIMATES
from pipelines.sinks.sql import Results, of_state
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError

pytestmark = pytest.mark.slow


def fill(url: sql.URL, state: Path) -> None:
    """Make the tables as the release before made them, with the rows of a state directory."""
    source, target = sql.create_engine(of_state(state)), sql.create_engine(url)
    with target.begin() as connection:
        for statement in before.postgres_statements():
            connection.exec_driver_sql(statement.replace("%", "%%"))
    made = sql.MetaData()
    made.reflect(target)
    with source.connect() as old, target.begin() as connection:
        for table in made.sorted_tables:
            if sql.inspect(old).has_table(table.name):
                rows = [dict(row) for row in old.execute(sql.select(table)).mappings()]
                if rows:
                    connection.execute(sql.insert(table), rows)
    source.dispose()
    target.dispose()


def test_results_are_kept_and_continued(url: sql.URL, tmp_path: Path) -> None:
    state, log = before.unpacked("state", tmp_path), before.unpacked("log", tmp_path)
    fill(url, state)
    with ResultsReader.of_state(state) as reader:
        earlier = {(each.metric, each.window_start, each.segment) for each in reader.windows()}
    with ResultsReader(url, state) as reader, Results(url) as results:
        assert {(each.metric, each.window_start, each.segment) for each in reader.windows()} == (
            earlier
        )
        assert {row["complete"] for row in results.table(ESTIMATES)} == {None}
        assert reader.newest_estimates(["share"], 2)
    aggregate(EmbeddedLog(log), state, [], url)
    with ResultsReader(url, state) as reader:
        later = {(each.metric, each.window_start, each.segment) for each in reader.windows()}
        (health,) = reader.health()
        assert {each.minimum_reports for each in reader.windows()} == {10}
    assert health.generation == StateDirectory(state).manifest().generation
    assert {key for key in earlier if key[2] == ""} <= later


def test_results_before_0_4_are_refused_and_what_is_advised_works(
    url: sql.URL, server: LocalPostgres, tmp_path: Path
) -> None:
    """Another database gets all results that the state has."""
    state, log = before.unpacked("state", tmp_path), before.unpacked("log", tmp_path)
    with ResultsReader.of_state(state) as reader:
        earlier = {(each.metric, each.window_start) for each in reader.windows()}
    server.execute(url.database, "CREATE TABLE windows (n bigint)")
    with pytest.raises(AggregationError, match="--database"):
        aggregate(EmbeddedLog(log), state, [], url)
    server.execute("postgres", f"CREATE DATABASE {url.database}_anew")
    anew = url.set(database=f"{url.database}_anew")
    aggregate(EmbeddedLog(log), state, [], anew)
    with ResultsReader(anew, state) as reader:
        assert {(each.metric, each.window_start) for each in reader.windows()} >= earlier
