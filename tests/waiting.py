"""Waits for conditions and threads, however busy the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

#: Seconds for what takes a moment on a machine that has nothing else to do.
PATIENCE = 600.0
Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found]) -> Found:
    """Return what a condition returns once that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
    return found


def at_once(work: Callable[[Any], object], given: Iterable[object]) -> None:
    """Call a function with each of what is given, in threads of their own, until all are done."""
    threads = [threading.Thread(target=work, args=(each,)) for each in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
