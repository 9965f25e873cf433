"""Access to the topics of a name: the ACLs of devices, aggregators, readers, operators.

Devices may write reports and read nothing. Whoever reads reports, or what was rejected, sees
pseudonyms, and can contradict them: only aggregators read reports, and only operators beside them
what was rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from sotto.errors import ParameterError
from sotto.kafka.topics import ReportTopic, SinkTopic

if TYPE_CHECKING:
    from kafka.admin import ACL

_WRITE = ("WRITE", "DESCRIBE")
#: Readers check the settings of the topic as well.
_READ = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
_BOTH = ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")

#: Operations that each role may do on the topics of reports and on those beside them.
ROLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "devices": {"reports": _WRITE},
    "aggregators": {"reports": _READ, "estimates": _BOTH, "quarantine": _BOTH, "requeue": _READ},
    "readers": {"estimates": _READ},
    "operators": {"quarantine": _READ, "requeue": _BOTH},
}


class Grant(NamedTuple):
    """One thing that a principal, such as ``User:devices``, may do with a topic, as Kafka says."""

    principal: str
    topic: str
    operation: str


def grants(topic: ReportTopic, principals: Mapping[str, str], *, sinks: bool) -> tuple[Grant, ...]:
    """Return what principals, by role, are to be allowed.

    Devices are allowed the topic by its full name: what begins with its name is ``requeue`` too,
    where only operators may write. ``sinks`` says whether the topics beside it are there. Raises
    ParameterError if a principal is not written as Kafka does, is devices and something else, or
    needs topics that are not there.

    Examples
    --------
    >>> for each in grants(ReportTopic("reports", 1, 8), {"devices": "User:devices"}, sinks=True):
    ...     print(*each)
    User:devices reports-e1-p8 WRITE
    User:devices reports-e1-p8 DESCRIBE
    """
    for role, principal in principals.items():
        if not principal.startswith("User:") or principal in ("User:", "User:*"):
            raise ParameterError(
                f"{role} {principal!r} must be a principal as Kafka writes it, such as "
                f"'User:{role}'"
            )
    others = [principal for role, principal in principals.items() if role != "devices"]
    if principals.get("devices") in others:
        raise ParameterError(
            f"{principals['devices']} is to be devices and more: who sends reports must not read, "
            "so give devices a name of their own"
        )
    found = []
    for role, principal in principals.items():
        if not sinks and "reports" not in ROLES[role]:
            raise ParameterError(f"{role} need the topics beside the reports: give --sinks too")
        for kind, operations in ROLES[role].items():
            if kind == "reports" or sinks:
                name = str(topic if kind == "reports" else SinkTopic(topic.name, kind))
                found += [Grant(principal, name, each) for each in operations]
    return tuple(found)


def acl(grant: Grant) -> ACL:
    """Return a grant as kafka-python takes it."""
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    resource = ResourcePattern(ResourceType.TOPIC, grant.topic)
    operation = ACLOperation[grant.operation]
    return ACL(grant.principal, "*", operation, ACLPermissionType.ALLOW, resource)
