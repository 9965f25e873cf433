"""Flushes under way, and calls that run in a thread of their own with a timeout.

The threads are daemons: the interpreter ends without them, unlike those of ``concurrent.futures``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from clientsdk.outcomes import NO_LAPSES, Lapses
from sotto.errors import PublishError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Result = TypeVar("Result")


class SentElsewhereError(PublishError):
    """Another process is sending what is due."""


class FlushTask:
    """The task of one flush: its limits, its deadline, and what it has done so far.

    It may start messages for ``seconds``, and waits ``patience`` seconds at most for another
    process that sends from the same file. With ``one_pseudonym`` it sends the reports of one
    pseudonym alone, chosen at random; the next one follows at random within ``window``
    milliseconds, and ``rest`` says in how many seconds. With ``backs_off`` a pseudonym whose
    attempt failed waits, by itself, before the next; the first of those that wait is sent
    ``again`` in so many seconds. ``until`` is on the monotonic clock: bring it forward to end the
    flush early.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        *,
        one_pseudonym: bool = False,
        window: int = 0,
        patience: float = 0.0,
        backs_off: bool = False,
    ) -> None:
        self.until: float = time.monotonic() + seconds
        self.one_pseudonym: bool = one_pseudonym
        self.window: int = window
        self.patience: float = patience
        self.rest: float = 0.0
        self.backs_off: bool = backs_off
        self.again: float = math.inf
        #: Milliseconds until the chosen pseudonym's first chain is too late.
        self.slack: int = 0
        #: Only what came due by then (ms) is sent; None for all that is due.
        self.through: int | None = None
        self.sent: int = 0
        self.lapses: Lapses = NO_LAPSES

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def end_by(self, moment: float) -> None:
        self.until = min(self.until, moment)


class BackgroundCall:
    """A call that starts at once in a daemon thread; RuntimeError where none can be started."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._ended = threading.Event()
        self._result: list[Any] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="sotto-call", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long; return whether it has ended."""
        return self._ended.wait(min(max(0.0, seconds), threading.TIMEOUT_MAX))

    def result(self) -> Any:
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


def out_of_time() -> PublishError:
    return PublishError("the time was up before everything was sent")


async def run_in_thread(work: Callable[[], Result]) -> Result:
    """Do ``work`` in a thread, to its end, while the running event loop goes on."""
    import asyncio

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def notifying() -> Result:
        try:
            return work()
        finally:
            # The loop may be closed by then, and nobody wait any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

    call = BackgroundCall(notifying)
    await ended.wait()
    call.wait(threading.TIMEOUT_MAX)
    result: Result = call.result()
    return result
