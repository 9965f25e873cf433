"""Access to a broker with names: devices write and read nothing, others do their part."""

from __future__ import annotations

import pytest
from aggregated import PATIENCE, admin, read_all
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from messages import message
from yesterday import publish

from clientsdk import Broker, KafkaPublisher
from pipelines.sources.kafka import ReportEpochs
from sotto.errors import PublishError
from sotto.kafka.producers import end_producer, make_producer
from sotto.kafka.topics import ReportTopic
from sotto_cli import main

pytestmark = pytest.mark.slow

NAME = "access"
REPORTS, ESTIMATES, QUARANTINE, REQUEUE = (
    f"{NAME}-{each}" for each in ("e1-p2", "estimates", "quarantine", "requeue")
)


@pytest.fixture
def files(secured, plan_file):
    """Files of all roles, once topics and what they may do with them are made."""
    roles = {"devices": "devices", "aggregators": "aggregator"}
    roles |= {"readers": "reader", "operators": "operator"}
    principals = [word for role, who in roles.items() for word in (f"--{role}", f"User:{who}")]
    command = ["topics", "create", NAME, "--partitions", "2", "--sinks", "--plan", plan_file]
    assert main([*command, "--broker", str(secured.client_file), *principals]) == 0
    return {who: str(secured.client_file_of(who)) for who in roles.values()}


def broker_of(files, who):
    return Broker.from_file(files[who])


def write(broker, topic, idempotent=False, seconds=5):
    """Write a record; who does not see the topic looks for it for a third of these seconds."""
    options = {"batch": 1 << 14, "largest": 1 << 20, "enable_idempotence": idempotent}
    producer = make_producer(broker, seconds, **options)
    try:
        producer.send(topic, value=b"x", partition=0).get(seconds)
    finally:
        end_producer(producer)


def test_a_device_writes_reports_and_can_do_nothing_else(files, plan_file, capsys):
    broker = broker_of(files, "devices")
    publisher = KafkaPublisher(broker, REPORTS, timeout=600)
    for shard in range(4):
        publisher.publish(shard, message(bytes([shard])))
    publisher.close()
    for topic in (REPORTS, ESTIMATES, QUARANTINE, REQUEUE):
        with pytest.raises(TopicAuthorizationFailedError):
            read_all(broker, topic)
    for topic in (ESTIMATES, QUARANTINE, REQUEUE):
        with pytest.raises(KafkaError):
            write(broker, topic)
    with admin(broker) as client:
        assert set(client.list_topics()) == {REPORTS}
        assert client.list_groups() == []
        wanted = {"another-e1-p1": {"num_partitions": 1, "replication_factor": 1}}
        made = client.create_topics(wanted, raise_errors=False)
        assert made["topics"][0]["error_code"] == TopicAuthorizationFailedError.errno
    with pytest.raises(GroupAuthorizationFailedError):
        read_all(broker, REPORTS, group="sotto-mine")
    # Nor give itself more.
    command = ["topics", "create", NAME, "--partitions", "2", "--plan", plan_file]
    assert main([*command, "--broker", files["devices"], "--devices", "User:nobody"]) == 2
    said = capsys.readouterr()
    assert "is there already" not in said.out
    assert "may not read its settings" in said.err
    # Whoever sees a topic sees its size, which is all that a streaming job asks for.
    assert len(ReportEpochs(broker, NAME, 1).names()) == 2


def test_what_a_device_may_not_see_does_not_exist_for_it(files):
    publisher = KafkaPublisher(broker_of(files, "devices"), "secret-e1-p2", timeout=5)
    with pytest.raises(PublishError, match="knows no topic"):
        publisher.publish(0, message())


def test_everybody_else_does_his_part(files, plan_file, tmp_path, capsys):
    publish(broker_of(files, "devices"), ReportTopic.parse(REPORTS), 6)
    publisher = KafkaPublisher(broker_of(files, "devices"), REPORTS, timeout=600)
    publisher.publish(0, message())
    publisher.close()
    run = ["aggregate", "--plan", plan_file, "--broker", files["aggregator"], "--topic", REPORTS]
    run += ["--state", str(tmp_path / "state"), "--publish", ESTIMATES]
    assert main([*run, "--publish-quarantine", QUARANTINE]) == 0
    assert "not published" not in "".join(capsys.readouterr())
    sink = ["sink", "--broker", files["reader"], "--topic", ESTIMATES]
    assert main([*sink, "--database", f"sqlite:///{tmp_path / 'results.db'}"]) == 0
    assert (tmp_path / "results.db").stat().st_size
    for who in ("aggregator", "operator"):
        assert read_all(broker_of(files, who), QUARANTINE), who
    for who, topics in {
        "reader": (REPORTS, QUARANTINE, REQUEUE),
        "operator": (REPORTS, ESTIMATES),
    }.items():
        for topic in topics:
            with pytest.raises(TopicAuthorizationFailedError):
                read_all(broker_of(files, who), topic)
    for who, topic in (("aggregator", REPORTS), ("aggregator", REQUEUE), ("reader", ESTIMATES)):
        with pytest.raises(KafkaError):
            write(broker_of(files, who), topic)
    write(broker_of(files, "operator"), REQUEUE, idempotent=True, seconds=PATIENCE)
    # An aggregator keeps its positions with its counts, and may not use offsets that Kafka keeps.
    with pytest.raises(GroupAuthorizationFailedError):
        read_all(broker_of(files, "aggregator"), REPORTS, group="sotto-job")


def test_only_who_administers_the_cluster_sets_acls(files, plan_file, capsys):
    command = ["topics", "create", NAME, "--partitions", "2", "--plan", plan_file]
    assert main([*command, "--broker", files["aggregator"], "--devices", "User:friend"]) == 2
    assert ClusterAuthorizationFailedError.__name__ in capsys.readouterr().err


def test_a_broker_without_an_authorizer_says_so(local, plan_file, capsys):
    command = ["topics", "create", NAME, "--partitions", "2", "--plan", plan_file]
    assert main([*command, "--broker", str(local.client_file), "--devices", "User:devices"]) == 2
    assert "needs an authorizer" in capsys.readouterr().err
