"""Fork and exit: what is done just before and after a fork, and when the interpreter ends.

No connection to a store crosses a fork. SQLite counts its locks on a file in memory: a child
inherits the counts without the locks, and when the parent closes its connection, the log with the
child's commits is deleted under the child. So connections are closed just before a fork and opened
again, in parent and child alike, at the next use.

The work of :func:`at_exit` shares one second. It starts when all threads that the interpreter waits
for have ended, since those may still record. A process that is killed, or that ends by
``os._exit``, does none of it and loses nothing: the reports are in the state file.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from _thread import RLock
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap
    from sqlite3 import Connection, Cursor
    from typing import NoReturn, SupportsIndex

#: Seconds after which :class:`NoFork` checks whether a thread of the parent holds the guard.
PATIENCE = 2.0
#: An advice of Linux 4.14 and later; ``mmap`` does not name it.
_WIPE_ON_FORK = 18
#: Which no system knows, and so none takes.
_NO_ADVICE = -1
#: Seconds within which senders must end at exit, and connections after them; the interpreter
#: itself needs some more.
SENDERS, CONNECTIONS = 0.4, 0.5


class Unshared:
    """An object that stays in the process that made it: it cannot be pickled or copied."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, since it has threads, files or "
            "connections: make one in each process"
        )


class Forkable:
    """Holds a resource that must not cross a fork: unless overridden, it stays with the parent."""

    def before_fork(self) -> None:
        """Release the resource, and let nobody take it until one of the other two is called."""

    def after_fork_in_parent(self) -> None:
        """Let the resource be taken again."""

    def after_fork_in_child(self) -> None:
        """Let the resource be taken again, in a process that does not have it."""


# The guard is held during a fork, and while a process finds out that it is the child of one. It is
# reentrant, since a signal handler may fork.
_guard = RLock()
#: The process that took the guard last.
_holder = 0
_held: list[RLock] = []
#: Connections that can neither be used nor closed in this process.
abandoned: list[Connection | Cursor] = []
_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_suspended: list[Forkable] = []


def watch_forks(resource: Forkable) -> None:
    """Call ``resource`` around every fork of this process, as long as it lives."""
    with NoFork():
        _watched.add(resource)


def wiped_by_forks() -> mmap | None:
    """Return memory of zeros that is zeros again in the child of any fork, with hooks or without.

    None where the operating system has no such memory. To read it costs less than ``os.getpid``,
    which is a system call.
    """
    if sys.platform != "linux":
        return None
    import mmap

    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(_WIPE_ON_FORK)
    except OSError:
        return None
    try:
        memory.madvise(_NO_ADVICE)
    except OSError:
        return memory
    # The system accepted advice that does not exist: older user-mode emulators do, and follow none.
    return None


class NoFork:
    """A context that keeps this process from forking, and other users of it out."""

    def __enter__(self) -> None:
        self._held = _take_guard()

    def __exit__(self, *error: object) -> None:
        self._held.release()


def _take_guard() -> RLock:
    """Take the guard, or a new one if a fork without hooks left it with a thread of the parent."""
    global _guard, _holder
    while True:
        held = _guard
        if held.acquire(timeout=PATIENCE):
            _holder = os.getpid()
            return held
        if _holder != os.getpid() and _guard is held:
            _guard = RLock()


def _before() -> None:
    _held.append(_take_guard())
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


_at_exit: dict[float, list[Callable[[float], None]]] = {SENDERS: [], CONNECTIONS: []}
_exiting = False
_attended: int | None = None


def at_exit(work: Callable[[float], None], limit: float) -> None:
    """Call ``work`` with its deadline at exit; the limit is one of the two above."""
    _at_exit[limit].append(work)


def exiting() -> bool:
    return _exiting


def attend_exit() -> None:
    """Have the exit work done in a child of multiprocessing too: it runs nothing of ``atexit``."""
    global _attended
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    if _attended != os.getpid():
        _attended = os.getpid()
        util.Finalize(None, _exit, exitpriority=0)


@atexit.register
def _exit() -> None:
    global _exiting
    _exiting = True
    now = time.monotonic()
    for limit, works in _at_exit.items():
        for work in works:
            work(now + limit)
