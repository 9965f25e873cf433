"""Group commit: messages of many requests are written together, in random order.

A group takes what arrives within the *hold*, a few milliseconds after its first message. Its
messages are shuffled with the operating system's randomness, written at one time, and all its
requests are answered when it is durable. So neither the order in the log nor the moment of an
answer says which messages came over one connection, beyond that they came within one hold.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.collector.stores import MessageStore
from sotto.errors import PublishError

#: Seconds for which a group is open at least.
HOLD = 0.01
#: Seconds after a failure of the store within which messages are refused without trying it.
PAUSE = 1.0


_logger = logging.getLogger(__name__)


class _Request(NamedTuple):
    messages: Sequence[tuple[int, bytes]]
    done: asyncio.Future[None]


@dataclass(eq=False, repr=False)
class GroupCommit:
    """Writes the messages of all requests to one store, group by group.

    Parameters
    ----------
    store : Store
    hold : float
        Seconds for which a group is open at least.
    warn : callable
        Called when the store begins to fail, and when it works again.
    pause : float
        Seconds after a failure in which requests are refused without trying the store.
    """

    store: MessageStore
    hold: float = HOLD
    warn: Callable[[str], None] = _logger.warning
    pause: float = PAUSE

    def __post_init__(self) -> None:
        #: Why the last group was not written; None if it was.
        self._failure: str | None = None
        self._resume = 0.0
        self._waiting: list[_Request] = []
        self._opened = 0.0
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._random = random.SystemRandom()
        self._thread = ThreadPoolExecutor(1, "sotto-collector-write")
        self._task: asyncio.Task[None] | None = None

    async def write(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Return once messages, each with its shard, are durable.

        Raises
        ------
        PublishError
            The store has failed, just now or within ``pause``, or is closed. The messages may have
            been written or not.
        """
        loop = asyncio.get_running_loop()
        if self._closing.is_set():
            raise PublishError("the collector is ending")
        if self._failure is not None and loop.time() < self._resume:
            raise PublishError(self._failure)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if not self._waiting:
            self._opened = loop.time()
        request = _Request(messages, loop.create_future())
        self._waiting.append(request)
        self._arrived.set()
        await request.done

    async def close(self) -> None:
        """Refuse further messages, write those that wait, and close the store."""
        self._closing.set()
        self._arrived.set()
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(self._thread, self.store.close)
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._closing.is_set() or self._waiting:
            await self._arrived.wait()
            # The next group has been open since its first message, also while one was written.
            with suppress(TimeoutError):
                left = self._opened + self.hold - loop.time()
                await asyncio.wait_for(self._closing.wait(), max(0.0, left))
            self._arrived.clear()
            group, self._waiting = self._waiting, []
            if group:
                await self._write(group)

    async def _write(self, group: Sequence[_Request]) -> None:
        loop = asyncio.get_running_loop()
        failure: str | None = None
        try:
            messages = [message for request in group for message in request.messages]
            self._random.shuffle(messages)
            await loop.run_in_executor(self._thread, self.store.write, messages)
        except PublishError as error:
            failure = str(error)
        except Exception as error:
            failure = f"the store has failed ({type(error).__name__})"
        before, self._failure = self._failure, failure
        self._resume = loop.time() + self.pause
        for request in group:
            # The future of a client that has gone is cancelled.
            with suppress(asyncio.InvalidStateError):
                if failure is None:
                    request.done.set_result(None)
                else:
                    request.done.set_exception(PublishError(failure))
        # A warning may go to a disk that is full as well.
        with suppress(OSError):
            if failure is None and before is not None:
                self.warn("messages are taken again")
            elif failure is not None and failure != before:
                self.warn(f"messages are refused: {failure}")
