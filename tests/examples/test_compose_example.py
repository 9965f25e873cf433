"""The devices that play for the deployment in containers: what they send can be estimated."""

from __future__ import annotations

from pathlib import Path

import pytest

from clientsdk import EmbeddedLogPublisher, MemoryPublisher
from clientsdk.testing import FakeClock
from examples.compose.__main__ import PLAN, send
from pipelines.bounded.run import aggregate
from pipelines.results.tables import ESTIMATES
from pipelines.sinks.sql import Results, of_state
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


@pytest.mark.slow
def test_estimates_come_of_it(tmp_path: Path) -> None:
    plan, clock = load_plan(PLAN).compile(), FakeClock()
    publisher = EmbeddedLogPublisher(tmp_path / "log", clock=clock)
    send(plan, publisher, 50, clock, lambda seconds: clock.advance(ms=int(seconds * 1000)))
    publisher.close()
    aggregate(tmp_path / "log", tmp_path / "state", [plan])
    with Results(of_state(tmp_path / "state")) as results:
        found = [row for row in results.table(ESTIMATES) if row["metric"] == "theme"]
    assert {row["item"] for row in found} >= {"light", "dark", "high-contrast"}
    assert all(row["n"] == 50 for row in found)
