"""The exit statuses of all commands; ``docs/reference/commands.md`` is made of them."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """How a command ended."""

    meaning: str

    def __new__(cls, status: int, meaning: str) -> "ExitStatus":
        """Make a member of a number and what it means."""
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member

    DONE = 0, "done"
    FOUND = (
        1,
        (
            "done, and something was found: a warning with `--strict`, a new alert, rows that "
            "`sotto replay` left out, a claim that `sotto audit` refutes, a job that failed"
        ),
    )
    FAILED = 2, "not done, or not all of it; the last lines on standard error say why"
    UNDELIVERED = 3, "`sotto alerts` found new alerts, and somebody could not be notified"
    LOST = 4, "`sotto stream` ended its job: what it was to read next does not exist any more"
    INTERRUPTED = 130, "interrupted by Ctrl-C, or by SIGTERM between two steps; at once: 143"
    NO_READER = 141, "the reader of the output has gone"

    @classmethod
    def found(cls, anything: object) -> "ExitStatus":
        """Return FOUND if there is anything, else DONE."""
        return cls.FOUND if anything else cls.DONE
