"""How fast the keepers of a streaming job are without an engine, and what a large state costs them.

Keyed state is in dictionaries: an engine's own work comes on top. Reports are those of
``benchmarks.kafka``, 64 shards, a tick every 100,000 reports, so that shards take what waits by
number; and one every 20,000, as in a job that gets so many a second, where they take what there is.
*In blocks* are the same messages decoded and stepped 50,000 at a time: what remains of the work if
nothing has to be kept for each message. Times are the process's own CPU time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.drain import plan
from benchmarks.kafka import devices, messages
from benchmarks.step import registry as steps
from benchmarks.step import stream
from mechanisms.testing import SeededSource
from pipelines.blocks import arrivals
from pipelines.keyed import new_key
from pipelines.shard import step_blocks
from pipelines.state import State
from pipelines.streaming.books import BookKeeper
from pipelines.streaming.clock import ClockKeeper, Record
from pipelines.streaming.deployment import Deployment, Lane
from pipelines.streaming.journal import Journal, LiveStates
from pipelines.streaming.letters import Letter, Port
from pipelines.streaming.shards import ShardKeeper
from pipelines.streaming.states import BookStates, ClockStates, ShardStates, WindowStates
from pipelines.streaming.windows import WindowKeeper
from sotto.compiled import CompiledPlan
from sotto.logreader import Block
from sotto.registry import Registry
from sotto.topics import ReportTopic

SEED = 20_240_503
TOPIC = ReportTopic("reports", 1, 8)
EVERY = 100_000
#: Rows a message, reports, reports between two ticks.
CASES = ((1, 300_000, EVERY), (5, 600_000, EVERY), (50, 1_500_000, EVERY), (5, 600_000, 20_000))
#: Lanes are given what has come so often between two ticks.
BATCHES = 5
BLOCK = 50_000
CHAINS = (10_000, 100_000, 1_000_000)
TURN = 2_000
HOUR = 3_600_000


class Memory:
    """Keyed state in dictionaries: a cell, bag or store by its name and the key in work."""

    def __init__(self) -> None:
        self.key: object = None
        self.written = 0

    def states(self, kind: Any) -> Any:
        return kind(**{f.name: _Held(self, str(f.type)) for f in dataclasses.fields(kind)})


class _Held:
    def __init__(self, memory: Memory, kind: str) -> None:
        self._memory = memory
        self._made: Any = {"Cell": lambda: None, "Bag": list, "Store": dict}[kind]
        self._values: dict[object, Any] = {}

    def _value(self) -> Any:
        key = self._memory.key
        if key not in self._values:
            self._values[key] = self._made()
        return self._values[key]

    def get(self, *key: bytes) -> Any:
        return self._value().get(*key) if key else self._value()

    def set(self, value: bytes) -> None:
        self._memory.written += len(value)
        self._values[self._memory.key] = value

    def append(self, value: bytes) -> None:
        self._memory.written += len(value)
        self._value().append(value)

    def put(self, key: bytes, value: bytes) -> None:
        self._memory.written += len(value)
        self._value()[key] = value

    def remove(self, key: bytes) -> None:
        self._value().pop(key, None)

    def items(self) -> Any:
        return self._value().items()

    def clear(self) -> None:
        self._values.pop(self._memory.key, None)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._value())


class Graph:
    """All keepers of a job, each letter delivered at once."""

    def __init__(self, deployment: Deployment) -> None:
        self.memory, self.deployment = Memory(), deployment
        self.lanes = ClockKeeper(deployment, self.memory.states(ClockStates))
        self.shards = ShardKeeper(deployment, self.memory.states(ShardStates))
        self.windows = WindowKeeper(deployment, self.memory.states(WindowStates))
        self.books = BookKeeper(deployment, self.memory.states(BookStates))
        self.now = time.time_ns() // 1_000_000

    def take(self, records: dict[Lane, list[Record]]) -> None:
        for lane, batch in records.items():
            self.memory.key = lane
            for letter in list(self.lanes.take(lane, batch)):
                self._deliver(letter)

    def tick(self) -> None:
        self.now += 1_000
        for lane in self.deployment.lanes:
            self.memory.key = lane
            for letter in list(self.lanes.tick(lane, self.now)):
                self._deliver(letter)

    def _deliver(self, letter: Letter) -> None:
        port, key, body, _ = letter
        self.memory.key = port, key
        found: Iterator[Letter] = iter(())
        if port is Port.SHARDS:
            found = self.shards.take(key, body, self.now)
        elif port is Port.WINDOWS:
            found = self.windows.take(key, body, self.now)
        elif port is Port.BOOKS:
            found = self.books.take(body, self.now)
        for each in list(found):
            self._deliver(each)


def sent(compiled: CompiledPlan, rows: int, reports: int) -> list[tuple[int, int, bytes]]:
    """Return (append time, shard, message), rung after rung, devices in any order."""
    source = SeededSource(SEED)
    group = max(1, rows // len(compiled.metrics))
    sets = [[metric] for metric in compiled.metrics] if rows == 1 else [list(compiled.metrics)]
    found = devices(reports // 3 // len(compiled.metrics), compiled.shards, group, source)
    parts = [messages(compiled, chosen, found, group, SEED + at) for at, chosen in enumerate(sets)]
    draw = np.random.default_rng(SEED)
    made = []
    for level, delay in enumerate(compiled.metrics[0].delays):
        append = int(found.event.max()) + delay + HOUR
        for part in parts:
            raw, size = part[level].tobytes(), part.dtype.itemsize
            shards = part[level]["shard"].tolist()
            made += [
                (append, shards[at], raw[at * size : (at + 1) * size])
                for at in draw.permutation(len(shards)).tolist()
            ]
    return made


def keepers(registry: Registry, made: list[tuple[int, int, bytes]], every: int) -> float:
    """Return the CPU seconds that the keepers take, ticked after every so many messages."""
    graph = Graph(Deployment("benchmark", registry, (TOPIC,)))
    lanes = graph.deployment.lanes
    batch = every // BATCHES
    began = time.process_time()
    for turn, first in enumerate(range(0, len(made), batch), start=1):
        records: dict[Lane, list[Record]] = {}
        for offset, (append, shard, message) in enumerate(made[first : first + batch], first):
            lane = lanes[TOPIC.partition(shard)]
            records.setdefault(lane, []).append(Record(offset, append, True, message))
        graph.take(records)
        if turn % BATCHES == 0:
            graph.tick()
    graph.tick()
    return time.process_time() - began


def blocks(registry: Registry, made: list[tuple[int, int, bytes]], rows: int) -> float:
    """Return the CPU seconds that decoding and stepping take, so many rows at a time."""
    states: dict[tuple[int, int], State] = {}
    key, most = new_key(), BLOCK // rows
    began = time.process_time()
    for at in range(0, len(made), most):
        part = made[at : at + most]
        lengths = np.array([len(message) for _, _, message in part])
        block = Block(
            position=0,
            buffer=b"".join(message for _, _, message in part),
            offsets=np.cumsum(lengths) - lengths,
            lengths=lengths,
            append=np.array([append for append, _, _ in part]),
            corrupt=(),
            end=0,
            clock=0,
        )
        for found in arrivals(block, registry, None).rows:
            place = found.period, found.shard
            state = states.get(place) or State(registry, found.shard, found.period, key)
            states[place] = step_blocks(state, [found.to_bytes()]).state
    return time.process_time() - began


def growth(registry: Registry) -> None:
    """Print what it costs to take 2,000 rows into states of ever more chains."""
    memory = Memory()
    journal = Journal(registry, memory.states(ShardStates), LiveStates(1 << 40))
    journal.adopt(0)
    taken = last = 0
    seed = 0
    for chains in CHAINS:
        while taken < chains:
            seed += 1
            rows = stream(registry, devices=2_000, seed=seed)
            new = rows.select(np.flatnonzero(rows.level == 0))
            journal.step(0, 0, [new.to_bytes()])
            taken = journal.read(0, 0).entries.size
        rows = stream(registry, devices=2_000, seed=seed + 10**6)
        turns = [rows.select(slice(at, at + TURN)).to_bytes() for at in range(0, 10 * TURN, TURN)]
        times = []
        for turn in turns:
            began = time.process_time()
            journal.step(0, 0, [turn])
            times.append(time.process_time() - began)
        size = sum(head.size + head.logged for head in journal.heads().values())
        began = time.process_time()
        Journal(registry, journal._states, LiveStates(0)).read(0, 0)
        again = time.process_time() - began
        print(
            f"{taken:>12,} {sorted(times)[len(times) // 2] * 1e3:>14.1f} {max(times) * 1e3:>14.1f} "
            f"{size / 1e6:>12.1f} {(memory.written - last) / 1e6:>12.1f} {again * 1e3:>14.0f}"
        )
        last = memory.written


def main() -> None:
    """Print both tables."""
    registry = Registry([plan()])
    print(f"{'rows a message':>14} {'a tick each':>12} {'reports/s':>12} {'in blocks':>12}")
    for rows, reports, every in CASES:
        made = sent(registry.plans[0], rows, reports)
        number = len(made) * rows
        kept = number / keepers(registry, made, every // rows)
        alone = number / blocks(registry, made, rows)
        print(f"{rows:>14} {every:>12,} {kept:>12,.0f} {alone:>12,.0f}", flush=True)
    print(
        f"\n{'chains':>12} {'2,000 rows, ms':>14} {'slowest, ms':>14} {'state, MB':>12} "
        f"{'written, MB':>12} {'made again, ms':>14}"
    )
    growth(steps())


if __name__ == "__main__":
    main()
