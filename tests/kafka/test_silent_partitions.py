"""Partitions that get nothing are named, by the broker's own times."""

from __future__ import annotations

import pytest
from drained import produce
from test_exporting_streaming import commit

from pipelines.exporter.group import WatchedGroup
from pipelines.flink.jobfolder import Known
from sotto.cli import flink
from sotto.clocks import now_ms
from sotto.topicadmin import connected

pytestmark = pytest.mark.slow


def test_partitions_without_records_are_named(broker, local, topic, monkeypatch):
    produce(broker, topic, b"any", b"bytes", partition=1)
    with connected(broker) as topics:
        first = topics.newest(topic)
    assert [time is None for time in first] == [True, False, True, True]
    assert abs(now_ms() - first[1]) < 60_000

    produce(broker, topic, b"more", partition=1)
    commit(broker, topic, "some", left=1)
    told = WatchedGroup(broker, [topic], group="some").lag(None).newest
    assert sorted(told) == [f"{topic}/{number}" for number in range(4)]
    assert told.pop(f"{topic}/1") > first[1]
    assert set(told.values()) == {0}

    known = Known("job", topics=(str(topic),))
    idle = [f"no record ever: {topic}/{number}; its periods stay open" for number in (0, 2, 3)]
    assert flink._idle(local.client_file, known) == idle
    for number in (0, 2, 3):
        produce(broker, topic, b"one", partition=number)
    (said,) = flink._idle(local.client_file, known)
    assert said == "all partitions have had records within a day"
    monkeypatch.setattr(flink, "IDLE", 0)
    said = flink._idle(local.client_file, known)
    assert said[1] == f"no record for 0 hours: {topic}/1; its periods stay open"
