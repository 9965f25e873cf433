"""A steady load: so many reports a second, five rows a message, three levels a value.

Devices are made up in numpy, a second's at once; levels leave as the plan says, and some weak ones
only after their values' newest. What was acknowledged is printed at the end, as JSON.
"""

from __future__ import annotations

import argparse
import heapq
import json
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.kafka import producer
from benchmarks.reports import messages
from mechanisms.testing import SeededSource
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

LEVELS = 3
METRICS = 5
SECOND = 1000
#: This share of the weakest levels leaves last, so many seconds after the event.
LATE = 0.02
LATE_SECONDS = 20

#: Periods and horizons are short, so that states expire while one looks.
_PLAN = """\
collector: steady.example
plan: steady
version: 1
owner: telemetry@steady.example
expires: 2099-12-31
period: 1m
grace: 20s
ceilings: {period: 100, lifetime: 1000}
resolution: 1s
shards: 16
metrics:
"""
_METRIC = """\
  answer%d: {type: category, domain: [a, b, c, d, e, f, g], outside: other, mechanism: grr,
    window: 10s, ladder: [{epsilon: 0.5}, {epsilon: 1, after: 5s}, {epsilon: 2, after: 10s}]}
"""


def plan_of() -> CompiledPlan:
    """Return the plan of the steady load."""
    return parse_plan(_PLAN + "".join(_METRIC % number for number in range(METRICS))).compile()


class Part(NamedTuple):
    """Messages of equal size that leave at one time; ordered by it."""

    due: float
    number: int
    size: int
    data: bytes
    shards: list[int]


class Load:
    """Makes and sends so many reports a second."""

    def __init__(self, broker: Broker, topic: ReportTopic, rate: float) -> None:
        self._plan = plan_of()
        self._topic = topic
        self._devices = max(1, round(rate / LEVELS / METRICS))
        self._source = SeededSource(time.time_ns())
        self._waiting: list[Part] = []
        self._number = 0
        self._producer = producer(broker, **{"enable.idempotence": True})
        self.acknowledged = self.failed = self.values = 0
        self.behind = 0.0

    def run(self, seconds: float, ending: Any) -> None:
        """Send for so long, or until ``ending()``; then what is left."""
        began = int(time.time())
        second = began
        while second < began + seconds and not ending():
            self._make(second)
            self._send_until(second + 1)
            second += 1
        self._send_until(float("inf"))
        self._producer.flush(60)
        self.failed += len(self._producer)

    def _make(self, second: int) -> None:
        """Make what the devices of a second send, level by level."""
        pseudonyms = self._source.words(2 * self._devices).reshape(-1, 2)
        events = np.full(self._devices, second * SECOND, dtype=np.int64)
        made = messages(self._plan, pseudonyms, events, self._source)
        self.values += METRICS * self._devices
        late = int(self._devices * LATE)
        for level, step in enumerate(self._plan.metrics[0].ladder):
            # Sent as evenly as real devices would, over the second after they are due.
            due = second + 1 + step.after / SECOND
            parts = np.array_split(made[level], 20)
            if level == 0:
                self._put(second + LATE_SECONDS, made[level][:late])
                parts = np.array_split(made[level][late:], 20)
            for at, part in enumerate(parts):
                self._put(due + at / len(parts), part)

    def _put(self, due: float, part: np.ndarray[Any, np.dtype[np.void]]) -> None:
        self._number += 1
        shards = part["shard"].tolist()
        data = part.tobytes()
        heapq.heappush(self._waiting, Part(due, self._number, part.dtype.itemsize, data, shards))

    def _send_until(self, moment: float) -> None:
        """Send all that is due before a moment, each part when it is."""
        while self._waiting and self._waiting[0].due < moment:
            part = heapq.heappop(self._waiting)
            wait = part.due - time.time()
            self.behind = max(self.behind, -wait)
            if wait > 0:
                time.sleep(wait)
            for at, shard in enumerate(part.shards):
                message = part.data[at * part.size : (at + 1) * part.size]
                self._producer.produce(
                    str(self._topic),
                    message,
                    partition=self._topic.partition(shard),
                    on_delivery=self._delivered,
                )
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1


def main() -> None:
    """Run the process; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client_file", type=Path)
    parser.add_argument("topic")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    broker, topic = Broker.from_file(args.client_file), ReportTopic.parse(args.topic)
    load = Load(broker, topic, args.rate)
    load.run(args.seconds, lambda: bool(asked))
    sent = {
        "reports": METRICS * load.acknowledged,
        "failed": load.failed,
        "values": load.values,
        "behind": round(load.behind, 2),
    }
    print(json.dumps(sent))


if __name__ == "__main__":
    main()
