"""The exporter beside jobs that read a real broker, and beside a sink."""

from __future__ import annotations

import pytest
from aggregated import aggregated, produce
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from yesterday import publish

from clientsdk.testing import small_plan
from pipelines.bounded.run import aggregate
from pipelines.sinks.kafka import EstimatesTopic
from pipelines.sinks.sql import SqlSink
from pipelines.sinks.transfer import Transfer
from pipelines.sources.kafka import KafkaTopics
from sotto.kafka.admin import connected
from sotto.kafka.topics import SinkTopic, Stay
from sotto_cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def exposed(local, capsys):
    """Says what an exporter exposes: samples of the whole job, and which sources are what."""

    def read(*given: object) -> dict[str, float]:
        assert (
            main(["exporter", "--broker", str(local.client_file), *map(str, given), "--once"]) == 0
        )
        found = {}
        for family in text_string_to_metric_families(capsys.readouterr().out):
            for sample in family.samples:
                if set(sample.labels) == {"collector"}:
                    found[sample.name] = sample.value
                elif sample.name == "sotto_source_status" and sample.value:
                    found[f"{sample.labels['source']} {sample.labels['status']}"] = sample.value
        return found

    return read


def test_lag_sink_and_documents_are_told(broker, topic, tmp_path, exposed):
    plan, database = tmp_path / "plan.json", f"sqlite:///{tmp_path / 'results.db'}"
    plan.write_bytes(small_plan().to_json())
    given = "--topic", topic, "--database", database, "--plan", plan
    found = exposed(*given)
    assert {"database missing", "log missing", "documents missing"} <= set(found)
    estimates = SinkTopic(topic.name, "estimates")
    with connected(broker) as topics:
        topics.create_sink(estimates, 1, 1, Stay(1, 1))
    found = exposed(*given)
    assert {"log missing", "documents ok"} <= set(found)
    assert found["sotto_sink_lag_records"] == 0
    assert "sotto_document_age_seconds" not in found

    # Whoever publishes them, documents are the same; a run is quicker to start than Flink.
    read = publish(broker, topic, 4)
    state = tmp_path / "state"
    job = EstimatesTopic(broker, estimates)
    aggregate(KafkaTopics(broker, [topic]), state, [small_plan()], publish=job)
    found = exposed(*given)
    # every draw: a lag of records and a time, of which none is drawn.
    assert found["sotto_sink_lag_records"] > 2
    # every draw: likewise.
    assert 0 <= found["sotto_document_age_seconds"] < 3600
    with SqlSink(database) as written, Transfer(broker, estimates, written) as sink:
        sink.run()
    found = exposed(*given)
    assert {"database ok", "log ok", "documents ok"} <= set(found)
    assert found["sotto_sink_lag_records"] == 0
    assert found["sotto_reports_read_total"] == read
    assert found["sotto_lag_records"] == found["sotto_lag_seconds"] == 0
    assert found["sotto_period_allowed_epsilon"]
    for number in range(topic.partitions):
        produce(broker, topic, b"not taken", partition=number)
    found = exposed(*given)
    assert found["sotto_lag_records"] == found["sotto_lag_partitions"] == topic.partitions
    assert 0 < found["sotto_lag_seconds"] < 3600  # every draw: a time.


def test_behind_the_marker_of_a_transaction_there_is_no_lag(broker, topic, tmp_path, exposed):
    state = tmp_path / "state"
    publish(broker, topic, 2)
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": str(topic)})
    producer.init_transactions(30)
    for commit, taken in ((True, topic.partitions), (False, 0)):
        producer.begin_transaction()
        for partition in range(topic.partitions):
            producer.produce(str(topic), b"no report", partition=partition)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        assert aggregated(broker, topic, state).rejects.get("malformed", 0) == taken
        found = exposed("--topic", topic, "--state", state)
        assert found["log ok"] == 1
        for name in ("records", "partitions", "seconds"):
            assert found[f"sotto_lag_{name}"] == 0
    publish(broker, topic, 2, first=2)
    assert exposed("--topic", topic, "--state", state)["sotto_lag_records"] == 4
