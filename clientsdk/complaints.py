"""The one logger, ``clientsdk``: warnings, each cause at most once in a while, never a value.

It has no handlers: an app that configures none sees the warnings on its standard error.
"""

from __future__ import annotations

import logging
import math
import time

#: Seconds during which a cause that was told is not told again.
QUIET = 60.0

#: What the logger may be told to let pass.
LEVELS = {"warning": logging.WARNING, "error": logging.ERROR, "off": logging.CRITICAL + 1}

_log = logging.getLogger("clientsdk")
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
        _log.warning(text, *details)


def let_pass(level: str) -> None:
    """Let the logger pass nothing below one of :data:`LEVELS`, in this process."""
    _log.setLevel(LEVELS[level])
