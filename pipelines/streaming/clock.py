"""Lanes: from the broker's times to append times that never fall, and to the ticks of shards."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from pipelines.streaming.batches import Timed, pack
from pipelines.streaming.catching import CatchingUp
from pipelines.streaming.deployment import Deployment, Lane
from pipelines.streaming.letters import (
    BEHIND,
    LANE,
    LANE_HEAD,
    TICK,
    TICK_HEAD,
    UNREADABLE,
    Letter,
    Port,
)
from pipelines.streaming.states import ClockStates
from sotto.logreader import EARLIEST
from sotto.wire import HEADER, MAGIC, MAX_MESSAGE, VERSIONS

_HELD = struct.Struct("<qq")


class Record(NamedTuple):
    """A record of a lane.

    Attributes
    ----------
    offset : int
    timestamp : int
        Milliseconds.
    appended : bool
        Whether the timestamp's type is LogAppendTime.
    message : bytes
        The record's value; empty if it has none.
    """

    offset: int
    timestamp: int
    appended: bool
    message: bytes


class ClockKeeper:
    """Keeps the clock of each lane; keyed by lane.

    What a lane's broker has timed moves its clock on and is given no earlier a time than the
    record before, as in a drain. A record that bears its sender's time is damage. What is given
    back bears the time at which it was first appended, which is kept, and moves no clock.

    Records come in the order of their offsets, unless the engine's own clock is set back: those
    that it kept waiting then come after others, and keep the times that their broker gave them.

    Parameters
    ----------
    deployment : Deployment
    states : ClockStates
    """

    def __init__(self, deployment: Deployment, states: ClockStates) -> None:
        self._deployment = deployment
        self._states = states
        self._catching = CatchingUp[Lane](deployment.quiet)
        self._shards_of = lru_cache(maxsize=None)(deployment.shards_of)

    def take(self, lane: Lane, records: Iterable[Record]) -> Iterator[Letter]:
        """Yield records as letters to their shards.

        Parameters
        ----------
        lane : Lane
            The key.
        records : iterable of Record
        """
        clock, following = self._held(lane)
        given_back = lane.topic == self._deployment.requeue
        shards: dict[int, list[Timed]] = {}
        for record in sorted(records):
            behind = record.offset < following
            append, damaged = record.timestamp, record.appended == given_back
            if not given_back:
                clock = clock if damaged else max(clock, append)
                append = append if behind and not damaged else clock
            # One that is too long is rejected, however long it is: it is not kept until then.
            message = record.message[: MAX_MESSAGE + 1]
            shards.setdefault(self._shard(message), []).append(Timed(append, damaged, message))
            following = max(following, record.offset + 1)
        self._states.clock.set(_HELD.pack(clock, following))
        for shard, messages in shards.items():
            for body in pack(messages):
                yield Letter(Port.SHARDS, shard, body)

    def tick(self, lane: Lane, now: int) -> Iterator[Letter]:
        """Yield the ticks of the shards and slots of a lane, and what the books are told of it.

        Parameters
        ----------
        lane : Lane
            The key.
        now : int
            The wall clock at this call, ms: whether a lane that was restored is still behind goes
            by it, and nothing else.
        """
        clock, offset = self._held(lane)
        tick = TICK_HEAD.pack(TICK, clock)
        body = tick + str(lane).encode()
        shards = self._shards_of(lane)
        for shard in (*shards, UNREADABLE) if lane.partition == 0 else shards:
            yield Letter(Port.SHARDS, shard, body)
        if self._catching.behind(lane, clock, offset, now):
            for slot in range(self._deployment.slots):
                yield Letter(Port.WINDOWS, slot, BEHIND)
            yield Letter(Port.BOOKS, 0, BEHIND)
        for slot in self._deployment.slots_of(lane):
            yield Letter(Port.WINDOWS, slot, tick)
        said = LANE_HEAD.pack(LANE, clock, offset) + str(lane).encode()
        yield Letter(Port.BOOKS, 0, said)

    def _held(self, lane: Lane) -> tuple[int, int]:
        held = self._states.clock.get()
        self._catching.meet(lane, held is not None)
        return (EARLIEST, 0) if held is None else _HELD.unpack(held)

    def _shard(self, message: bytes) -> int:
        """Return the shard that a message says it is of, if there is such a one."""
        if len(message) < HEADER.size:
            return UNREADABLE
        magic, version, flags, shard, _, _ = HEADER.unpack_from(message)
        sound = magic == MAGIC and version in VERSIONS and flags == 0
        return shard if sound and shard < self._deployment.registry.shards else UNREADABLE
