"""Waits for conditions, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

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
