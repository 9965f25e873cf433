"""Aggregating topics of a real broker: amid transactions, and while it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from aggregated import PATIENCE, aggregated
from kafka import KafkaProducer
from yesterday import publish

from pipelines.storage.directory import StateDirectory

pytestmark = pytest.mark.slow


def test_transactions_are_counted_once_they_are_committed(broker, topic, tmp_path):
    """What comes behind an open one waits, what is aborted is not counted, markers are passed."""
    publish(broker, topic, 2)
    # The broker ends a transaction that it takes for forgotten.
    options = {**broker.options(PATIENCE), "transaction_timeout_ms": 2 * PATIENCE * 1000}
    producer = KafkaProducer(transactional_id="test", **options)
    producer.init_transactions()
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        for partition in range(topic.partitions):
            producer.send(str(topic), value, partition=partition)
        producer.flush(PATIENCE)
        before = aggregated(broker, topic, tmp_path)
        assert (before.tally.reports, before.rejects) == (0 if commit else 4, {})
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()
    result = aggregated(broker, topic, tmp_path)
    assert (result.tally.reports, result.rejects) == (0, {"malformed": topic.partitions})
    assert aggregated(broker, topic, tmp_path).runs == 0


def test_following_outlives_a_broker_that_is_killed(local, broker, topic, tmp_path, plan_file):
    publish(broker, topic, 1)
    given = ["--kafka", broker.servers, "--topic", topic, "--state", tmp_path / "state"]
    given += ["--plan", plan_file, "--follow", "--every", "1s"]
    follower = subprocess.Popen(
        [sys.executable, "-m", "sotto", "aggregate", *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert follower.stdout is not None
        said = iter(follower.stdout.readline, "")
        assert any(line.startswith("generation 1: 2 reports") for line in said)
        local.kill()
        assert any("trying again" in line for line in said)
        local.start()
        publish(broker, topic, 2, first=1)
        assert any(line.startswith("generation 2: ") for line in said)
    finally:
        follower.send_signal(signal.SIGTERM)
        follower.communicate(timeout=600)
    aggregated(broker, topic, tmp_path / "state")
    assert StateDirectory(tmp_path / "state").manifest().tally.reports == 6
