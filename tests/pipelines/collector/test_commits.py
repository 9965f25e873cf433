"""Messages of many requests are written together, in random order."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from memory_store import MemoryStore
from statistical import check_counts

from pipelines.collector.commits import GroupCommit
from sotto.errors import PublishError


async def test_the_order_within_a_group_is_random() -> None:
    """All orders of three messages are equally likely, also of two that came in one request."""
    store = MemoryStore()
    for _ in range(500):
        commits = GroupCommit(store, 0.0001)
        await asyncio.gather(commits.write([(0, b"a"), (0, b"b")]), commits.write([(0, b"c")]))
        await commits.close()
    seen = Counter(b"".join(body for _, body in group) for group in store.groups)
    assert len(store.groups) == 500
    check_counts(list(seen.values()), [1 / 6] * 6, label="orders")


async def test_closing_writes_what_waits() -> None:
    store = MemoryStore()
    commits = GroupCommit(store, 60)
    waiting = asyncio.create_task(commits.write([(0, b"a")]))
    await asyncio.sleep(0)
    await asyncio.gather(commits.close(), waiting)
    assert store.groups == [[(0, b"a")]]


async def test_closing_writes_what_came_while_a_group_was_written() -> None:
    store, begun, finish = MemoryStore(), threading.Event(), threading.Event()
    keep = store.write

    def write(messages) -> None:
        begun.set()
        finish.wait(60)
        keep(messages)

    store.write = write
    commits = GroupCommit(store, 0.001)
    first = asyncio.create_task(commits.write([(0, b"a")]))
    await asyncio.to_thread(begun.wait, 60)
    second = asyncio.create_task(commits.write([(0, b"b")]))
    closing = asyncio.create_task(commits.close())
    await asyncio.sleep(0)
    finish.set()
    await asyncio.gather(first, second, closing)
    assert store.groups == [[(0, b"a")], [(0, b"b")]]


async def refused(commits: GroupCommit) -> str:
    """Return why a write is refused."""
    with pytest.raises(PublishError) as caught:
        await commits.write([(0, b"a")])
    return str(caught.value)


async def test_a_store_that_has_failed_is_left_alone_for_a_while() -> None:
    store, warned = MemoryStore(), []
    commits = GroupCommit(store, 0.001, warned.append, pause=60)
    store.failure = PublishError("the disk is full")
    for _ in range(3):
        assert await refused(commits) == "the disk is full"
    assert store.tried == 1
    await commits.close()

    commits = GroupCommit(store, 0.001, warned.append, pause=0)
    for failure in (PublishError("the disk is full"), ValueError("what was sent")):
        store.failure = failure
        for _ in range(2):
            assert "what was sent" not in await refused(commits)
    store.failure = None
    await commits.write([(0, b"a")])
    await commits.write([(0, b"a")])
    await commits.close()
    assert warned[1:] == [
        "messages are refused: the disk is full",
        "messages are refused: the store has failed (ValueError)",
        "messages are taken again",
    ]


async def test_a_warning_that_cannot_be_written_stops_nothing() -> None:
    store = MemoryStore()

    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    commits = GroupCommit(store, 0.001, full, pause=0)
    store.failure = PublishError("the disk is full")
    await refused(commits)
    store.failure = None
    await commits.write([(0, b"a")])
    await commits.close()
    assert await refused(commits) == "the collector is ending"


async def test_one_who_goes_away_keeps_nobody_waiting() -> None:
    store = MemoryStore()
    commits = GroupCommit(store, 0.05)
    leaving = asyncio.create_task(commits.write([(0, b"a")]))
    staying = asyncio.create_task(commits.write([(0, b"b")]))
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    await commits.close()
    assert sorted(store.groups[0]) == [(0, b"a"), (0, b"b")]
