"""The lag of a job that aggregates a topic."""

from __future__ import annotations

import pytest
from fake_kafka import copied
from report_logs import START, append, honest, write
from step_plans import DAY, plans
from watched import exposition, lag_of, late_messages, samples, value

from pipelines.bounded.run import aggregate
from pipelines.exporter import lag
from pipelines.exporter.lag import WatchedLog, WatchedTopics
from sotto.clocks import now_ms
from sotto.log.reader import LogReader

NOTHING = {"records": 0, "partitions": 0, "seconds": 0}


@pytest.fixture
def topic(cluster, tmp_path):
    copied(write(tmp_path / "log", honest(3, 1, 1)), cluster)
    return cluster


def send(topic, partition, number, gap=0):
    """Append so many messages that are late, a day apart."""
    for at, one in enumerate(late_messages(number)):
        topic.partition(partition).append(START + (100 + at) * DAY, one.message, gap=gap)


def test_the_lag_of_a_topic_is_counted_in_messages(topic, tmp_path):
    state, watched = tmp_path / "state", WatchedTopics(topic.source())
    found = samples(exposition(state, watched))
    assert value(found, "sotto_source_status", source="log", status="missing") == 1
    aggregate(topic.source(), state, plans())
    found = samples(exposition(state, watched))
    assert value(found, "sotto_source_status", source="log", status="ok") == 1
    assert lag_of(state, watched) == NOTHING
    send(topic, 1, 5)
    age = pytest.approx(now_ms() / 1000 - (START + 100 * DAY) / 1000, abs=3600)
    assert lag_of(state, watched) == {"records": 5, "partitions": 1, "seconds": age}


def test_offsets_without_records_are_no_lag(topic, tmp_path):
    """A transaction's marker takes an offset, and so did what was aborted or compacted."""
    state, watched = tmp_path / "state", WatchedTopics(topic.source())
    aggregate(topic.source(), state, plans())
    partition = topic.partition(1)
    partition.end += 3 * topic.batch
    assert lag_of(state, watched) == NOTHING
    send(topic, 1, 2, gap=1)
    found = lag_of(state, watched)
    assert (found["records"], found["partitions"], found["seconds"] > 0) == (2, 1, True)


def test_of_many_records_some_are_looked_at(topic, tmp_path, monkeypatch):
    monkeypatch.setattr(lag, "TOPIC_LOOK_BYTES", 1)
    state, watched = tmp_path / "state", WatchedTopics(topic.source())
    aggregate(topic.source(), state, plans())
    send(topic, 0, 40, gap=1)
    assert lag_of(state, watched)["records"] == pytest.approx(40, abs=8)
    looked = [at for number, at in topic.fetches if number == 0][-1]
    assert looked == topic.partition(0).end - 80


def test_records_that_were_deleted_uncounted_are_a_damaged_log(topic, tmp_path):
    state, watched = tmp_path / "state", WatchedTopics(topic.source())
    aggregate(topic.source(), state, plans())
    send(topic, 0, 5)
    topic.partition(0).delete_before(topic.partition(0).end - 1)
    found = samples(exposition(state, watched))
    assert value(found, "sotto_source_status", source="log", status="damaged") == 1


def test_the_lag_of_records_from_the_future_counts_from_when_they_were_seen(tmp_path, monkeypatch):
    """Their own times do not say since when they wait."""
    now = START
    monkeypatch.setattr(lag, "now_ms", lambda: now)
    log = tmp_path / "log"
    append(log, [(START + 3000 * DAY, b"a")], "one")
    watched = WatchedLog(log)
    assert watched.lag({}, None).oldest == now
    now += DAY
    found = watched.lag({}, None)
    assert (found.records, found.oldest) == (1, START)
    append(log, [(START - DAY, b"b")], "one")
    found = watched.lag({}, None)
    assert (found.records, found.oldest) == (2, START - DAY)
    end = LogReader(log / "one").end()
    assert watched.lag({"one": end}, None).oldest is None
    append(log, [(START + 3000 * DAY, b"c")], "one")
    assert watched.lag({"one": end}, None).oldest == now
