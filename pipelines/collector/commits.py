"""Group commit: messages of many requests are written together, in random order.

A group takes what arrives within the *hold*, a few milliseconds after its first message. Its
messages are shuffled with the operating system's randomness, written at one time, and all its
requests are answered when it is durable. So neither the order in the log nor the moment of an
answer says which messages came over one connection, beyond that they came within one hold.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from pipelines.collector.stores import Store
from sotto.errors import PublishError

#: Seconds.
HOLD = 0.01
#: Bytes of messages that may wait; more are refused.
WAITING_BYTES = 32 << 20


class OverloadError(PublishError):
    """More messages wait than the collector may hold."""


class _Request(NamedTuple):
    messages: Sequence[tuple[int, bytes]]
    size: int
    done: asyncio.Future[None]


class GroupCommit:
    """Writes the messages of all requests to one store, group by group.

    Parameters
    ----------
    store : Store
    hold : float
        Seconds that a group waits for more messages.
    waiting_bytes : int
        Of messages that are not durable yet, at most.
    """

    def __init__(
        self, store: Store, hold: float = HOLD, waiting_bytes: int = WAITING_BYTES
    ) -> None:
        self._store = store
        self._hold = hold
        self._limit = waiting_bytes
        self._waiting: list[_Request] = []
        self._size = 0
        self._arrived = asyncio.Event()
        self._random = random.SystemRandom()
        self._thread = ThreadPoolExecutor(1, "sotto-collector-write")
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def write(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Return once messages, each with its shard, are durable.

        Raises
        ------
        OverloadError
            Too much waits; nothing of these was written.
        PublishError
            The store has failed; these may be written or not.
        """
        size = sum(len(message) for _, message in messages)
        if self._closing.is_set() or self._size + size > self._limit:
            raise OverloadError("too many messages wait for the disk")
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        request = _Request(messages, size, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._size += size
        self._arrived.set()
        await request.done

    async def close(self) -> None:
        """Write what waits, refuse what comes, and close the store."""
        self._closing.set()
        self._arrived.set()
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def _run(self) -> None:
        while not self._closing.is_set() or self._waiting:
            await self._arrived.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._hold)
            self._arrived.clear()
            group, self._waiting = self._waiting, []
            if group:
                await self._write(group)

    async def _write(self, group: Sequence[_Request]) -> None:
        messages = [message for request in group for message in request.messages]
        self._random.shuffle(messages)
        failure: PublishError | None = None
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._store.write, messages)
        except PublishError as error:
            failure = error
        except Exception as error:
            failure = PublishError(f"the store has failed ({type(error).__name__})")
        self._size -= sum(request.size for request in group)
        for request in group:
            # One whose client has gone is cancelled.
            with suppress(asyncio.InvalidStateError):
                if failure is None:
                    request.done.set_result(None)
                else:
                    request.done.set_exception(failure)
