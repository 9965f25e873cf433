"""Publishers that tests wait for, and that wait for tests; plans whose reports are due at once."""

from __future__ import annotations

import threading
import time
from typing import Any
from unittest.mock import patch

from device_plans import VAST, metric, plan
from waiting import wait_until

from clientsdk import Client, MemoryPublisher
from sotto.errors import PublishError
from sotto.plan.compiled import CompiledPlan

#: In milliseconds of real time.
RESOLUTION = 50
#: No test waits longer.
PATIENCE = 300.0


def quick_plan(*metrics: dict[str, Any], **changes: Any) -> CompiledPlan:
    """A plan whose first level is due after 50 to 100 ms, and the second 100 ms later."""
    ladder = [(500_000, 0), (1_000_000, 100)]
    changes = {"resolution": RESOLUTION, "expires": 4_102_444_800_000, "ceilings": VAST, **changes}
    # Real plans have a second at least.
    with patch("sotto.plan.checks.MIN_RESOLUTION", RESOLUTION):
        return plan(*(metrics or (metric("colour", "every", 1000, ladder=ladder),)), **changes)


def wait_until_due(client: Client) -> None:
    """Wait until a client has a report to send, which nobody else sends meanwhile."""
    wait_until(lambda: (client.next_due() or 0) <= time.time() * 1000)


class Noting(MemoryPublisher):
    """Lets tests wait for messages."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def publish(self, shard: int, message: bytes) -> None:
        with self._changed:
            super().publish(shard, message)
            self._changed.notify_all()

    def wait_for(self, number: int) -> list[bytes]:
        """Wait until so many messages were published; return all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= number, PATIENCE)
            return [message for _, message in self.messages]


class Failing(Noting):
    """Fails for each message to which it has an error to raise, having noted it."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def publish(self, shard: int, message: bytes) -> None:
        super().publish(shard, message)
        if self.errors:
            raise self.errors.pop(0)


class Stuck(Noting):
    """Is given a message and does not return until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def publish(self, shard: int, message: bytes) -> None:
        self.entered.set()
        if not self.let_go.wait(PATIENCE):
            raise PublishError("nobody let go")
        super().publish(shard, message)


class StuckSyncing(Stuck):
    """Takes messages at once and does not say that they are safe until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[int, bytes]] = []

    def publish(self, shard: int, message: bytes) -> None:
        self.held.append((shard, message))

    def sync(self) -> None:
        for shard, message in self.held:
            super().publish(shard, message)
        self.held.clear()
