"""The devices that play for the deployment in containers: what they send can be estimated."""

from __future__ import annotations

import pytest

from clientsdk import MemoryPublisher
from clientsdk.testing import FakeClock
from examples.compose.__main__ import PLAN, send
from sotto.errors import PublishError
from sotto.plan.compile import load_plan


def test_every_device_sends_both_rungs_of_all_answers() -> None:
    clock, publisher = FakeClock(), MemoryPublisher()
    began = clock()
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(ms=int(seconds * 1000))

    assert send(load_plan(PLAN).compile(), publisher, 5, clock, wait) == 5 * 3 * 2
    assert 60 <= clock() - began < 70
    assert all(seconds >= 0 for seconds in waited)


def test_a_broker_that_is_not_there_ends_it() -> None:
    class Refusing(MemoryPublisher):
        def publish(self, shard: int, message: bytes) -> None:
            raise PublishError("no broker takes messages")

    clock = FakeClock()
    with pytest.raises(PublishError):
        send(load_plan(PLAN).compile(), Refusing(), 1, clock, lambda s: clock.advance(ms=2000))
