"""The exporter reads PostgreSQL as it reads SQLite, and does not wait for one that hangs."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import sqlalchemy as sql
from local_postgres import LocalPostgres
from step_plans import plans
from watched import FakeDocuments, FakeStream, exposition, samples, sunk, value, watched

from pipelines.exporter.database import WatchedResults
from pipelines.exporter.readings import Status, read
from pipelines.sources.base import MissingError
from sotto.clocks import now_ms
from sotto.plan.registry import Registry

pytestmark = pytest.mark.slow


def written(url: sql.URL) -> str:
    return url.render_as_string(hide_password=False)


def test_what_a_sink_has_written_is_exposed(url: sql.URL, tmp_path: Path) -> None:
    job = watched(tmp_path)
    with pytest.raises(MissingError):
        WatchedResults(url, 2000).read()
    number = sunk(job.state, written(url))
    assert sunk(job.state, f"sqlite:///{tmp_path / 'sunk.db'}") == number
    documents, registry = FakeDocuments(number, now_ms()), Registry(plans())

    def exposed(database: str) -> dict[str, object]:
        text = exposition(
            None, FakeStream(), database=database, documents=documents, registry=registry
        )
        found = samples(text)
        assert value(found, "sotto_source_status", source="database", status="ok") == 1
        return {name: found[name] for name in found if "_age_" not in name and "read" not in name}

    here, there = exposed(written(url)), exposed(f"sqlite:///{tmp_path / 'sunk.db'}")
    for name in ("sotto_database_bytes", "sotto_lag_seconds", "sotto_source_status"):
        here.pop(name, None), there.pop(name, None)
    assert here.keys() == there.keys()
    assert len(here) > 25  # every draw: names of metrics.
    assert here == there


def test_a_server_that_has_stopped_is_unreadable(url: sql.URL, server: LocalPostgres) -> None:
    database = WatchedResults(url, 2000)
    server.stop()
    found = read(database.read)
    assert found.status == Status.UNREADABLE
    assert url.password not in found.problem


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        database = WatchedResults(f"postgresql+psycopg://somebody:word@127.0.0.1:{port}/none", 10)
        began = time.monotonic()
        found = read(database.read)
        assert time.monotonic() - began < 120
    assert found.status == Status.UNREADABLE
    assert "word" not in found.problem.split()
