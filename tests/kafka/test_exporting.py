"""The exporter beside a job that aggregates a topic of a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from aggregated import aggregated
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from yesterday import publish

from deploy.kafka.broker import LocalBroker
from sotto.cli import main
from sotto.kafka.topics import ReportTopic

pytestmark = pytest.mark.slow


def exposed(
    capsys: pytest.CaptureFixture[str], local: LocalBroker, topic: ReportTopic, state: Path
) -> dict[str, float]:
    """Return the samples without labels, and the status of the log."""
    broker = ["--broker", str(local.client_file), "--topic", str(topic)]
    assert main(["exporter", "--state", str(state), *broker, "--once"]) == 0
    found = {}
    for family in text_string_to_metric_families(capsys.readouterr().out):
        for sample in family.samples:
            if not sample.labels:
                found[sample.name] = sample.value
            elif sample.labels.get("source") == "log" and sample.value:
                found[sample.labels["status"]] = sample.value
    return found


def test_what_no_run_has_taken_is_the_lag(local, broker, topic, tmp_path, capsys):
    state = tmp_path / "state"
    read = publish(broker, topic, 4)
    aggregated(broker, topic, state)
    found = exposed(capsys, local, topic, state)
    assert found["ok"] == 1
    assert found["sotto_lag_records"] == found["sotto_lag_seconds"] == 0
    assert found["sotto_reports_read_total"] == read
    publish(broker, topic, 3, first=4)
    found = exposed(capsys, local, topic, state)
    assert found["sotto_lag_records"] > 0
    assert 0 < found["sotto_lag_seconds"] < 120
    aggregated(broker, topic, state)
    assert exposed(capsys, local, topic, state)["sotto_lag_records"] == 0


def test_behind_the_marker_of_a_transaction_there_is_no_lag(local, broker, topic, tmp_path, capsys):
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
        found = exposed(capsys, local, topic, state)
        assert found["ok"] == 1
        for name in ("records", "partitions", "seconds"):
            assert found[f"sotto_lag_{name}"] == 0
    publish(broker, topic, 2, first=2)
    assert exposed(capsys, local, topic, state)["sotto_lag_records"] == 4
