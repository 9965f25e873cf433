"""Keyed operators of Flink, keepers in each: they pass letters on and do nothing else.

There are three, one behind the other: of lanes, of shards, and of sums (windows and books). What
one has for somebody further on goes through those between, each key in order. No timer is used:
what is to happen in time happens at ticks, which come through the graph like records do. A
restored timer may be lost; a tick is followed by the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from pipelines.flink.orders import Work
from pipelines.flink.states import BYTES, states
from pipelines.quarantine import unpack
from pipelines.quarantined import quarantine_record
from pipelines.streaming.books import BookKeeper
from pipelines.streaming.clock import ClockKeeper, Record
from pipelines.streaming.deployment import Deployment, Lane
from pipelines.streaming.letters import Letter, Port
from pipelines.streaming.shards import ShardKeeper
from pipelines.streaming.states import BookStates, ClockStates, ShardStates, WindowStates
from pipelines.streaming.windows import WindowKeeper

#: A letter between operators: port, key, body, and a document's name.
Sent: TypeAlias = tuple[int, int, bytes, bytes]
LETTER = Types.TUPLE([Types.INT(), Types.LONG(), BYTES, BYTES])
#: A record to be written: port, key, value and headers.
RECORD = Types.ROW_NAMED(
    ["port", "name", "body", "headers"],
    [Types.INT(), BYTES, BYTES, Types.MAP(Types.STRING(), BYTES)],
)
ADDRESS = Types.LONG()

_KEYS = 1 << 40
_NO_HEADERS: dict[str, bytes] = {}


def address(letter: Sent) -> int:
    """Return the key under which a letter's keeper keeps its state."""
    return letter[0] * _KEYS + letter[1] + 1


@lru_cache(maxsize=4)
def _deployment(work: Work) -> Deployment:
    return work.deployment()


class _Keeping(KeyedProcessFunction):
    """An operator that is given what all of them know."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._latest = 0

    def _now(self) -> int:
        """Return the wall clock, ms; where it is set back, the latest that it has shown."""
        self._latest = max(self._latest, time.time_ns() // 1_000_000)
        return self._latest


class Lanes(_Keeping):
    """Records and ticks of lanes become letters."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Make the keeper."""
        kept = states(ClockStates, runtime_context)
        self._keeper = ClockKeeper(_deployment(self._work), kept)

    def process_element(self, value: Row, ctx: Any) -> Iterable[Sent]:
        """Yield letters."""
        name, *columns = value
        lane = _lane(name)
        if columns[0] is None:
            return map(_sent, self._keeper.tick(lane, self._now()))
        return map(_sent, self._keeper.take(lane, map(Record, *columns)))


class Shards(_Keeping):
    """Messages of shards become changes of windows."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Make the keeper."""
        kept = states(ShardStates, runtime_context)
        self._keeper = ShardKeeper(_deployment(self._work), kept)

    def process_element(self, value: Sent, ctx: Any) -> Iterable[Sent]:
        """Yield what shards send; let pass what is for others."""
        port, key, body, _ = value
        if port == Port.SHARDS:
            return map(_sent, self._keeper.take(key, body, self._now()))
        return (value,)


class Sums(_Keeping):
    """Changes of windows and what is told to the books become records to be written."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Make the keepers."""
        told = _deployment(self._work)
        self._windows = WindowKeeper(told, states(WindowStates, runtime_context))
        self._books = BookKeeper(told, states(BookStates, runtime_context))

    def process_element(self, value: Sent, ctx: Any) -> Iterator[Row]:
        """Yield documents, and what was rejected."""
        port, key, body, _ = value
        if port == Port.QUARANTINE:
            yield from _rejects(self._work.job, body)
            return
        now = self._now()
        windows = port == Port.WINDOWS
        letters = self._windows.take(key, body, now) if windows else self._books.take(body, now)
        for letter in letters:
            yield Row(int(letter.port), letter.name, letter.body, _NO_HEADERS)


def _sent(letter: Letter) -> Sent:
    # Flink's serializer takes plain tuples alone.
    return int(letter.port), letter.key, letter.body, letter.name


@lru_cache(maxsize=4096)
def _lane(text: str) -> Lane:
    topic, _, partition = text.rpartition("/")
    return Lane(topic, int(partition))


def _rejects(job: str, packed: bytes) -> Iterator[Row]:
    for reject in unpack(packed):
        record = quarantine_record(reject, job)
        yield Row(int(Port.QUARANTINE), record.key, record.value, dict(record.headers))
