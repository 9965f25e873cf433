"""What kafka-python may log: never what it carries, and nothing over and over.

Its debug lines hold whole messages, and so pseudonyms and chains, whatever level an app has set
for its own. While a broker is dead its other lines would come six times a second; what keeps
reports from being sent or counted is told as an error by who asked for it.
"""

from __future__ import annotations

import logging
import math
import time

#: How long a line that was logged is not logged again, in seconds.
QUIET = 60.0


class Secret(str):
    """A password as kafka-python is given it, which logs its configuration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'...'"


class _Discreet(logging.Filter):
    """Lets no debug line through, and of the others each line of code once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record may be logged."""
        if record.levelno <= logging.DEBUG:
            return False
        line, now = (record.name, record.lineno), time.monotonic()
        if now - self._latest.get(line, -math.inf) < QUIET:
            return False
        self._latest[line] = now
        return True


_discreet = _Discreet()


def restrain() -> None:
    """Restrain the loggers of kafka-python, which has been imported; again changes nothing.

    Filters belong to one logger each: a level that an app sets does not lift them.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "kafka":
            logging.getLogger(name).addFilter(_discreet)
