"""The steady run: what it sends, and what it calls flat."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.soak import load
from benchmarks.soak.load import LATE, LEVELS, METRICS, Load, plan_of
from benchmarks.soak.trend import trend
from mechanisms.coins import shard_of
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic
from sotto.wire.format import decode_message

DEVICES = 100
MINUTES = np.arange(0, 30 * 60, 10.0)


class Recorded(list):
    """Stands for a producer: all is acknowledged at once."""

    def __init__(self, broker: Broker, **settings: object) -> None:
        super().__init__()

    def produce(self, topic, message, partition, on_delivery):
        self.append((partition, message))
        on_delivery(None, message)

    def poll(self, seconds):
        return 0

    def flush(self, seconds):
        return 0

    def __len__(self) -> int:
        return 0


def test_the_load_sends_every_level_once_and_some_late(monkeypatch):
    monkeypatch.setattr(load, "producer", Recorded)
    topic = ReportTopic("steady", 1, 4)
    made = Load(Broker("127.0.0.1:9"), topic, rate=DEVICES * LEVELS * METRICS)
    made._make(0)
    made._send_until(float("inf"))
    assert (made.values, made.acknowledged, made.failed) == (500, LEVELS * DEVICES, 0)
    plan, seen, late = plan_of(), {}, 0
    for partition, bytes_ in list(made._producer.__iter__()):
        message = decode_message(bytes_)
        assert topic.partition(message.shard) == partition
        assert len(message.groups) == METRICS
        for run in message.groups:
            (row,) = run.rows
            assert shard_of(row.pseudonym, plan.shards) == message.shard
            key = (run.metric, row.pseudonym, row.chain, row.event)
            late += row.level < max(seen.get(key, {-1}))
            seen.setdefault(key, set()).add(row.level)
    assert len(seen) == 500
    assert all(levels == {0, 1, 2} for levels in seen.values())
    assert late == int(DEVICES * LATE) * METRICS


def test_a_saw_is_flat_and_growth_is_not():
    noise = np.random.default_rng(1).normal(size=MINUTES.size)
    saw = 100 + MINUTES % 60 + noise
    found = trend(MINUTES.tolist(), saw.tolist(), 60)
    assert found.flat
    assert abs(found.slope) < 3 * found.error
    grown = trend(MINUTES.tolist(), (saw + MINUTES / 60).tolist(), 60)
    assert not grown.flat
    assert grown.slope == pytest.approx(1, abs=0.2)


def test_growth_before_the_second_half_is_no_growth():
    warm = np.minimum(MINUTES, 600) + 100
    assert trend(MINUTES.tolist(), warm.tolist(), 60).flat


def test_too_short_a_run_is_not_called_flat():
    found = trend([0.0, 10.0, 20.0], [1.0, 1.0, 1.0], 60)
    assert math.isnan(found.slope)
    assert not found.flat
    assert not trend([], [], 60).flat
