"""Runs whose results go to PostgreSQL: whole or not at all, with readers, faults and restarts."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
import sqlalchemy as sql
from committed_states import projected
from local_postgres import LocalPostgres
from report_logs import faulty, honest, write
from step_plans import plans
from waiting import wait_until

from pipelines.bounded.run import aggregate
from pipelines.results.tables import Row
from pipelines.sinks import rows as written_rows
from pipelines.sinks.sql import Results
from sotto_cli import main

pytestmark = pytest.mark.slow

MAX_REPORTS = 30


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("postgres") / "log", honest(8, 2, 21) + faulty(22))


@pytest.fixture(scope="module")
def truth(log: Path) -> dict[str, list[dict[str, object]]]:
    """The tables of SQLite after runs that nothing disturbs."""
    state = log.parent / "undisturbed"
    # every draw: there are more reports than two runs take.
    assert aggregate(log, state, plans(), max_reports=MAX_REPORTS).runs >= 3
    return named(projected(state))


def named(tables: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    """Return tables without what is random about a state directory."""
    for row in tables["meta"]:
        del row["state"], row["lineage"]
    return tables


def text(url: sql.URL) -> str:
    return url.render_as_string(hide_password=False)


def test_the_tables_are_those_of_sqlite(
    log: Path, truth: object, url: sql.URL, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aggregate(log, tmp_path / "state", plans(), url, max_reports=MAX_REPORTS)
    assert named(projected(text(url))) == truth
    assert main(["estimates", "--database", text(url), "--format", "csv"]) == 0
    of_postgres = capsys.readouterr().out
    undisturbed = f"sqlite:///{log.parent / 'undisturbed' / 'results.db'}"
    assert main(["estimates", "--database", undisturbed, "--format", "csv"]) == 0
    assert of_postgres == capsys.readouterr().out
    assert main(["exporter", "--database", text(url), "--once"]) == 0
    status = 'sotto_source_status{collector="tests.example",source="database",status="ok"} 1'
    assert status in capsys.readouterr().out


def killed(log: Path, state: Path, url: sql.URL) -> None:
    """Run, and die at the end of the transaction, before the last table is written."""
    written = written_rows._insert

    def die(connection: sql.Connection, into: sql.Table, rows: Iterable[Row]) -> None:
        if into.name == "quarantine":
            os._exit(9)
        written(connection, into, rows)

    written_rows._insert = die
    aggregate(log, state, plans(), url, max_reports=MAX_REPORTS)


def test_a_run_killed_within_the_transaction_leaves_nothing_of_it(
    log: Path, truth: object, url: sql.URL, tmp_path: Path
) -> None:
    process = multiprocessing.get_context("forkserver").Process(
        target=killed, args=(log, tmp_path / "state", url)
    )
    process.start()
    process.join(600)
    assert process.exitcode == 9
    assert not any(projected(text(url)).values())
    aggregate(log, tmp_path / "state", plans(), url, max_reports=MAX_REPORTS)
    assert named(projected(text(url))) == truth


def test_who_reads_sees_whole_generations(log: Path, url: sql.URL, tmp_path: Path) -> None:
    with Results(url) as results:
        results.prepare()
    done, seen = threading.Event(), set()
    torn: list[tuple[int, int]] = []

    def read() -> None:
        engine = sql.create_engine(url).execution_options(isolation_level="REPEATABLE READ")
        newest_window = "SELECT coalesce(max(revision), 0) FROM stored_windows"
        query = sql.text(f"SELECT projected_generation, ({newest_window}) FROM meta")
        last = False
        while not last:
            last = done.is_set()
            with engine.connect() as connection:
                for generation, newest in connection.execute(query):
                    seen.add(generation)
                    if newest > generation:
                        torn.append((generation, newest))
        engine.dispose()

    def look(step: str) -> None:
        """Go on when somebody has read something, so that one generation more is seen."""
        wait_until(lambda: seen or step != "projected")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        aggregate(log, tmp_path / "state", plans(), url, max_reports=MAX_REPORTS, checkpoint=look)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert torn == []
    assert len(seen) >= 2  # every draw: generations that runs commit.


def test_a_wrong_password_is_told_without_it(log: Path, url: sql.URL, tmp_path: Path) -> None:
    wrong = url.set(password="not this one")
    told = aggregate(log, tmp_path / "state", plans(), wrong).unpublished
    assert "password authentication failed" in told
    assert "not this one" not in told


def test_a_database_that_was_gone_is_caught_up(
    log: Path, truth: object, url: sql.URL, tmp_path: Path, server: LocalPostgres
) -> None:
    state = tmp_path / "state"
    crashed = []

    def crash(step: str) -> None:
        if step == "committed" and not crashed:
            crashed.append(step)
            server.stop(crash=True)

    counted = aggregate(log, state, plans(), url, max_reports=MAX_REPORTS, checkpoint=crash)
    assert counted.runs == counted.generation != 1
    assert "the database cannot be used" in counted.unpublished
    server.start()
    aggregate(log, state, plans(), url, max_reports=MAX_REPORTS)
    assert named(projected(text(url))) == truth
