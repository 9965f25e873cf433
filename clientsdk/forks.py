"""Forks: no connection to a store crosses one.

SQLite keeps its locks on a file a process, and counts them in memory. A child of a fork inherits
the counts without the locks: a connection that it opens beside its parent's believes that it
holds a lock which it does not, and when the parent then closes its own, the log with the child's
commits is deleted under the child. So connections are closed just before a fork and opened again,
in parent and child alike, at the next use.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Forkable(Protocol):
    """What holds a resource that must not cross a fork."""

    def before_fork(self) -> None:
        """Let the resource go, and let nobody take it until one of the others is called."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Go on, as another process."""
        ...


#: Seconds after which it is asked whether whoever holds the guard is a thread of the parent.
PATIENCE = 2.0

# Held during a fork, and while a process finds out that it is the child of one. Reentrant: a
# signal handler may fork.
_guard = threading.RLock()
#: The process that has taken the guard last.
_holder = 0
_held: list[threading.RLock] = []
#: Connections that can neither be used nor closed in this process.
abandoned: list[sqlite3.Connection | sqlite3.Cursor] = []
_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_suspended: list[Forkable] = []


def watch(resource: Forkable) -> None:
    """Call ``resource`` around every fork of this process, as long as it lives."""
    with alone():
        _watched.add(resource)


@contextmanager
def alone() -> Iterator[None]:
    """Keep forks away, and others that do the same."""
    held = _taken()
    try:
        yield
    finally:
        held.release()


def _taken() -> threading.RLock:
    """Take the guard, however long a fork in this process takes.

    A fork without hooks may have left it in the hands of a thread that is not here.
    """
    global _guard, _holder
    while True:
        held = _guard
        if held.acquire(timeout=PATIENCE):
            _holder = os.getpid()
            return held
        if _holder != os.getpid() and _guard is held:
            _guard = threading.RLock()


def _before() -> None:
    _held.append(_taken())
    _suspended[:] = list(_watched)
    for resource in _suspended:
        resource.before_fork()


def _after_in_parent() -> None:
    for resource in _suspended:
        resource.after_fork_in_parent()
    _resume()


def _after_in_child() -> None:
    global _holder
    _holder = os.getpid()
    for resource in _suspended:
        resource.after_fork_in_child()
    _resume()


def _resume() -> None:
    _suspended.clear()
    if _held:
        _held.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
