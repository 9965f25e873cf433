"""The exit statuses of all commands; ``docs/operate/operations.md`` has the same table."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """How a command ended."""

    DONE = 0
    FOUND = 1  #: Done, and it found something: warnings, new alerts, rows left out, a broken claim.
    FAILED = 2  #: Not done, or not all of it; the last lines on standard error say why.
    UNDELIVERED = 3  #: Alerts were found, and somebody could not be notified.
    LOST = 4  #: A streaming job was ended, since nothing that it can read next exists any more.
    INTERRUPTED = 130  #: By Ctrl-C or SIGTERM.
    NO_READER = 141  #: Whoever read the output has gone.

    @classmethod
    def found(cls, anything: object) -> "ExitStatus":
        """Return FOUND if there is anything, else DONE."""
        return cls.FOUND if anything else cls.DONE
