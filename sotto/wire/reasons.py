"""Why a message, a group or a row is quarantined: the closed list, with its codes on disk."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple


class Reason(IntEnum):
    """The reason for a rejection. Codes never change and are never used again."""

    MALFORMED = 1
    UNKNOWN_VERSION = 2
    UNKNOWN_PLAN = 3
    UNKNOWN_METRIC = 4
    WRONG_WIDTH = 5
    WRONG_SHARD = 6
    IMPOSSIBLE_LEVEL = 7
    OUT_OF_DOMAIN = 8
    MISALIGNED_TIME = 9
    FUTURE = 10
    LATE = 11
    OVER_BUDGET = 12
    EQUIVOCATION = 13
    REVOKED = 14
    CORRUPT_LOG = 15
    # 16 was that of a release before 0.4.
    UNAUTHENTICATED = 17
    UNKNOWN_CELL = 18
    #: A row of a pseudonym that a person had forgotten; nothing is kept of it but the number.
    FORGOTTEN = 19

    @property
    def label(self) -> str:
        """The reason as people and metrics read it, such as ``over_budget``."""
        return self.name.lower()

    @classmethod
    def meaning_of(cls, label: str) -> str:
        """Return what a reason means; empty for one that is not known."""
        return {each.label: meaning.text for each, meaning in MEANINGS.items()}.get(label, "")


class Meaning(NamedTuple):
    """The meaning of a reason."""

    text: str
    #: The field of a message (``docs/spec/formats.md``) that shows it; empty for whole messages.
    field: str


MEANINGS: Mapping[Reason, Meaning] = {
    Reason.MALFORMED: Meaning("bytes that are no message", ""),
    Reason.UNKNOWN_VERSION: Meaning("of a version of the format that is not known here", "version"),
    Reason.UNKNOWN_PLAN: Meaning("of a plan that was not given to the job", "fingerprint"),
    Reason.UNKNOWN_METRIC: Meaning("of a metric that the plan does not have", "metric"),
    Reason.WRONG_WIDTH: Meaning("a payload of another width than the plan says", "width"),
    Reason.WRONG_SHARD: Meaning("in a shard that is not the pseudonym's", "shard"),
    Reason.IMPOSSIBLE_LEVEL: Meaning("of a level that the metric does not have", "level"),
    Reason.OUT_OF_DOMAIN: Meaning("a symbol that no device can send", "payload"),
    Reason.MISALIGNED_TIME: Meaning(
        "an event time that the plan's resolution does not have", "event"
    ),
    Reason.FUTURE: Meaning(
        "recorded after it was appended, or appended after now: a clock is wrong", "event"
    ),
    Reason.LATE: Meaning("older than any report may be", "event"),
    Reason.OVER_BUDGET: Meaning("of a pseudonym that sent more than its budget", "pseudonym"),
    Reason.EQUIVOCATION: Meaning(
        "of a pseudonym that gave two answers where there can be one", "payload"
    ),
    Reason.REVOKED: Meaning("of a pseudonym that had been revoked before", "pseudonym"),
    Reason.CORRUPT_LOG: Meaning("records of the log that are damaged", ""),
    Reason.UNKNOWN_CELL: Meaning("of a segment that the plan does not have", "cell"),
    Reason.FORGOTTEN: Meaning(
        "of a pseudonym that was removed when its person asked for that", "pseudonym"
    ),
    Reason.UNAUTHENTICATED: Meaning(
        "without a valid signature, where the plan asks for one", "signature"
    ),
}
