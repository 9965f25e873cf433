"""What is still done when the interpreter ends: within one second, all of it together.

It is done when all threads that the interpreter waits for have ended, since those may still
record. Children of ``multiprocessing`` end in a way of their own, which is attended to where one
of them has a sender. A process that is killed, or that ends by ``os._exit``, does nothing of it
and loses nothing by that: the reports are in the state file.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable

#: Seconds for what is done first, and for all; the interpreter needs some itself to end.
FIRST = 0.4
LIMIT = 0.5

_first: list[Callable[[float], None]] = []
_then: list[Callable[[float], None]] = []
_ending = False
_attended: int | None = None


def do_first(work: Callable[[float], None]) -> None:
    """Call ``work`` at the end, with the moment on the monotonic clock by which it must return."""
    _first.append(work)


def do_then(work: Callable[[float], None]) -> None:
    """Call ``work`` likewise, after all that is to be done first and within the same second."""
    _then.append(work)


def ending() -> bool:
    """Whether the interpreter is ending."""
    return _ending


def attend() -> None:
    """Do at the end of this process what is to be done, also if it is a child of multiprocessing.

    Such a child, and every worker of a process pool, runs no functions of ``atexit``.
    """
    global _attended
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    if _attended != os.getpid():
        _attended = os.getpid()
        util.Finalize(None, _end, exitpriority=0)


@atexit.register
def _end() -> None:
    global _ending
    _ending = True
    now = time.monotonic()
    for works, limit in ((_first, FIRST), (_then, LIMIT)):
        for work in works:
            work(now + limit)
