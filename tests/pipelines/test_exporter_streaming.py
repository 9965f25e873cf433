"""The exporter of a streaming job: what its sink has, and what Kafka says of its offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipelines.flink.jobfolder import Known
from step_plans import plans
from watched import FakeDocuments, FakeGroup, Watched, exposition, samples, sunk, value, watched

from pipelines.commit import StateDirectory
from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.database import Database
from pipelines.exporter.group import PREFIX, WatchedGroup
from pipelines.exporter.health import Health, Readers
from pipelines.exporter.lag import Lag
from pipelines.exporter.sources import MissingError, Status, read
from sotto.brokers import Broker
from sotto.cli import main
from sotto.errors import BrokerError
from sotto.log import now_ms
from sotto.registry import Registry
from sotto.topics import ReportTopic

#: Of drains alone: generations, files, how old a drain is.
DRAINS = {
    name
    for name in CATALOGUE
    if name.startswith(("sotto_drain_", "sotto_lag_"))
    or name == "sotto_database_behind_generations"
}
#: What depends on when and where it was read.
OTHERS = {"sotto_source_status", "sotto_state_bytes", "sotto_database_bytes"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return watched(tmp_path_factory.mktemp("streaming"))


@pytest.fixture
def database(job: Watched, tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'sunk.db'}"
    sunk(job.state, url)
    return url


def test_a_sink_s_database_says_what_the_job_s_own_does(job: Watched, database: str) -> None:
    drained = samples(exposition(job.state))
    streamed = samples(exposition(None, database=database, registry=Registry(plans())))
    compared = {name for name in drained if not name.startswith("sotto_exporter_")}
    compared -= DRAINS | OTHERS
    assert len(compared) > 25
    for name in sorted(compared):
        assert streamed.get(name) == drained[name], name
    states = value(drained, "sotto_state_bytes", part="states")
    assert value(streamed, "sotto_state_bytes", part="states") == states
    assert not set(streamed) & {name for name in DRAINS if name.startswith("sotto_drain_")}


def test_budgets_need_the_plans(database: str) -> None:
    streamed = samples(exposition(None, database=database))
    assert "sotto_period_spent_max_epsilon" in streamed
    assert "sotto_period_spent_max_ratio" not in streamed


def test_lag_and_the_age_of_documents_are_kafkas(job: Watched, database: str) -> None:
    documents = FakeDocuments(end=1000, newest=now_ms() - 30_000)
    group = FakeGroup()
    found = samples(exposition(None, group, database=database, documents=documents))
    assert group.asked == [StateDirectory(job.state).manifest().state]
    for source in ("database", "log", "documents"):
        assert value(found, "sotto_source_status", source=source, status="ok") == 1
    assert value(found, "sotto_lag_records") == 7
    assert value(found, "sotto_lag_lanes") == 2
    times = [
        value(found, "sotto_partition_timestamp_seconds", partition=f"reports-e1-p2/{number}")
        for number in range(2)
    ]
    assert times == [pytest.approx(now_ms() / 1000, abs=60), 0]
    assert value(found, "sotto_lag_seconds") == pytest.approx(60, abs=20)
    assert value(found, "sotto_document_age_seconds") == pytest.approx(30, abs=20)
    taken = 1000 - value(found, "sotto_sink_lag_records")
    assert 0 < taken < 1000


class Silent(FakeGroup):
    """A broker that takes its time not to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def lag(self, job: str | None) -> Lag:
        self.go.wait(20)
        raise BrokerError("nobody answers")


def scraped(health: Health) -> dict[str, dict[tuple[str, ...], float]]:
    """Return samples by name and labels."""
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in health.collect()
    }


def test_a_silent_broker_keeps_nothing_else_from_being_told(database: str) -> None:
    broker = Silent()
    health = Health(Readers(None, Database(database, 100), broker).readings, 0.0, 0.5)
    began = time.monotonic()
    found = scraped(health)
    assert time.monotonic() - began < 10
    assert found["sotto_source_status"]["database", "ok"] == 1
    assert found["sotto_exporter_deadline_exceeded"][()] == 1
    assert "sotto_estimate" in found
    broker.go.set()
    limit = time.monotonic() + 10
    while ("log", "unreadable") not in (found := scraped(health)["sotto_source_status"]):
        assert time.monotonic() < limit
    assert found["log", "unreadable"] == 1


def test_what_nobody_foresaw_is_told_without_its_words() -> None:
    def failing() -> Iterator[None]:
        raise RuntimeError("a value of somebody's")

    found = read(failing)
    assert (found.status, found.problem) == (Status.DAMAGED, "RuntimeError")


@pytest.mark.parametrize(
    "given",
    [
        ["--group", "g", "--database", "sqlite:///x.db"],
        ["--group", "g", "--state", "x", "--kafka", "localhost:1", "--topic", "reports-e1-p2"],
    ],
)
def test_a_group_that_is_of_no_topic_or_beside_a_state_directory_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exporter", *given]) == 2
    assert "--group" in capsys.readouterr().err


def test_the_group_is_that_of_the_job() -> None:
    assert Known("x").group == PREFIX + "x"
    with pytest.raises(MissingError):
        WatchedGroup(Broker("fake:9092"), [ReportTopic("reports", 1, 2)]).lag(None)
