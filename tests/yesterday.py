"""Devices that recorded yesterday what they send now."""

from __future__ import annotations

import time

from clientsdk import Broker, KafkaPublisher
from clientsdk.testing import FakeClock, SeededClient, small_plan
from sotto.kafka.topics import ReportTopic
from sotto.plan.compiled import CompiledPlan

HOUR = 3_600_000


def publish(
    broker: Broker,
    topic: ReportTopic,
    devices: int,
    first: int = 0,
    plan: CompiledPlan | None = None,
) -> int:
    """Let devices record yesterday and send both rungs now; return how many reports they sent."""
    chosen = plan or small_plan()
    publisher = KafkaPublisher(broker, topic, timeout=600)
    accepted = 0
    for seed in range(first, first + devices):
        clock = FakeClock(time.time_ns() // 1_000_000 - 30 * HOUR)
        client = SeededClient(
            chosen, seed=seed, clock=clock, publisher=publisher, leaks_values=True
        )
        client.record(chosen.metrics[0].name, "red" if seed % 3 else "blue")
        for hours in (3, 26):
            clock.advance(hours=hours)
            accepted += client.flush().sent
    publisher.sync()
    publisher.close()
    return accepted
