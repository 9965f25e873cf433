"""The one logger, ``clientsdk``: warnings, each cause at most once in a while, never a value.

It has no handlers: an app that configures none sees the warnings on its standard error. So does an
app that never imports ``logging``, which takes a tenth of the time of importing the SDK. To import
it when there is something to tell would be late: a fork, a signal or the interpreter's end may come
between.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress

#: Seconds during which a cause that was told is not told again.
QUIET = 60.0

#: What the logger may be told to let pass.
LEVELS = {"warning": 30, "error": 40, "off": 51}

_NAME = "clientsdk"
_told: dict[str, float] = {}


def warn(cause: str, text: str, *details: str, quiet: float = QUIET) -> None:
    """Log a warning unless its cause was told of lately, by whatever client of this process.

    Parameters
    ----------
    cause : str
        One of a few names.
    text, details : str
        A format and what is put in its places: no value and no payload, and no exception, since
        a handler may keep that, and its frames hold them.
    quiet : float
        Seconds, at least :data:`QUIET`.
    """
    now = time.monotonic()
    if now - _told.get(cause, -math.inf) >= quiet:
        _told[cause] = now
        # None too where another thread is just importing it.
        logger = getattr(sys.modules.get("logging"), "getLogger", None)
        if logger is not None:
            logger(_NAME).warning(text, *details)
        elif sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write((text % details if details else text) + "\n")


def let_pass(level: str) -> None:
    """Let the logger pass nothing below one of :data:`LEVELS`, in this process."""
    import logging

    logging.getLogger(_NAME).setLevel(LEVELS[level])
