"""What tests of the exporter share: a job, and a topic."""

from __future__ import annotations

import pytest
from fake_kafka import FakeCluster, install
from watched import Watched, watched


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A job that no test changes."""
    return watched(tmp_path_factory.mktemp("job"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster("reports-e1-p2")
    install(monkeypatch, made)
    return made
