"""Messages of many requests are written together, in random order."""

from __future__ import annotations

import asyncio
from collections import Counter

from statistical import check_counts

from pipelines.collector.commits import GroupCommit


class Groups:
    """A store that keeps the groups it was given."""

    def __init__(self) -> None:
        self.groups: list[list[tuple[int, bytes]]] = []

    def write(self, messages) -> None:
        self.groups.append(list(messages))

    def close(self) -> None:
        pass


def test_the_order_within_a_group_is_random() -> None:
    """All orders of three messages are equally likely, also of two that came in one request."""
    store = Groups()

    async def check() -> None:
        for _ in range(1200):
            commits = GroupCommit(store, 0.0001)
            await asyncio.gather(commits.write([(0, b"a"), (0, b"b")]), commits.write([(0, b"c")]))
            await commits.close()

    asyncio.run(check())
    seen = Counter(b"".join(body for _, body in group) for group in store.groups)
    assert len(store.groups) == 1200
    check_counts(list(seen.values()), [1 / 6] * 6, label="orders")


def test_closing_writes_what_waits() -> None:
    store = Groups()

    async def check() -> None:
        commits = GroupCommit(store, 60)
        waiting = asyncio.create_task(commits.write([(0, b"a")]))
        await asyncio.sleep(0)
        await asyncio.gather(commits.close(), waiting)

    asyncio.run(asyncio.wait_for(check(), 30))
    assert store.groups == [[(0, b"a")]]
