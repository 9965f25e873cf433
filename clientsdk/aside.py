"""Work that may take long, in a thread of its own, for who cannot wait for it to the end.

The thread is a daemon: the interpreter ends without it. That is why it is none of
``concurrent.futures``, whose threads are waited for at exit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Aside(Generic[Result]):
    """Something that is being done.

    Parameters
    ----------
    work : callable
        Begins at once.

    Raises
    ------
    RuntimeError
        There is no thread to be had, as while the interpreter ends.
    """

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._ended = threading.Event()
        self._result: list[Result] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="sotto-aside", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, no longer than that; return whether it has come."""
        return self._ended.wait(min(max(0.0, seconds), threading.TIMEOUT_MAX))

    def result(self) -> Result:
        """Return what came of it, or raise what it raised; it must have ended."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()


def aside(work: Callable[[], Result]) -> Aside[Result] | None:
    """Begin ``work``, or return None if there is no thread to be had."""
    try:
        return Aside(work)
    except RuntimeError:
        return None


async def awaited(work: Callable[[], Result]) -> Result:
    """Do ``work`` without keeping the running event loop of asyncio from anything else.

    If the waiting is cancelled the work goes on to its end.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def noted() -> Result:
        try:
            return work()
        finally:
            # The loop may be closed by then, and nobody wait any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

    doing = Aside(noted)
    await ended.wait()
    doing.wait(threading.TIMEOUT_MAX)
    return doing.result()
