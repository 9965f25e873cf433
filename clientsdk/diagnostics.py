"""Warnings and tracebacks of the SDK: neither may hold a value.

There is one logger, ``clientsdk``, without handlers: an app that configures none sees the warnings
on its standard error. So does an app that never imports ``logging``, which takes a tenth of the
time of importing the SDK. It is not imported late either: a fork, a signal or the interpreter's end
may come in between.
"""

from __future__ import annotations

import math
import os
import sys
import time
from _thread import get_ident

#: Seconds during which a cause that was logged is not logged again.
QUIET = 60.0

#: The levels that :func:`set_level` takes.
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 51}

_NAME = __name__.partition(".")[0]
_last_logged: dict[str, float] = {}
#: Whether lines below warnings are printed where no handler takes them.
_printing = False
#: Processes and their threads that are handing a line on.
_telling: set[tuple[int, int]] = set()


def warn(cause: str, text: str, *details: str, quiet: float = QUIET) -> None:
    """Log a warning unless its cause, one of a few names, has lately been logged in this process.

    ``text`` and ``details``, a format and what fills it, hold no value and no payload; and no
    exception is passed, since a handler may keep it with its frames.
    """
    now = time.monotonic()
    if now - _last_logged.get(cause, -math.inf) >= quiet:
        _last_logged[cause] = now
        _log("warning", text, details)


def debug(text: str, *details: object) -> None:
    """Log what the SDK does, for developers: as :func:`warn`, and nothing that differs by value.

    An app that configures no logging sees it on its standard error if it asked for it.
    """
    if wanted("debug"):
        _log("debug", text, details)


def info_once(text: str) -> None:
    """Log what an app should know and need not mend, once in a process; as :func:`debug`."""
    if text not in _last_logged and wanted("info"):
        _last_logged[text] = time.monotonic()
        _log("info", text, ())


def _log(level: str, text: str, details: tuple[object, ...]) -> None:
    """Hand a line to the logger or, if there is none, to standard error.

    An error of the app's handlers and filters is dropped, since no log stops an app; an interrupt
    is not. A handler that records is told nothing of that, or it would be called without end.
    """
    here = os.getpid(), get_ident()
    if here in _telling:
        return
    printed = _printing and level != "warning"
    # None too where another thread is just importing it.
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    try:
        _telling.add(here)
        logger = get_logger and get_logger(_NAME)
        if logger is not None and (logger.hasHandlers() or not printed):
            logger.log(LEVELS[level], text, *details)
        elif sys.stderr is not None:
            said = text % details if details else text
            sys.stderr.write(f"{_NAME}: {said}\n" if printed else f"{said}\n")
    except Exception:
        pass
    finally:
        _telling.discard(here)


def wanted(level: str) -> bool:
    """Whether lines of a level are wanted, without a lock that an interrupt could leave held."""
    root = getattr(sys.modules.get("logging"), "root", None)
    if root is None:
        return False
    # The root is the only parent. A level of 0 is none; where there is no logger yet, neither.
    own = getattr(root.manager.loggerDict.get(_NAME), "level", 0)
    return bool((own or root.level) <= LEVELS[level])


def set_level(level: str) -> None:
    import logging

    global _printing
    _printing = level in ("debug", "info")
    logging.getLogger(_NAME).setLevel(LEVELS[level])


def store_name(path: str | None) -> str:
    """Return how messages name a store: by its file alone, since folders have a person's name."""
    return f"the device's store {os.path.basename(path)!r}" if path else "the device's store"


def drop_locals(error: BaseException) -> None:
    """Clear the local variables of the frames that an exception came through, where it was caught.

    Names and lines of the functions stay in its traceback. Its cause and context are dropped: they
    have frames, and texts, of their own. The frame that calls this is running: it deletes its
    variables itself.
    """
    error.__cause__ = error.__context__ = None
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        try:
            frame.clear()
        except RuntimeError:
            # It is running.
            continue
