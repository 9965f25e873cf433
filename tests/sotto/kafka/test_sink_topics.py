"""Topics beside those of reports: names and the settings that they need."""

from __future__ import annotations

import re

import pytest

from sotto.errors import ParameterError
from sotto.kafka.topics import KINDS, MAX_DOCUMENT, FoundTopic, SinkTopic, Stay

DAY = 86_400_000
STAY = Stay(horizon=20 * DAY, retention=30 * DAY)


def found(topic, **changes):
    settings = topic.settings(STAY)
    for name, value in changes.items():
        settings[name.replace("_", ".")] = value
    return FoundTopic(1, 1, settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_as_it_is_made_can_be_used(kind):
    topic = SinkTopic("reports", kind)
    assert topic.faults(found(topic), STAY) == []
    assert SinkTopic.parse(str(topic)) == topic


@pytest.mark.parametrize(
    "text",
    ["", "estimates", "reports", "-estimates", "reports-e1-p8", "a b-estimates", "é-requeue"],
)
def test_other_names_are_refused(text):
    with pytest.raises(ParameterError):
        SinkTopic.parse(text)


def test_another_kind_is_refused():
    with pytest.raises(ParameterError, match="'other'"):
        SinkTopic("reports", "other")


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("estimates", {"cleanup_policy": "delete"}, "cleanup.policy is delete: set it to compact"),
        ("estimates", {"cleanup_policy": "compact,delete"}, "set it to compact"),
        ("estimates", {"max_message_bytes": "1048588"}, f"set it to at least {MAX_DOCUMENT}"),
        ("estimates", {"compression_type": "producer"}, "compression.type is producer: set it to"),
        ("quarantine", {"retention_ms": "-1"}, f"stay for ever.*set retention.ms to {30 * DAY}"),
        ("quarantine", {"retention_ms": str(31 * DAY)}, "stay for 31d, plans want 30d"),
        ("quarantine", {"retention_ms": str(DAY)}, "stay for 1d, plans want 30d"),
        ("quarantine", {"message_timestamp_type": "CreateTime"}, "set it to LogAppendTime"),
        ("quarantine", {"retention_bytes": "5"}, "retention.bytes is 5: set it to -1"),
        ("requeue", {"message_timestamp_type": "LogAppendTime"}, "set it to CreateTime"),
        ("requeue", {"retention_ms": str(30 * DAY)}, f"may be 50d old.*at least {50 * DAY}"),
        ("requeue", {"message_timestamp_before_max_ms": "1"}, "before.max.ms is 1: set it to"),
        ("requeue", {"cleanup_policy": "compact"}, "set it to delete"),
        ("requeue", {"unclean_leader_election_enable": "true"}, "unclean.*set it to false"),
    ],
)
def test_each_fault_is_told_with_what_to_do(kind, changes, said):
    topic = SinkTopic("reports", kind)
    (fault,) = topic.faults(found(topic, **changes), STAY)
    assert re.search(said, fault)


def test_records_that_are_given_back_may_stay_for_ever():
    topic = SinkTopic("reports", "requeue")
    assert topic.faults(found(topic, retention_ms="-1"), STAY) == []
