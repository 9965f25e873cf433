"""Why a message, a group or a row is quarantined: the closed list, with its codes on disk."""

from enum import IntEnum


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
