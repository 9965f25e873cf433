"""The exporter beside jobs that read a real broker."""

from __future__ import annotations

import pytest
from aggregated import aggregated
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from yesterday import publish

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
