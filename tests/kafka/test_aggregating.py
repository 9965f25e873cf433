"""Aggregating topics of a real broker: like a log, over TLS, refusals."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest
from aggregated import PATIENCE, aggregated, configure, contents, new_topic, produce, read_all
from committed_states import empty_state
from kafka import KafkaProducer
from report_logs import append
from yesterday import publish

from clientsdk import Broker
from clientsdk.testing import small_plan
from pipelines.bounded.run import aggregate
from pipelines.storage.directory import StateDirectory
from sotto.errors import BrokerError

pytestmark = pytest.mark.slow

DEVICES = 20


def test_a_topic_gives_what_a_log_with_the_same_records_gives(broker, topic, tmp_path):
    sent = publish(broker, topic, DEVICES)
    produce(broker, topic, b"no report", b"\xff" * 400, bytes(70), partition=2)
    for record in read_all(broker, topic):
        append(tmp_path / "log", [(record.timestamp, record.value)], f"{record.partition}")
    for name in ("of-log", "of-topic"):
        shutil.copytree(empty_state(tmp_path / "empty"), tmp_path / name)
    one = aggregate(tmp_path / "log", tmp_path / "of-log", [small_plan()], max_reports=30)
    other = aggregated(broker, topic, tmp_path / "of-topic")
    assert contents(tmp_path / "of-log") == contents(tmp_path / "of-topic")
    assert (one.tally, one.rejects) == (other.tally, other.rejects)
    assert other.runs == one.runs >= 2  # every draw: there are more than 30 reports.
    assert other.tally.reports == sent == 2 * DEVICES
    assert (other.tally.counted, other.rejects) == (DEVICES, {"malformed": 3})


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


def test_times_of_the_senders_are_refused(broker, topic, tmp_path):
    """Also what was appended with them before the topic was put right."""
    publish(broker, topic, 1)
    configure(broker, topic, "message.timestamp.type", "CreateTime")
    with pytest.raises(BrokerError, match="LogAppendTime"):
        aggregated(broker, topic, tmp_path)
    produce(broker, topic, b"forged")
    configure(broker, topic, "message.timestamp.type", "LogAppendTime")
    result = aggregated(broker, topic, tmp_path)
    assert (result.tally.reports, result.rejects) == (2, {"corrupt_log": 1})


def command(*given: object) -> list[str]:
    return [sys.executable, "-m", "sotto", "aggregate", *map(str, given)]


def test_the_command_aggregates_over_tls(secured, tmp_path, plan_file):
    broker = Broker.from_file(secured.client_file)
    topic = new_topic(broker)
    publish(broker, topic, 2)
    where = ["--broker", secured.client_file, "--topic", topic, "--state", tmp_path / "state"]
    done = subprocess.run(
        command("--plan", plan_file, *where), capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("generation 1: 4 reports, 4 messages, 1 runs")
    assert "password" not in done.stdout


def test_following_outlives_a_broker_that_is_killed(local, broker, topic, tmp_path, plan_file):
    publish(broker, topic, 1)
    where = ["--kafka", broker.servers, "--topic", topic, "--state", tmp_path / "state"]
    follower = subprocess.Popen(
        command("--plan", plan_file, *where, "--follow", "--every", "1s"),
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
