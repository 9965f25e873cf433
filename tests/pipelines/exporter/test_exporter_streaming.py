"""The exporter of a streaming job: what its sink has, and what is behind its offsets in Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest
from fake_kafka import FakePartition
from kafka import TopicPartition
from made_documents import health_document, rejects_document
from prometheus_client import CollectorRegistry, generate_latest
from step_plans import plans
from waiting import wait_until
from watched import ESTIMATES_TOPIC, FakeDocuments, FakeStream, exposition, samples, value

from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.database import WatchedResults
from pipelines.exporter.health import JobsCollector, StreamReaders, WatchedJob
from pipelines.exporter.lag import Documents, Lag, WatchedDocuments, WatchedStream
from pipelines.exporter.readings import Status, read
from pipelines.results.documents import parse
from pipelines.sinks.base import Advance, ReadTopic
from pipelines.sinks.sql import SqlSink
from pipelines.sources.base import MissingError
from pipelines.storage.directory import StateDirectory
from sotto.clocks import now_ms
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.plan.registry import Registry

#: Figures of runs alone: generations, files, how old a run is, records from the future.
RUNS = {
    name
    for name in CATALOGUE
    if name.startswith(("sotto_run_", "sotto_lag_", "sotto_future_"))
    or name == "sotto_database_behind_generations"
}
#: Figures that depend on when and where they were read.
OTHERS = {"sotto_source_status", "sotto_state_bytes", "sotto_database_bytes"}


def test_a_sink_s_database_says_what_the_job_s_own_does(job, database):
    aggregated = samples(exposition(job.state))
    streamed = samples(exposition(None, database=database, registry=Registry(plans())))
    compared = {name for name in aggregated if not name.startswith("sotto_exporter_")}
    compared -= RUNS | OTHERS
    assert len(compared) > 25
    for name in sorted(compared):
        assert streamed.get(name) == aggregated[name], name
    held = StateDirectory(job.state).manifest().states.values()
    states = value(streamed, "sotto_state_bytes", part="states")
    assert states == sum(each.size for each in held) > 0
    # Files have an envelope besides, which a job's states have not.
    assert 0 <= value(aggregated, "sotto_state_bytes", part="states") - states < 100 * len(held)
    assert not set(streamed) & {name for name in RUNS if name.startswith("sotto_run_")}


def test_budgets_need_the_plans(database):
    streamed = samples(exposition(None, database=database))
    assert "sotto_period_spent_max_epsilon" in streamed
    assert "sotto_period_spent_max_ratio" not in streamed


def test_lag_and_the_age_of_documents_are_kafkas(job, database):
    documents = FakeDocuments(end=1000, newest=now_ms() - 3_000_000)
    stream = FakeStream()
    found = samples(exposition(None, stream, database=database, documents=documents))
    assert stream.asked == [StateDirectory(job.state).manifest().positions]
    for source in ("database", "log", "documents"):
        assert value(found, "sotto_source_status", source=source, status="ok") == 1
    assert value(found, "sotto_lag_records") == 7
    assert value(found, "sotto_lag_partitions") == 1
    for number, progress in enumerate(((12, 7), (5, 0))):
        name = f"reports-e1-p2/{number}"
        offset = value(found, "sotto_partition_offset", partition=name)
        assert (offset, value(found, "sotto_partition_lag_records", partition=name)) == progress
    assert value(found, "sotto_lag_seconds") == pytest.approx(6000, abs=1000)
    assert value(found, "sotto_document_age_seconds") == pytest.approx(3000, abs=1000)
    taken = 1000 - value(found, "sotto_sink_lag_records")
    assert 0 < taken < 1000


def test_jobs_of_several_collectors_are_told_apart(job, database):
    """Each has what its own topic says; of the others nothing is lost."""
    theirs = SinkTopic("theirs", "estimates")
    with SqlSink(database) as written:
        documents = [
            rejects_document("their job", "theirs.example", {"late": 3}, 1),
            health_document(
                "their job", "theirs.example", {"offsets": {"a@b/0": 9}, "future": 5}, 1
            ),
        ]
        read = [Advance(0, 0, 2)]
        written.write([parse(*each) for each in documents], ReadTopic(str(theirs), "two", read))
    ours, other, unheard = FakeStream(), FakeStream(), FakeStream()
    streams = [
        WatchedJob(str(topic), stream, FakeDocuments(1000, now_ms()))
        for topic, stream in ((theirs, other), (ESTIMATES_TOPIC, ours), ("none-estimates", unheard))
    ]
    health = JobsCollector({"": StreamReaders(WatchedResults(database, 100), streams).readings})
    collectors = CollectorRegistry()
    collectors.register(health)
    found = samples(generate_latest(collectors).decode())
    assert other.asked == [{"a@b/0": 9}]
    assert ours.asked == [StateDirectory(job.state).manifest().positions]
    assert unheard.asked == []
    late = {"collector": "theirs.example", "reason": "late"}
    assert value(found, "sotto_reports_rejected_total", **late) == 3
    assert value(found, "sotto_future_records_total", collector="theirs.example") == 5
    lag = {dict(series)["collector"] for series in found["sotto_lag_records"]}
    assert lag == {"tests.example", "theirs.example"}
    missing = {"collector": "none-estimates", "source": "database", "status": "missing"}
    assert value(found, "sotto_source_status", **missing) == 1
    assert {dict(series)["collector"] for series in found["sotto_estimate"]} == {"tests.example"}


class Silent(FakeStream):
    go = threading.Event()

    def lag(self, taken: Mapping[str, int]) -> Lag:
        self.go.wait(600)
        raise BrokerError("nobody answers")


def test_a_silent_broker_keeps_nothing_else_from_being_told(database):
    broker = Silent()
    stream = WatchedJob(str(ESTIMATES_TOPIC), broker, FakeDocuments(0, 0))
    readers = StreamReaders(WatchedResults(database, 100), [stream])
    health = JobsCollector({"": readers.readings}, 0.0, 0.1)

    def scraped() -> dict[str, dict[tuple[str, ...], float]]:
        return {
            family.name: {tuple(one.labels.values())[1:]: one.value for one in family.samples}
            for family in health.collect()
        }

    wait_until(lambda: "sotto_estimate" in scraped())
    found = scraped()
    assert found["sotto_source_status"]["database", "ok"] == 1
    assert found["sotto_exporter_deadline_exceeded"][()] >= 1
    broker.go.set()
    wait_until(lambda: ("log", "unreadable") in scraped()["sotto_source_status"])


def test_what_nobody_foresaw_is_told_without_its_words():
    def failing() -> Iterator[None]:
        raise RuntimeError("a value of somebody's")

    found = read(failing)
    assert (found.status, found.problem) == (Status.DAMAGED, "RuntimeError")


@pytest.fixture
def topic(cluster):
    for number in (0, 0, 0, 1):
        cluster.partition(number).append(now_ms() - 60_000, b"any")
    return cluster


def lag_behind(*offsets: int) -> Lag:
    stream = WatchedStream(Broker("fake:9092"), [ReportTopic("reports", 1, 2)])
    return stream.lag({f"reports-e1-p2@one/{at}": offset for at, offset in enumerate(offsets)})


def test_the_lag_of_a_job_is_what_is_behind_the_offsets_of_its_health(topic):
    found = lag_behind(1, 1)
    assert (found.records, found.lagging, found.size) == (2, 1, None)
    assert found.oldest == topic.partition(0).records[1].timestamp
    assert found.partitions == {"reports-e1-p2/0": (1, 2), "reports-e1-p2/1": (1, 0)}
    # A partition of which the job says nothing is not read at all.
    assert lag_behind(3).partitions["reports-e1-p2/1"] == (0, 1)


def test_documents_that_the_sink_has_not_taken_are_counted_by_offsets(topic):
    name, partition = TopicPartition("reports-estimates", 0), FakePartition()
    watched = WatchedDocuments(Broker("fake:9092"), ESTIMATES_TOPIC)
    with pytest.raises(MissingError, match="no topic reports-estimates"):
        watched.read({})
    topic.partitions[name], topic.ids[name.topic] = partition, "two"
    assert watched.read({}) == Documents(None, 0)
    for time in (5, 7, 9):
        partition.append(time, b"any")
    partition.delete_before(1)
    made = topic.consumers
    assert [watched.read({name: at}) for at in (0, 2)] == [Documents(9, 2), Documents(9, 1)]
    assert topic.consumers - made == 2  # one a reading


def test_what_is_given_back_is_read_too(topic):
    requeue = TopicPartition("reports-requeue", 0)
    topic.partitions[requeue], topic.ids["reports-requeue"] = FakePartition(), "two"
    first = now_ms() - 5
    topic.partitions[requeue].append(first, b"again", kind=0)
    stream = WatchedStream(Broker("fake:9092"), [ReportTopic("reports", 1, 2)])
    taken = {"reports-e1-p2@one/0": 3, "reports-e1-p2@one/1": 1, "reports-requeue@two/0": 0}
    assert stream.lag(taken).partitions["reports-requeue/0"] == (0, 1)
    assert stream.lag(taken).oldest == first
    # Offsets of a topic that was deleted and created again mean nothing: all is left to read.
    topic.ids["reports-requeue"] = "three"
    assert stream.lag(taken | {"reports-requeue@two/0": 1}).partitions["reports-requeue/0"] == (
        0,
        1,
    )


def test_a_topic_that_is_gone_and_a_job_that_has_said_nothing_are_missing(topic, job, tmp_path):
    topic.ids.clear()
    with pytest.raises(MissingError, match="called reports"):
        lag_behind(0)
    unwritten = f"sqlite:///{tmp_path / 'none.db'}"
    found = samples(exposition(None, FakeStream(), database=unwritten))
    assert value(found, "sotto_source_status", source="log", status="missing") == 1
