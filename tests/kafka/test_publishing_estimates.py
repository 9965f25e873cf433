"""Runs that publish to a real broker, and sinks that take it from there: killed, away, anew."""

from __future__ import annotations

import os
import shutil
import signal
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from aggregated import admin
from kafka import KafkaProducer

# A server of PostgreSQL is told in the folder of its own tests.
from local_postgres import PASSWORD, USER, LocalPostgres, binaries
from sink_child import killed_sink, sunk
from sink_documents import held
from yesterday import publish

from clientsdk import Broker
from clientsdk.testing import small_plan
from mechanisms.frozen import replace
from pipelines.bounded.run import RunResult, aggregate
from pipelines.sinks.committed import Note
from pipelines.sinks.kafka import EstimatesTopic
from pipelines.sinks.sql import DocumentDatabase, ProjectionError, of_state
from pipelines.sinks.transfer import Transfer, Transferred
from pipelines.sources.kafka import KafkaTopics
from pipelines.storage.directory import StateDirectory
from sotto.cli import main
from sotto.errors import AggregationError, BrokerError
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic, SinkTopic, Stay

pytestmark = pytest.mark.slow

#: Reports that a run of these tests takes at most.
MAX_REPORTS = 10


def estimates_topic(broker: Broker, topic: ReportTopic) -> SinkTopic:
    made = SinkTopic(topic.name, "estimates")
    with connected(broker) as topics:
        assert topics.create_sink(made, 1, 1, Stay(1, 1))
    return made


@pytest.fixture
def estimates(broker, topic):
    return estimates_topic(broker, topic)


def aggregated(
    broker: Broker, topic: ReportTopic, state: Path, to: SinkTopic, **options: object
) -> RunResult:
    """Aggregate a topic to its end, and publish."""
    to_topic = EstimatesTopic(options.pop("at", broker), to)  # type: ignore[arg-type]
    least = options.pop("least", small_plan().minimum_reports)
    options = {"max_reports": MAX_REPORTS, "publish": to_topic, **options}
    plan = replace(small_plan(), minimum_reports=least)
    return aggregate(KafkaTopics(broker, [topic]), state, [plan], **options)  # type: ignore[arg-type]


def results(url: object) -> dict[str, list[dict[str, object]]]:
    """Return what a database estimates, and of how much; not the way there."""
    tables = held(url)
    for row in tables["meta"]:
        del row["lineage"]
    rejects: dict[object, int] = {}
    for row in tables.pop("quarantine"):
        rejects[row["reason"]] = rejects.get(row["reason"], 0) + int(str(row["rows"]))
    return {**tables, "rejects": [rejects]}


def test_a_sink_has_what_the_run_has(local, broker, topic, estimates, tmp_path, capsys):
    state, url = tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}"
    publish(broker, topic, 12)
    done = aggregated(broker, topic, state, estimates)
    assert done.runs >= 2
    assert done.unpublished == ""
    first = sunk(broker, estimates, url)
    assert first.poison == first.lost == first.applied.others == first.applied.refused == 0
    assert results(url) == results(of_state(state))
    publish(broker, topic, 3, first=12)
    aggregated(broker, topic, state, estimates)
    assert sunk(broker, estimates, url).applied.written > 0
    assert results(url) == results(of_state(state))
    assert sunk(broker, estimates, url) == Transferred()
    assert main(["estimates", "--database", url]) == 0
    assert "colour" in capsys.readouterr().out
    assert main(["exporter", "--database", url, "--once"]) == 0
    assert "sotto_estimate{" in capsys.readouterr().out


def killed_run(file: str, topic: str, state: str, step: str) -> None:
    def kill_at(found: str) -> None:
        if found == step:
            os.kill(os.getpid(), signal.SIGKILL)

    broker, reports = Broker.from_file(file), ReportTopic.parse(topic)
    to = SinkTopic(reports.name, "estimates")
    aggregated(broker, reports, Path(state), to, checkpoint=kill_at)


def run_killed(server: ForkServerContext, target: object, *arguments: object) -> None:
    process = server.Process(target=target, args=arguments)  # type: ignore[arg-type]
    process.start()
    process.join(600)
    assert process.exitcode == -signal.SIGKILL


def test_a_run_killed_between_projection_and_publishing_publishes_what_is_missing(
    local, broker, server, topic, estimates, tmp_path
):
    state, url = tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}"
    publish(broker, topic, 4)
    run_killed(server, killed_run, str(local.client_file), str(topic), str(state), "projected")
    assert Note.load(StateDirectory(state)) is None
    assert sunk(broker, estimates, url) == Transferred()
    assert aggregated(broker, topic, state, estimates).unpublished == ""
    sunk(broker, estimates, url)
    assert results(url) == results(of_state(state))
    # Without its note everything is published again, and changes nothing.
    before = results(url)
    (state / "published.json").unlink()
    aggregated(broker, topic, state, estimates)
    again = sunk(broker, estimates, url)
    assert again.applied.stale == again.records > 0
    assert results(url) == before


def test_a_state_directory_restored_from_a_copy_publishes_nothing_over_what_there_is(
    broker, topic, estimates, tmp_path
):
    state, copy, url = tmp_path / "state", tmp_path / "copy", f"sqlite:///{tmp_path / 'sunk.db'}"
    publish(broker, topic, 2)
    aggregated(broker, topic, state, estimates)
    shutil.copytree(state, copy)
    for first in (2, 4):
        publish(broker, topic, 2, first=first)
        assert aggregated(broker, topic, state, estimates).unpublished == ""
    sunk(broker, estimates, url)
    before = results(url)
    assert before == results(of_state(state))
    # It takes at once what the other has taken in two runs.
    told = aggregated(broker, topic, copy, estimates).unpublished
    assert "does not know: it was restored from a copy" in told
    assert sunk(broker, estimates, url) == Transferred()
    assert results(url) == before


def test_a_sink_killed_anywhere_goes_on(local, broker, server, topic, estimates, tmp_path):
    state, url = tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}"
    publish(broker, topic, 8)
    aggregated(broker, topic, state, estimates)
    for when in ("before", "after"):
        run_killed(server, killed_sink, str(local.client_file), str(estimates), url, when, 2)
    sunk(broker, estimates, url)
    assert results(url) == results(of_state(state))


def test_a_broker_that_is_away_neither_blocks_nor_undoes_a_commit(
    broker, topic, estimates, tmp_path
):
    state, url = tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}"
    publish(broker, topic, 8)
    began = time.monotonic()
    away = aggregated(broker, topic, state, estimates, at=Broker("127.0.0.1:1"))
    assert time.monotonic() - began < 120
    assert away.runs >= 2
    assert "Connection refused" in away.unpublished
    assert results(of_state(state))["estimates"]
    back = aggregated(broker, topic, state, estimates)
    assert (back.runs, back.unpublished) == (0, "")
    sunk(broker, estimates, url)
    assert results(url) == results(of_state(state))


def test_records_that_are_no_documents_are_counted_and_left(broker, topic, estimates, tmp_path):
    state, url = tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}"
    producer = KafkaProducer(**broker.options(10))
    for key, value in ((b"k", b"junk"), (b"k", None), (b"[]", b'{"schema":1}')):
        producer.send(str(estimates), key=key, value=value)
    producer.flush(10)
    producer.close()
    publish(broker, topic, 3)
    aggregated(broker, topic, state, estimates)
    assert sunk(broker, estimates, url).poison == 3
    assert results(url) == results(of_state(state))


def test_a_topic_that_was_made_again_is_refused_and_published_to_anew(
    broker, topic, estimates, tmp_path
):
    state, url = tmp_path / "state", f"sqlite:///{tmp_path / 'sunk.db'}"
    publish(broker, topic, 3)
    aggregated(broker, topic, state, estimates)
    sunk(broker, estimates, url)
    before = results(url)
    with admin(broker) as client:
        client.delete_topics([str(estimates)])
        deadline = time.monotonic() + 300
        while str(estimates) in client.list_topics():
            assert time.monotonic() < deadline
    with pytest.raises(BrokerError, match=f"there is no topic {estimates}: create it with sotto"):
        sunk(broker, estimates, url)
    estimates_topic(broker, topic)
    assert aggregated(broker, topic, state, estimates).unpublished == ""
    with pytest.raises(AggregationError, match="deleted and created again"):
        sunk(broker, estimates, url)
    assert results(url) == before
    sunk(broker, estimates, url, replace=True)
    assert results(url) == before


def test_the_same_in_postgresql_while_that_goes_and_comes_back(broker, topic, estimates, tmp_path):
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    state, server = tmp_path / "state", LocalPostgres(programs)
    try:
        server.start()
        where = f"{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{server.port}/postgres"
        url = f"postgresql+psycopg://{where}"
        publish(broker, topic, 4)
        aggregated(broker, topic, state, estimates)
        with DocumentDatabase(url) as database, Transfer(broker, estimates, database) as sink:
            assert sink.run().applied.written > 0
            server.stop(crash=True)
            publish(broker, topic, 3, first=4)
            aggregated(broker, topic, state, estimates)
            with pytest.raises(ProjectionError, match="Connection refused"):
                sink.run()
            server.start()
            assert sink.run().applied.written > 0
            assert sink.run() == Transferred()
        assert results(url) == results(of_state(state))
    finally:
        server.remove()


def test_the_commands(local, broker, topic, estimates, tmp_path, capfd, monkeypatch):
    plan = tmp_path / "plan.json"
    plan.write_bytes(small_plan().to_json())
    where = ["--broker", str(local.client_file)]
    publish(broker, topic, 3)
    state = ["--topic", str(topic), "--state", str(tmp_path / "state")]
    aggregate = ["aggregate", "--plan", str(plan), *where, *state, "--publish", str(estimates)]
    assert main(aggregate) == 0
    capfd.readouterr()
    url = f"sqlite:///{tmp_path / 'sunk.db'}"
    sink = ["sink", *where, "--topic", str(estimates), "--database", url]
    assert main(sink) == 0
    assert "documents written" in capfd.readouterr().out
    assert main(["sink", *where, "--topic", str(topic), "--database", url]) == 2
    assert "followed by -estimates" in capfd.readouterr().err
    nowhere = ["sink", "--kafka", "127.0.0.1:1", "--topic", str(estimates), "--database", url]
    assert main([*nowhere, "--follow"]) == 2
    assert "is the broker running" in capfd.readouterr().err
    run_once = Transfer.run

    def interrupted(self: Transfer, *given: object) -> Transferred:
        done = run_once(self, *given)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return done

    monkeypatch.setattr(Transfer, "run", interrupted)
    assert main([*sink, "--follow", "--every", "50ms"]) == 0
    assert results(url) == results(of_state(tmp_path / "state"))
