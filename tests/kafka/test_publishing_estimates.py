"""Runs that publish to a real broker, and sinks that take it from there: killed, away, anew."""

from __future__ import annotations

import os
import shutil
import signal
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
from aggregated import PATIENCE, admin
from committed_states import projected
from kafka import KafkaProducer

# A server of PostgreSQL is told in the folder of its own tests.
from local_postgres import PASSWORD, USER, LocalPostgres
from sink_child import killed_sink, sunk
from waiting import wait_until
from yesterday import publish

from clientsdk import Broker
from clientsdk.testing import small_plan
from pipelines.beam.submission import JobFolder, Topics, submit
from pipelines.bounded.run import RunResult, aggregate
from pipelines.sinks.base import SinkError
from pipelines.sinks.committed import Note
from pipelines.sinks.kafka import EstimatesTopic
from pipelines.sinks.sql import SqlSink, of_state
from pipelines.sinks.transfer import Transfer, Transferred
from pipelines.sources.kafka import KafkaTopics
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError, BrokerError
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic, SinkTopic, Stay
from sotto_cli import main

pytestmark = pytest.mark.slow

DAY = Stay(86_400_000, 86_400_000)
#: Reports that a run of these tests takes at most.
MAX_REPORTS = 10


def results(url: object) -> dict[str, list[dict[str, object]]]:
    """Return what a database estimates, and of how much; not the way there."""
    tables = projected(url)
    for row in tables["meta"]:
        del row["lineage"], row["source"]
    rejects: dict[object, int] = {}
    for row in tables.pop("quarantine"):
        rejects[row["reason"]] = rejects.get(row["reason"], 0) + int(str(row["rows"]))
    return {**tables, "rejects": [rejects]}


class Job:
    """A topic of reports, a state that runs publish from, and a database that a sink writes."""

    def __init__(self, broker: Broker, topic: ReportTopic, state: Path, url: str) -> None:
        self.broker, self.topic, self.state, self.url = broker, topic, state, url
        self.estimates = SinkTopic(topic.name, "estimates")
        self.devices = 0

    def create_topic(self) -> None:
        with connected(self.broker) as topics:
            assert topics.create_sink(self.estimates, 1, 1, Stay(1, 1))

    def send(self, devices: int) -> None:
        publish(self.broker, self.topic, devices, first=self.devices)
        self.devices += devices

    def aggregate(
        self, state: Path | None = None, at: Broker | None = None, **options: Any
    ) -> RunResult:
        """Aggregate the topic to its end, and publish."""
        to = EstimatesTopic(at or self.broker, self.estimates)
        source = KafkaTopics(self.broker, [self.topic])
        options = {"max_reports": MAX_REPORTS, "publish": [to], **options}
        return aggregate(source, state or self.state, [small_plan()], **options)

    def sink(self, **options: Any) -> Transferred:
        return sunk(self.broker, self.estimates, self.url, **options)

    def check(self) -> None:
        """The sink's database has what that of the runs has."""
        assert results(self.url) == results(of_state(self.state))


@pytest.fixture
def job(broker, topic, tmp_path):
    made = Job(broker, topic, tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}")
    made.create_topic()
    return made


def killed_run(file: str, topic: str, state: str, step: str) -> None:
    def kill_at(found: str) -> None:
        if found == step:
            os.kill(os.getpid(), signal.SIGKILL)

    job = Job(Broker.from_file(file), ReportTopic.parse(topic), Path(state), "")
    job.aggregate(checkpoint=kill_at)


def run_killed(server: ForkServerContext, target: object, *arguments: object) -> None:
    process = server.Process(target=target, args=tuple(map(str, arguments)))  # type: ignore[arg-type]
    process.start()
    process.join(600)
    assert process.exitcode == -signal.SIGKILL


def test_a_run_killed_between_projection_and_publishing_publishes_what_is_missing(
    local, job, server
):
    job.send(4)
    run_killed(server, killed_run, local.client_file, job.topic, job.state, "projected")
    assert Note.load(StateDirectory(job.state)) is None
    assert job.sink() == Transferred()
    assert job.aggregate().unpublished == ""
    job.sink()
    job.check()
    # Without its note everything is published again, and changes nothing.
    (job.state / "published.json").unlink()
    job.aggregate()
    again = job.sink()
    assert again.records
    assert again.applied.stale == again.records
    job.check()


def test_a_state_directory_restored_from_a_copy_publishes_nothing_over_what_there_is(job, tmp_path):
    job.send(2)
    job.aggregate()
    copy = Path(shutil.copytree(job.state, tmp_path / "copy"))
    for _ in range(2):
        job.send(2)
        assert job.aggregate().unpublished == ""
    job.sink()
    # It takes at once what the other has taken in two runs.
    assert "does not know: it was restored from a copy" in job.aggregate(copy).unpublished
    assert job.sink() == Transferred()
    job.check()


def test_a_sink_killed_anywhere_goes_on(local, job, server):
    job.send(8)
    job.aggregate()
    for when in ("before", "after"):
        run_killed(server, killed_sink, local.client_file, job.estimates, job.url, when, 2)
    job.sink()
    job.check()


def test_a_broker_that_is_away_neither_blocks_nor_undoes_a_commit(job):
    job.send(8)
    began = time.monotonic()
    away = job.aggregate(at=Broker("127.0.0.1:1"))
    assert time.monotonic() - began < PATIENCE
    assert away.runs >= 2  # every draw: so many reports take two runs.
    assert "Connection refused" in away.unpublished
    assert results(of_state(job.state))["estimates"]
    back = job.aggregate()
    assert (back.runs, back.unpublished) == (0, "")
    first = job.sink()
    assert first.poison == first.lost == first.applied.others == first.applied.refused == 0
    job.check()


def test_records_that_are_no_documents_are_counted_and_left(broker, job):
    producer = KafkaProducer(**broker.options(PATIENCE))
    for key, value in ((b"k", b"junk"), (b"k", None), (b"[]", b'{"schema":1}')):
        producer.send(str(job.estimates), key=key, value=value)
    producer.flush(PATIENCE)
    producer.close()
    job.send(3)
    job.aggregate()
    assert job.sink().poison == 3
    job.check()


def test_a_topic_that_was_made_again_is_refused_and_published_to_anew(broker, job):
    job.send(3)
    job.aggregate()
    job.sink()
    with admin(broker) as client:
        client.delete_topics([str(job.estimates)])
        wait_until(lambda: str(job.estimates) not in client.list_topics())
    with pytest.raises(BrokerError, match=f"no topic {job.estimates}: create it with sotto"):
        job.sink()
    job.create_topic()
    assert job.aggregate().unpublished == ""
    with pytest.raises(AggregationError, match="deleted"):
        job.sink()
    job.check()
    job.sink(replace=True)
    job.check()


def test_the_same_in_postgresql_while_that_goes_and_comes_back(job):
    server = LocalPostgres()
    try:
        server.start()
        where = f"{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{server.port}/postgres"
        job.url = f"postgresql+psycopg://{where}"
        job.send(4)
        job.aggregate()
        with SqlSink(job.url) as database, Transfer(job.broker, job.estimates, database) as sink:
            assert sink.run().applied.written
            server.stop(crash=True)
            job.send(3)
            job.aggregate()
            with pytest.raises(SinkError, match="Connection refused"):
                sink.run()
            server.start()
            assert sink.run().applied.written
            assert sink.run() == Transferred()
        job.check()
    finally:
        server.remove()


def test_the_commands(local, job, plan_file, capfd, monkeypatch):
    topic, estimates, url = str(job.topic), str(job.estimates), job.url
    where = ["--broker", str(local.client_file)]
    job.send(3)
    state = ["--topic", topic, "--state", str(job.state)]
    assert main(["aggregate", "--plan", plan_file, *where, *state, "--publish", estimates]) == 0
    capfd.readouterr()
    sink = ["sink", *where, "--topic", estimates, "--database", url]
    assert main(sink) == 0
    assert "documents written" in capfd.readouterr().out
    assert main(["sink", *where, "--topic", topic, "--database", url]) == 2
    assert "followed by -estimates" in capfd.readouterr().err
    nowhere = ["sink", "--kafka", "127.0.0.1:1", "--topic", estimates, "--database", url]
    assert main([*nowhere, "--follow"]) == 2
    assert "is the broker running" in capfd.readouterr().err
    run_once = Transfer.run

    def interrupted(self: Transfer, *given: object) -> Transferred:
        done = run_once(self, *given)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return done

    job.send(3)
    job.aggregate()
    with monkeypatch.context() as patch:
        patch.setattr(Transfer, "run", interrupted)
        assert main([*sink, "--follow", "--every", "50ms"]) == 0
    job.check()
    assert job.sink() == Transferred()
    assert main(["estimates", "--database", url]) == 0
    assert "colour" in capfd.readouterr().out
    assert main(["exporter", "--database", url, "--once"]) == 0
    assert "sotto_estimate{" in capfd.readouterr().out


def test_a_stream_of_another_folder_is_refused_beside_documents(job, tmp_path):
    with connected(job.broker) as topics:
        assert topics.create_sink(SinkTopic(job.topic.name, "quarantine"), 1, 1, DAY)
    job.send(1)
    job.aggregate()
    other, io = JobFolder(tmp_path / "other"), Topics(job.broker, (job.topic,))
    with pytest.raises(AggregationError, match=f"{job.estimates} has documents of another job"):
        submit(other, io, [small_plan()], {}, [], until_end=True)
    assert other.job() is None
