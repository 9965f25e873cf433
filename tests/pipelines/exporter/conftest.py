"""A job, its sink and a topic, which the exporter's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_kafka import FakeCluster, install
from watched import Watched, sunk, watched


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A job that no test changes."""
    return watched(tmp_path_factory.mktemp("job"))


@pytest.fixture
def database(job: Watched, tmp_path: Path) -> str:
    """The URL of a sink of what the job publishes."""
    url = f"sqlite:///{tmp_path / 'sunk.db'}"
    sunk(job.state, url)
    return url


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster("reports-e1-p2")
    install(monkeypatch, made)
    return made
