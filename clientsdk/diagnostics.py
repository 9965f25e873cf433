"""Warnings and tracebacks of the SDK: neither may hold a value.

There is one logger, ``clientsdk``, without handlers: an app that configures none sees the warnings
on its standard error. So does an app that never imports ``logging``, which takes a tenth of the
time of importing the SDK. It is not imported late either: a fork, a signal or the interpreter's end
may come in between.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress

#: Seconds during which a cause that was logged is not logged again.
QUIET = 60.0

#: The levels that :func:`set_level` takes.
LEVELS = {"debug": 10, "warning": 30, "error": 40, "off": 51}

_DEBUG = LEVELS["debug"]
_NAME = __name__.partition(".")[0]
_last_logged: dict[str, float] = {}
#: Whether debug lines are printed where no handler takes them.
_printing = False


def warn(cause: str, text: str, *details: str, quiet: float = QUIET) -> None:
    """Log a warning unless its cause, one of a few names, has lately been logged in this process.

    ``text`` and ``details``, a format and what fills it, hold no value and no payload; and no
    exception is passed, since a handler may keep it with its frames.
    """
    now = time.monotonic()
    if now - _last_logged.get(cause, -math.inf) >= quiet:
        _last_logged[cause] = now
        # None too where another thread is just importing it.
        logger = getattr(sys.modules.get("logging"), "getLogger", None)
        if logger is not None:
            logger(_NAME).warning(text, *details)
        elif sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write((text % details if details else text) + "\n")


def debug(text: str, *details: object) -> None:
    """Log what the SDK does, for developers: as :func:`warn`, and nothing that differs by value.

    An app that configures no logging sees it on its standard error if it asked for it.
    """
    if debugging():
        logger = sys.modules["logging"].getLogger(_NAME)
        if _printing and not logger.hasHandlers() and sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{_NAME}: {text % details}\n")
        else:
            logger.debug(text, *details)


def debugging() -> bool:
    """Whether debug lines are wanted, without a lock that an interrupt could leave held."""
    root = getattr(sys.modules.get("logging"), "root", None)
    if root is None:
        return False
    # The root is the only parent. A level of 0 is none; where there is no logger yet, neither.
    own = getattr(root.manager.loggerDict.get(_NAME), "level", 0)
    return bool((own or root.level) <= _DEBUG)


def set_level(level: str) -> None:
    import logging

    global _printing
    _printing = level == "debug"
    logging.getLogger(_NAME).setLevel(LEVELS[level])


def drop_locals(error: BaseException) -> None:
    """Clear the local variables of the frames that an exception came through, where it was caught.

    Names and lines of the functions stay in its traceback. Its cause and context are dropped: they
    have frames, and texts, of their own. The frame that calls this is running: it deletes its
    variables itself.
    """
    error.__cause__ = error.__context__ = None
    trace = error.__traceback__
    while trace is not None:
        with suppress(RuntimeError):
            trace.tb_frame.clear()
        trace = trace.tb_next
