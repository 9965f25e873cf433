"""Lines that kafka-python may log: never what it carries, and nothing over and over.

Its debug lines hold whole messages, and so pseudonyms and chains, whatever level an app has set
for its own. While a broker is dead its other lines would come six times a second; what keeps
reports from being sent or counted is told as an error by who asked for it.
"""

from __future__ import annotations

import logging
import math
import os
import time

from sotto.errors import ParameterError

#: How long a line that was logged is not logged again, in seconds.
QUIET = 60.0

#: The variable that asks a command for kafka-python's lines, by the name of a level.
ASKED = "SOTTO_KAFKA_LOG"


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


def quiet() -> None:
    """Keep kafka-python's lines off the terminal of a command, unless they are asked for.

    Failures are raised, and said by the command in one line. A level that somebody has set already
    stays. In an app kafka-python's loggers are the app's to set. Raises ParameterError if what is
    asked for is no level.
    """
    logger, asked = logging.getLogger("kafka"), os.environ.get(ASKED)
    if asked is not None and asked not in logging.getLevelNamesMapping():
        raise ParameterError(f"{ASKED}={asked!r} must be one of INFO, WARNING, ERROR, CRITICAL")
    if asked is not None or logger.level == logging.NOTSET:
        logger.setLevel(asked or logging.CRITICAL)
