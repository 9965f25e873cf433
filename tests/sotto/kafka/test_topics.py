"""Topics of reports: names and the settings that they need."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sotto.errors import ParameterError
from sotto.kafka.topics import FoundTopic, ReportTopic
from sotto.wire.format import MAX_MESSAGE

DAY = 86_400_000
TOPIC = ReportTopic("reports", epoch=1, partitions=8)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,50}", fullmatch=True)


def found(partitions=8, replicas=1, **changes):
    settings = TOPIC.settings(20 * DAY)
    for name, value in changes.items():
        settings[name.replace("_", ".")] = value
    return FoundTopic(partitions, replicas, settings)


@given(NAMES, st.integers(1, 10**6), st.integers(1, 65536))
def test_names_are_read_back(name, epoch, partitions):
    topic = ReportTopic(name, epoch, partitions)
    assert ReportTopic.parse(str(topic)) == topic
    assert len(str(topic)) < 250


@pytest.mark.parametrize(
    "text",
    [
        *("", "reports", "reports-e1", "reports-p8", "reports-e0-p8", "reports-e1-p0"),
        *("reports-e01-p8", "-e1-p8", "re ports-e1-p8", "reports-e1-p8\n", "reports-e1-p70000"),
        "reports-e\u0661-p8",
    ],
)
def test_other_names_are_refused(text):
    with pytest.raises(ParameterError):
        ReportTopic.parse(text)


def test_a_topic_as_it_is_made_can_be_used():
    assert TOPIC.faults(found(), 20 * DAY) == []
    assert TOPIC.faults(found(retention_ms="-1"), 10**15) == []
    assert TOPIC.faults(found(compression_type="gzip"), DAY) == []


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (found(partitions=4), "4 partitions, not 8: .*create the next epoch"),
        (found(partitions=9), "9 partitions, not 8"),
        (found(message_timestamp_type="CreateTime"), "timestamp.type is CreateTime: set it to Log"),
        (found(cleanup_policy="compact"), "cleanup.policy is compact: set it to delete"),
        (found(cleanup_policy="compact,delete"), "cleanup.policy"),
        (found(compression_type="uncompressed"), "compression.type is uncompressed"),
        (found(compression_type="producer"), "compression.type is producer: set it to zstd"),
        (found(compression_type="lz4"), "compression.type is lz4: set it to zstd"),
        (found(replicas=3, min_insync_replicas="1"), "min.insync.replicas is 1 of 3: set it to 2"),
        (found(replicas=2, min_insync_replicas="3"), "min.insync.replicas is 3 of 2: set it to 2"),
        (found(retention_ms=str(20 * DAY - 1)), f"set retention.ms to at least {20 * DAY}"),
        (found(retention_bytes="1000"), "retention.bytes is 1000: set it to -1"),
        (found(max_message_bytes=str(MAX_MESSAGE)), "max.message.bytes"),
        (found(unclean_leader_election_enable="true"), "unclean"),
    ],
)
def test_each_fault_is_told_with_what_to_do(topic, said):
    (fault,) = TOPIC.faults(topic, 20 * DAY)
    assert re.search(said, fault)


def test_a_topic_with_more_partitions_can_be_aggregated():
    assert TOPIC.faults(found(partitions=9), DAY, reading=True) == []
    assert len(TOPIC.faults(found(partitions=7), DAY, reading=True)) == 1


def test_all_faults_are_told_at_once():
    assert len(TOPIC.faults(FoundTopic(1, 1, {}), DAY)) == 8
