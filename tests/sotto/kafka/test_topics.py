"""Topics of reports, and those beside them: names and the settings that they need."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sotto.errors import ParameterError
from sotto.kafka.topics import KINDS, MAX_DOCUMENT, FoundTopic, ReportTopic, SinkTopic, Stay
from sotto.wire.format import MAX_MESSAGE

DAY = 86_400_000
REPORTS = ReportTopic("reports", epoch=1, partitions=8)
ESTIMATES, QUARANTINE, REQUEUE = (
    SinkTopic("reports", kind) for kind in ("estimates", "quarantine", "requeue")
)
STAY = Stay(horizon=20 * DAY, retention=30 * DAY)
NO_REPORTS = [
    *("", "reports", "reports-e1", "reports-p8", "reports-e0-p8", "reports-e1-p0"),
    *("reports-e01-p8", "-e1-p8", "re ports-e1-p8", "reports-e1-p8\n", "reports-e1-p70000"),
    "reports-e\u0661-p8",
]
NO_SINKS = ["", "estimates", "reports", "-estimates", "reports-e1-p8", "a b-estimates", "é-requeue"]
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,50}", fullmatch=True)


def needed(topic):
    """How long the records of a topic have to stay."""
    return STAY.horizon if topic is REPORTS else STAY


def found(topic, partitions=8, replicas=1, **changes):
    """Return what a broker says of a topic as it is made, with some settings changed."""
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return FoundTopic(partitions, replicas, {**topic.settings(needed(topic)), **changed})


@given(NAMES, st.integers(1, 10**6), st.integers(1, 65536))
def test_names_are_read_back(name, epoch, partitions):
    topic = ReportTopic(name, epoch, partitions)
    assert ReportTopic.parse(str(topic)) == topic
    assert len(str(topic)) < 250


@pytest.mark.parametrize(
    ("kind", "text"),
    [*((ReportTopic, text) for text in NO_REPORTS), *((SinkTopic, text) for text in NO_SINKS)],
)
def test_other_names_are_refused(kind, text):
    with pytest.raises(ParameterError):
        kind.parse(text)


def test_another_kind_is_refused():
    with pytest.raises(ParameterError, match="'other'"):
        SinkTopic("reports", "other")


def test_a_topic_as_it_is_made_can_be_used():
    for kind in KINDS:
        topic = SinkTopic("reports", kind)
        assert topic.faults(found(topic), STAY) == []
        assert SinkTopic.parse(str(topic)) == topic
    assert REPORTS.faults(found(REPORTS), STAY.horizon) == []
    assert REPORTS.faults(found(REPORTS, compression_type="gzip"), DAY) == []
    # Records may stay for ever, but for those that are rejected.
    assert REPORTS.faults(found(REPORTS, retention_ms="-1"), 10**15) == []
    assert REQUEUE.faults(found(REQUEUE, retention_ms="-1"), STAY) == []


@pytest.mark.parametrize(
    ("topic", "changes", "said"),
    [
        (REPORTS, {"partitions": 4}, "4 partitions, not 8: .*create the next epoch"),
        (REPORTS, {"partitions": 9}, "9 partitions, not 8"),
        (REPORTS, {"message_timestamp_type": "CreateTime"}, "type is CreateTime: set it to Log"),
        (REPORTS, {"cleanup_policy": "compact"}, "cleanup.policy is compact: set it to delete"),
        (REPORTS, {"cleanup_policy": "compact,delete"}, "cleanup.policy"),
        (REPORTS, {"compression_type": "uncompressed"}, "compression.type is uncompressed"),
        (REPORTS, {"compression_type": "producer"}, "type is producer: set it to zstd"),
        (REPORTS, {"compression_type": "lz4"}, "compression.type is lz4: set it to zstd"),
        (REPORTS, {"replicas": 3, "min_insync_replicas": "1"}, "replicas is 1 of 3: set it to 2"),
        (REPORTS, {"replicas": 2, "min_insync_replicas": "3"}, "replicas is 3 of 2: set it to 2"),
        (REPORTS, {"retention_ms": str(20 * DAY - 1)}, f"retention.ms to at least {20 * DAY}"),
        (REPORTS, {"retention_bytes": "1000"}, "retention.bytes is 1000: set it to -1"),
        (REPORTS, {"max_message_bytes": str(MAX_MESSAGE)}, "max.message.bytes"),
        (REPORTS, {"unclean_leader_election_enable": "true"}, "unclean"),
        (ESTIMATES, {"cleanup_policy": "delete"}, "cleanup.policy is delete: set it to compact"),
        (ESTIMATES, {"cleanup_policy": "compact,delete"}, "set it to compact"),
        (ESTIMATES, {"max_message_bytes": "1048588"}, f"set it to at least {MAX_DOCUMENT}"),
        (ESTIMATES, {"compression_type": "producer"}, "compression.type is producer: set it to"),
        (QUARANTINE, {"retention_ms": "-1"}, f"stay for ever.*set retention.ms to {30 * DAY}"),
        (QUARANTINE, {"retention_ms": str(31 * DAY)}, "stay for 31d, plans want 30d"),
        (QUARANTINE, {"retention_ms": str(DAY)}, "stay for 1d, plans want 30d"),
        (QUARANTINE, {"message_timestamp_type": "CreateTime"}, "set it to LogAppendTime"),
        (QUARANTINE, {"retention_bytes": "5"}, "retention.bytes is 5: set it to -1"),
        (REQUEUE, {"message_timestamp_type": "LogAppendTime"}, "set it to CreateTime"),
        (REQUEUE, {"retention_ms": str(30 * DAY)}, f"may be 50d old.*at least {50 * DAY}"),
        (REQUEUE, {"message_timestamp_before_max_ms": "1"}, "before.max.ms is 1: set it to"),
        (REQUEUE, {"cleanup_policy": "compact"}, "set it to delete"),
        (REQUEUE, {"unclean_leader_election_enable": "true"}, "unclean.*set it to false"),
    ],
)
def test_each_fault_is_told_with_what_to_do(topic, changes, said):
    (fault,) = topic.faults(found(topic, **changes), needed(topic))
    assert re.search(said, fault)


def test_a_topic_with_more_partitions_can_be_aggregated():
    assert REPORTS.faults(found(REPORTS, partitions=9), DAY, reading=True) == []
    assert len(REPORTS.faults(found(REPORTS, partitions=7), DAY, reading=True)) == 1


def test_all_faults_are_told_at_once():
    assert len(REPORTS.faults(FoundTopic(1, 1, {}), DAY)) == 8
