"""Access to topics: the grants that a cluster is asked for, before it is asked."""

from __future__ import annotations

import pytest

from sotto.errors import ParameterError
from sotto.kafka.access import ROLES, grants
from sotto.kafka.topics import ReportTopic

TOPIC = ReportTopic("reports", 1, 8)
PRINCIPALS = {role: f"User:{role}" for role in ROLES}


def allowed(role, operation, *, sinks=True):
    """The topics on which a role may do something."""
    found = grants(TOPIC, PRINCIPALS, sinks=sinks)
    return {
        each.topic
        for each in found
        if (each.principal, each.operation) == (PRINCIPALS[role], operation)
    }


def test_devices_write_reports_and_read_nothing():
    assert allowed("devices", "WRITE") == {"reports-e1-p8"}
    assert allowed("devices", "READ") == set()
    mine = [each for each in grants(TOPIC, PRINCIPALS, sinks=True) if "devices" in each.principal]
    assert {each.operation for each in mine} == {"WRITE", "DESCRIBE"}


def test_pseudonyms_are_read_by_aggregators_and_by_operators_alone():
    for role in ROLES:
        pseudonymous = {"reports-e1-p8", "reports-quarantine", "reports-requeue"}
        reads = allowed(role, "READ") & pseudonymous
        assert reads == {
            "aggregators": pseudonymous,
            "operators": {"reports-quarantine", "reports-requeue"},
        }.get(role, set())


def test_only_operators_write_what_is_requeued():
    assert [role for role in ROLES if "reports-requeue" in allowed(role, "WRITE")] == ["operators"]


def test_without_topics_beside_the_reports_they_are_in_no_grant():
    found = grants(
        TOPIC, {role: PRINCIPALS[role] for role in ("devices", "aggregators")}, sinks=False
    )
    assert {each.topic for each in found} == {"reports-e1-p8"}


@pytest.mark.parametrize("principal", ["devices", "User:", "User:*", "Group:devices"])
def test_principals_are_written_as_kafka_does_and_mean_somebody(principal):
    with pytest.raises(ParameterError, match="User:"):
        grants(TOPIC, {"devices": principal}, sinks=True)


def test_devices_are_nobody_else():
    with pytest.raises(ParameterError, match="of their own"):
        grants(TOPIC, {"devices": "User:a", "readers": "User:a"}, sinks=True)


@pytest.mark.parametrize("role", ["readers", "operators"])
def test_who_needs_the_topics_beside_the_reports_is_told_so(role):
    with pytest.raises(ParameterError, match="give --sinks"):
        grants(TOPIC, {role: PRINCIPALS[role]}, sinks=False)
