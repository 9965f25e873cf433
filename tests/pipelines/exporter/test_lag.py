"""The lag of a job that aggregates a topic."""

from __future__ import annotations

import pytest
from fake_kafka import FakeCluster, copied, install
from report_logs import START, append, honest, write
from step_plans import DAY, plans
from watched import exposition, late_messages, samples, value

from pipelines.bounded.run import aggregate
from pipelines.exporter import lag
from pipelines.exporter.lag import WatchedLog, WatchedTopics
from sotto.clocks import now_ms
from sotto.log.reader import LogReader


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    made = FakeCluster("reports-e1-p2")
    install(monkeypatch, made)
    copied(write(tmp_path / "log", honest(3, 1, 1)), made)
    return made


def test_the_lag_of_a_topic_is_counted_in_messages(cluster, tmp_path):
    state, watched = tmp_path / "state", WatchedTopics(cluster.source())
    found = samples(exposition(state, watched))
    assert value(found, "sotto_source_status", source="log", status="missing") == 1
    aggregate(cluster.source(), state, plans())
    found = samples(exposition(state, watched))
    assert value(found, "sotto_source_status", source="log", status="ok") == 1
    for name in ("records", "partitions", "seconds"):
        assert value(found, f"sotto_lag_{name}") == 0
    assert "sotto_lag_bytes" not in found
    for number, one in enumerate(late_messages(5)):
        cluster.partition(1).append(START + (100 + number) * DAY, one.message)
    found = samples(exposition(state, watched))
    assert value(found, "sotto_lag_records") == 5
    assert value(found, "sotto_lag_partitions") == 1
    age = now_ms() / 1000 - (START + 100 * DAY) / 1000
    assert value(found, "sotto_lag_seconds") == pytest.approx(age, abs=3600)


def test_offsets_without_records_are_no_lag(cluster, tmp_path):
    """A transaction's marker takes an offset, and so did what was aborted or compacted."""
    state, watched = tmp_path / "state", WatchedTopics(cluster.source())
    aggregate(cluster.source(), state, plans())
    partition = cluster.partition(1)
    partition.end += 3 * cluster.batch
    found = samples(exposition(state, watched))
    for name in ("records", "partitions", "seconds"):
        assert value(found, f"sotto_lag_{name}") == 0
    for one in late_messages(2):
        partition.append(START + 100 * DAY, one.message, gap=1)
    found = samples(exposition(state, watched))
    assert value(found, "sotto_lag_records") == 2
    assert value(found, "sotto_lag_partitions") == 1
    assert value(found, "sotto_lag_seconds") > 0


def test_of_many_records_some_are_looked_at(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(lag, "TOPIC_LOOK_BYTES", 1)
    state, watched = tmp_path / "state", WatchedTopics(cluster.source())
    aggregate(cluster.source(), state, plans())
    for one in late_messages(40):
        cluster.partition(0).append(START + 100 * DAY, one.message, gap=1)
    found = samples(exposition(state, watched))
    assert value(found, "sotto_lag_records") == pytest.approx(40, abs=8)
    looked = [at for number, at in cluster.fetches if number == 0][-1]
    assert looked == cluster.partition(0).end - 80


def test_records_that_were_deleted_uncounted_are_a_damaged_log(cluster, tmp_path):
    state, watched = tmp_path / "state", WatchedTopics(cluster.source())
    aggregate(cluster.source(), state, plans())
    for one in late_messages(5):
        cluster.partition(0).append(START + 100 * DAY, one.message)
    cluster.partition(0).delete_before(cluster.partition(0).end - 1)
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
