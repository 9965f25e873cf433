"""The exporter beside a sink, and a job whose health says how far it has read."""

from __future__ import annotations

from pathlib import Path

import pytest
from aggregated import produce
from prometheus_client.parser import text_string_to_metric_families
from yesterday import publish

from clientsdk.testing import small_plan
from deploy.kafka.broker import LocalBroker
from pipelines.bounded.run import aggregate
from pipelines.sinks.kafka import EstimatesTopic
from pipelines.sinks.sql import DocumentDatabase
from pipelines.sinks.transfer import Transfer
from pipelines.sources.kafka import KafkaTopics
from sotto.cli import main
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic, SinkTopic, Stay

pytestmark = pytest.mark.slow


class Exposed:
    """What an exporter of a streaming job says now."""

    def __init__(self, local: LocalBroker, topic: ReportTopic, database: str, plan: Path) -> None:
        self._given = ["exporter", "--broker", str(local.client_file), "--topic", str(topic)]
        self._given += ["--database", database, "--plan", str(plan), "--once"]

    def read(self, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
        """Return samples without labels, and which sources are what."""
        assert main(self._given) == 0
        found = {}
        for family in text_string_to_metric_families(capsys.readouterr().out):
            for sample in family.samples:
                if not sample.labels:
                    found[sample.name] = sample.value
                elif sample.name == "sotto_source_status" and sample.value:
                    found[f"{sample.labels['source']} {sample.labels['status']}"] = sample.value
        return found


def test_lag_sink_and_documents_are_told(local, broker, topic, tmp_path, capsys):
    plan, database = tmp_path / "plan.json", f"sqlite:///{tmp_path / 'results.db'}"
    plan.write_bytes(small_plan().to_json())
    exposed = Exposed(local, topic, database, plan)
    found = exposed.read(capsys)
    assert {"database missing", "log missing", "documents missing"} <= set(found)
    estimates = SinkTopic(topic.name, "estimates")
    with connected(broker) as topics:
        topics.create_sink(estimates, 1, 1, Stay(1, 1))
    found = exposed.read(capsys)
    assert {"log missing", "documents ok"} <= set(found)
    assert found["sotto_sink_lag_records"] == 0
    assert "sotto_document_age_seconds" not in found

    # Whoever publishes them, documents are the same; a run is quicker to start than Flink.
    read = publish(broker, topic, 4)
    state = tmp_path / "state"
    job = EstimatesTopic(broker, estimates)
    aggregate(KafkaTopics(broker, [topic]), state, [small_plan()], publish=job)
    found = exposed.read(capsys)
    assert found["sotto_sink_lag_records"] > 2
    assert 0 <= found["sotto_document_age_seconds"] < 120
    with DocumentDatabase(database) as written, Transfer(broker, estimates, written) as sink:
        sink.run()
    found = exposed.read(capsys)
    assert {"database ok", "log ok", "documents ok"} <= set(found)
    assert found["sotto_sink_lag_records"] == 0
    assert found["sotto_reports_read_total"] == read
    assert found["sotto_lag_records"] == found["sotto_lag_seconds"] == 0
    assert found["sotto_period_allowed_epsilon"] > 0
    for number in range(topic.partitions):
        produce(broker, topic, b"not taken", partition=number)
    found = exposed.read(capsys)
    assert found["sotto_lag_records"] == found["sotto_lag_partitions"] == topic.partitions
    assert 0 < found["sotto_lag_seconds"] < 120
