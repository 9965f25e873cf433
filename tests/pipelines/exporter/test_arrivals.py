"""Which partition of a topic has gone silent."""

from __future__ import annotations

import pytest
from fake_kafka import FakeCluster, install

from pipelines.exporter.arrivals import PAUSE, RECORDS, ArrivalTimes
from pipelines.sources.kafka import PartitionName
from sotto.kafka.brokers import Broker

START = 1_700_000_000_000
TOPIC = "reports-e1-p3"
NAMES = [PartitionName(TOPIC, "one", number) for number in range(3)]


@pytest.fixture
def cluster(monkeypatch):
    made = FakeCluster(TOPIC)
    made.batch = 500
    install(monkeypatch, made)
    return made


def fill(cluster, number, count, first, last):
    """Append records to a partition, at even times between two."""
    for at in range(count):
        cluster.partition(number).append(first + (last - first) * at // max(count - 1, 1), b"")


def silent(arrivals):
    return [each.partition for each in arrivals.read(NAMES) if each.silent]


def test_a_partition_without_records_while_others_get_many_is_silent(cluster):
    arrivals = ArrivalTimes(Broker("fake:9092"))
    for number in range(3):
        fill(cluster, number, 50, START, START + 1000)
    assert silent(arrivals) == []
    found = {each.partition: each.newest for each in arrivals.read(NAMES)}
    assert found == {f"{TOPIC}/{number}": START + 1000 for number in range(3)}
    for number in (0, 1):
        fill(cluster, number, RECORDS, START + 2000, START + 1000 + PAUSE)
    assert silent(arrivals) == [f"{TOPIC}/2"]
    # Offsets behind the newest record that are none, as transactions leave them.
    cluster.partition(2).append(START + 900 + PAUSE, b"")
    cluster.partition(2).end += 30
    assert silent(arrivals) == []


@pytest.mark.parametrize(
    ("count", "pause"), [(RECORDS - 1, PAUSE), (RECORDS, PAUSE - 1), (0, 1000 * PAUSE)]
)
def test_chance_a_burst_and_an_idle_topic_are_no_silence(cluster, count, pause):
    fill(cluster, 2, 1, START, START)
    for number in (0, 1):
        fill(cluster, number, 1, START, START)
        fill(cluster, number, count, START + 1, START + pause)
    assert silent(ArrivalTimes(Broker("fake:9092"))) == []


def test_a_young_topic_and_one_that_has_nothing_have_no_silent_partition(cluster):
    arrivals = ArrivalTimes(Broker("fake:9092"))
    assert [each.newest for each in arrivals.read(NAMES)] == [None] * 3
    fill(cluster, 0, RECORDS, START, START + 1000)
    assert silent(arrivals) == []
    fill(cluster, 1, RECORDS, START, START + 1000)
    assert silent(arrivals) == [f"{TOPIC}/2"]
