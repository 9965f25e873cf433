"""A streaming job in one thread: keyed state in memory, rolled back and moved at will."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipelines import quarantine
from pipelines.published import Document, parse
from pipelines.streaming import clock
from pipelines.streaming.books import BookKeeper
from pipelines.streaming.clock import ClockKeeper
from pipelines.streaming.deployment import Deployment, Lane
from pipelines.streaming.letters import Letter, Port
from pipelines.streaming.shards import ShardKeeper
from pipelines.streaming.states import BookStates, ClockStates, ShardStates, WindowStates
from pipelines.streaming.windows import WindowKeeper
from sotto.decode import Reject

LANES = 0
_STATES = {
    LANES: ClockStates,
    Port.SHARDS: ShardStates,
    Port.WINDOWS: WindowStates,
    Port.BOOKS: BookStates,
}
_EMPTY: dict[str, Any] = {"Cell": None, "Bag": [], "Store": {}}


class Record(NamedTuple):
    """A record of a lane: its timestamp, its type, its value."""

    timestamp: int
    message: bytes
    appended: bool = True


class Backend:
    """All keyed state of a job; ``key`` is the one in work."""

    def __init__(self) -> None:
        self.content: dict[tuple[int, object], dict[str, Any]] = {}
        self.key: tuple[int, object] = (0, 0)
        self.written = 0

    def states(self, keeper: int) -> Any:
        kind = _STATES[keeper]
        return kind(
            **{f.name: _Handle(self, f.name, str(f.type)) for f in dataclasses.fields(kind)}
        )

    def read(self, name: str, kind: str) -> Any:
        held = self.content.get(self.key, {})
        return held.get(name, _EMPTY[kind])

    def write(self, name: str, kind: str) -> dict[str, Any]:
        held = self.content.setdefault(self.key, {})
        if name not in held:
            held[name] = copy.copy(_EMPTY[kind])
        return held


class _Handle:
    """A cell, bag or store of the key in work."""

    def __init__(self, backend: Backend, name: str, kind: str) -> None:
        self._backend, self._name, self._kind = backend, name, kind

    def _value(self) -> Any:
        return self._backend.read(self._name, self._kind)

    def _held(self) -> dict[str, Any]:
        return self._backend.write(self._name, self._kind)

    def get(self, key: bytes | None = None) -> bytes | None:
        value = self._value()
        return value if self._kind == "Cell" else value.get(key)

    def set(self, value: bytes) -> None:
        assert isinstance(value, bytes)
        self._backend.written += len(value)
        self._held()[self._name] = value

    def append(self, value: bytes) -> None:
        assert isinstance(value, bytes)
        self._backend.written += len(value)
        self._held()[self._name].append(value)

    def put(self, key: bytes, value: bytes) -> None:
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        self._backend.written += len(key) + len(value)
        self._held()[self._name][key] = value

    def remove(self, key: bytes) -> None:
        self._held()[self._name].pop(key, None)

    def clear(self) -> None:
        self._held().pop(self._name)

    def items(self) -> Any:
        return self._value().items()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._value())


class Process:
    """Keepers that share what is in memory."""

    def __init__(self, deployment: Deployment, backend: Backend) -> None:
        self.backend = backend
        self.lanes = ClockKeeper(deployment, backend.states(LANES))
        self.shards = ShardKeeper(deployment, backend.states(Port.SHARDS))
        self.windows = WindowKeeper(deployment, backend.states(Port.WINDOWS))
        self.books = BookKeeper(deployment, backend.states(Port.BOOKS))

    def take(self, port: Port, key: int, body: bytes, now: int) -> Iterator[Letter]:
        self.backend.key = (port, key)
        if port is Port.SHARDS:
            return self.shards.take(key, body, now)
        if port is Port.WINDOWS:
            return self.windows.take(key, body, now)
        return self.books.take(body, now)


class Checkpoint(NamedTuple):
    """All keyed state, the positions of the sources, and what had been told, of one moment."""

    content: dict[tuple[int, object], dict[str, Any]]
    positions: dict[Lane, int]
    told: int


class Runner:
    """A job over logs that are complete.

    Letters of one sender's key to one key stay in order; which of several is taken next is chosen
    at random. What went to the outside is never taken back.
    """

    def __init__(
        self, deployment: Deployment, logs: dict[Lane, list[Record]], source: random.Random
    ) -> None:
        self.deployment = deployment
        self.logs = logs
        self.random = source
        self.backend = Backend()
        self.processes = [self.process()]
        self.positions = dict.fromkeys(deployment.lanes, 0)
        self.channels: dict[tuple[int, object, Port, int], deque[bytes]] = {}
        self.now = 1_800_000_000_000
        self.documents: dict[bytes, Document] = {}
        self.panes: list[Document] = []
        self.told: list[bytes] = []
        # Documents made in what was rolled back, and not again since.
        self.phantoms: set[bytes] = set()
        self.rejects: list[Reject] = []
        self.checkpoints = [self._snapshot()]
        self.spread = 1

    def process(self) -> Process:
        return Process(self.deployment, self.backend)

    def read(self, lane: Lane, number: int) -> None:
        """Take records of a lane."""
        end = min(self.positions[lane] + number, len(self.logs.get(lane, ())))
        while self.positions[lane] < end:
            at = self.positions[lane]
            upto = self.random.randint(at + 1, end)
            records = enumerate(self.logs[lane][at:upto], start=at)
            batch = [
                clock.Record(offset, record.timestamp, record.appended, record.message)
                for offset, record in records
            ]
            self.positions[lane] = upto
            self.backend.key = (LANES, lane)
            for letter in list(self._process(lane).lanes.take(lane, batch)):
                self._send((LANES, lane), letter)

    def tick(self, after: int) -> None:
        """Tick all lanes, so many ms after what was before."""
        self.now += after
        for lane in self.deployment.lanes:
            self.backend.key = (LANES, lane)
            for letter in list(self._process(lane).lanes.tick(lane, self.now)):
                self._send((LANES, lane), letter)

    def deliver(self, number: int | None = None) -> None:
        """Deliver letters, all if no number is given."""
        while self.channels and (number is None or number > 0):
            channel = self.random.choice(list(self.channels))
            queue = self.channels[channel]
            port, key = channel[2:]
            for _ in range(self.random.randint(1, len(queue))):
                body = queue.popleft()
                for letter in self._process(key).take(port, key, body, self.now):
                    self._send((port, key), letter)
                    self.backend.key = (port, key)
                number = None if number is None else number - 1
            if not queue:
                del self.channels[channel]

    def checkpoint(self) -> None:
        """Let everything that is under way arrive, and remember the moment."""
        self.deliver()
        self.checkpoints.append(self._snapshot())

    def roll_back(self, back: int = 1) -> None:
        """Return to a checkpoint; what processes have in memory stays."""
        del self.checkpoints[max(len(self.checkpoints) - back + 1, 1) :]
        content, self.positions, told = copy.deepcopy(self.checkpoints[-1])
        self.backend.content = content
        self.phantoms.update(self.told[told:])
        self.channels.clear()
        self.now += 1

    def restart(self, at: int) -> None:
        """Lose what a process has in memory; keyed state goes back to the last checkpoint."""
        self.processes[at % len(self.processes)] = self.process()
        self.roll_back()

    def rescale(self, number: int) -> None:
        """Spread keys over so many processes from the last checkpoint on; idle ones stay alive."""
        while len(self.processes) < number:
            self.processes.append(self.process())
        self.spread = number
        self.roll_back()

    def finish(self) -> None:
        """Take all that there is, and wait until all is told."""
        for lane in self.deployment.lanes:
            self.read(lane, len(self.logs.get(lane, ())))
        # Lanes that were restored are behind for a while.
        for _ in range(6 + self.deployment.quiet // self.deployment.every + 1):
            self.deliver()
            self.tick(max(self.deployment.linger, self.deployment.every))
        self.deliver()

    def _process(self, key: object) -> Process:
        return self.processes[hash(key) % self.spread]

    def _send(self, sender: tuple[int, object], letter: Letter) -> None:
        if letter.port is Port.DOCUMENTS:
            self._publish(letter)
        elif letter.port is Port.QUARANTINE:
            self.rejects += quarantine.unpack(letter.body)
        else:
            channel = (*sender, letter.port, letter.key)
            self.channels.setdefault(channel, deque()).append(letter.body)

    def _publish(self, letter: Letter) -> None:
        document = parse(letter.name, letter.body)
        self.panes.append(document)
        self.told.append(letter.name)
        self.phantoms.discard(letter.name)
        held = self.documents.get(letter.name)
        if held is None or document.revision > held.revision:
            self.documents[letter.name] = document

    def _snapshot(self) -> Checkpoint:
        return copy.deepcopy(Checkpoint(self.backend.content, self.positions, len(self.told)))
