"""The reasons for which a message, a group or a row is quarantined, with their codes on disk.

:mod:`sotto.wire.decode` finds most of them, in single messages and rows;
:mod:`pipelines.aggregation.decode` rejects rows of closed periods and damaged records,
:mod:`pipelines.aggregation.step` those of revoked pseudonyms, and
:mod:`pipelines.aggregation.forgotten` those of forgotten ones. ``docs/spec/formats.md`` lists the
conditions.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """The reason for a rejection: its code, its meaning, and the field that shows it.

    Codes never change and are never used again. The field is that of a message
    (``docs/spec/formats.md``), empty for whole messages.
    """

    text: str
    field: str

    def __new__(cls, code: int, text: str = "", field: str = "") -> Reason:
        member = int.__new__(cls, code)
        member._value_ = code
        member.text, member.field = text, field
        return member

    MALFORMED = 1, "bytes that are no message", ""
    UNKNOWN_VERSION = 2, "of a version of the format that is not known here", "version"
    UNKNOWN_PLAN = 3, "of a plan that was not given to the job", "fingerprint"
    UNKNOWN_METRIC = 4, "of a metric that the plan does not have", "metric"
    WRONG_WIDTH = 5, "a payload of another width than the plan says", "width"
    WRONG_SHARD = 6, "in a shard that is not the pseudonym's", "shard"
    IMPOSSIBLE_LEVEL = 7, "of a level that the metric does not have", "level"
    OUT_OF_DOMAIN = 8, "a symbol that no device can send", "payload"
    MISALIGNED_TIME = 9, "an event time that the plan's resolution does not have", "event"
    FUTURE = 10, "recorded after it was appended, or appended after now: a clock is wrong", "event"
    LATE = 11, "older than any report may be", "event"
    OVER_BUDGET = 12, "of a pseudonym that sent more than its budget", "pseudonym"
    EQUIVOCATION = 13, "of a pseudonym that gave two answers where there can be one", "payload"
    REVOKED = 14, "of a pseudonym that had been revoked before", "pseudonym"
    CORRUPT_LOG = 15, "records of the log that are damaged", ""
    # 16 was that of a release before 0.4.
    UNAUTHENTICATED = 17, "without a valid signature, where the plan asks for one", "signature"
    UNKNOWN_CELL = 18, "of a segment that the plan does not have", "cell"
    #: A row of a pseudonym that a person had forgotten; nothing is kept of it but the number.
    FORGOTTEN = 19, "of a pseudonym that was removed when its person asked for that", "pseudonym"

    @property
    def label(self) -> str:
        """The reason as people and metrics read it, such as ``over_budget``."""
        return self.name.lower()

    @classmethod
    def meaning_of(cls, label: str) -> str:
        """Return what a reason means; empty for one that is not known."""
        return next((each.text for each in cls if each.label == label), "")
