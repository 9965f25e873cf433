"""Shards: what waits is decoded and stepped in large pieces; expiry goes by the shard's lanes.

Whether a row is late is decided by its own record's append time, in :mod:`sotto.decode`. That the
state of a period is dropped changes nothing in that: all later records of the shard's lanes are
behind the horizon of the period then. Only what comes otherwise, given back or sent to another
shard's partition, can find its period closed, and is late too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipelines import quarantine
from pipelines.blocks import arrivals
from pipelines.manifest import open_from
from pipelines.rows import Rows
from pipelines.streaming.batches import BATCH, block_of, numbers
from pipelines.streaming.deployment import Deployment
from pipelines.streaming.journal import Journal, LiveStates
from pipelines.streaming.ledger import Ledger, Told
from pipelines.streaming.letters import (
    CHANGE,
    CHANGE_HEAD,
    OPENED,
    OPENED_HEAD,
    SHARD,
    SHARD_HEAD,
    TICK_HEAD,
    UNREADABLE,
    Letter,
    Port,
    pack_change,
)
from pipelines.streaming.states import ShardStates
from pipelines.written import Tally
from sotto.decode import Reject
from sotto.logreader import EARLIEST

#: So many waiting bytes are taken at once, however few rows they may be.
WAITING = 1 << 20
#: Bytes of states for which a shard waits a millisecond before it is audited again, which takes
#: some hundredth of that.
AUDITED = 100
#: Of so many rejects one letter is made at most.
REJECTS = 1_000

_QUEUE = struct.Struct("<QQq")
_CLOCK = struct.Struct("<q")


class ShardKeeper:
    """Keeps the states of each shard's budget periods; keyed by shard.

    Parameters
    ----------
    deployment : Deployment
    states : ShardStates
    """

    def __init__(self, deployment: Deployment, states: ShardStates) -> None:
        self._deployment = deployment
        self._states = states
        self._journal = Journal(deployment.registry, states, LiveStates(deployment.cache))

    def take(self, shard: int, body: bytes, now: int) -> Iterator[Letter]:
        """Yield what follows from a letter.

        Parameters
        ----------
        shard : int
            The key.
        body : bytes
            Of a letter to :attr:`Port.SHARDS`.
        now : int
            The wall clock at this call, ms: how long rows wait, and nothing else, goes by it.

        Raises
        ------
        PlanError
            Reports have been counted under a plan that the deployment does not have.
        """
        if body[:1] == BATCH:
            yield from self._messages(shard, body, now)
        else:
            _, clock = TICK_HEAD.unpack_from(body)
            yield from self._tick(shard, clock, body[TICK_HEAD.size :], now)

    def _messages(self, shard: int, body: bytes, now: int) -> Iterator[Letter]:
        queue = self._states.queue.get()
        rows, size, since = (0, 0, now) if queue is None else _QUEUE.unpack(queue)
        self._states.waiting.append(body)
        rows, size = rows + numbers(body)[1], size + len(body)
        if rows >= self._deployment.rows or size >= WAITING:
            yield from self._flush(shard)
        else:
            self._states.queue.set(_QUEUE.pack(rows, size, since))

    def _tick(self, shard: int, clock: int, lane: bytes, now: int) -> Iterator[Letter]:
        self._journal.adopt(shard)
        queue = self._states.queue.get()
        if queue is not None:
            _, _, since = _QUEUE.unpack(queue)
            if not 0 <= now - since < self._deployment.linger:
                yield from self._flush(shard)
        if shard != UNREADABLE and clock > EARLIEST:
            yield from self._advance(shard, clock, lane)
        yield from self._tell(shard, now)

    def _flush(self, shard: int) -> Iterator[Letter]:
        """Decode and step all that waits."""
        self._journal.adopt(shard)
        waiting = list(self._states.waiting)
        self._states.waiting.clear()
        self._states.queue.clear()
        if not waiting:
            return
        ledger = Ledger.from_json(self._states.ledger.get())
        found = arrivals(block_of(waiting), self._deployment.registry, ledger.first_open)
        rejects, tally = found.rejects, Tally(reports=found.reports)
        for period, blocks in _by_period(found.rows).items():
            stepped = self._journal.step(shard, period, blocks)
            rejects, tally = rejects + stepped.rejects, tally.plus(stepped.tally)
            for window, change in stepped.changes.items():
                if change.any():
                    name = window.to_bytes()
                    body = CHANGE_HEAD.pack(CHANGE, name) + pack_change(change)
                    yield Letter(Port.WINDOWS, self._deployment.slot_of(name), body)
        touched = {rows.period for rows in found.rows}
        self._states.ledger.set(ledger.plus(tally, rejects, touched).to_json())
        yield from _quarantined(rejects)

    def _advance(self, shard: int, clock: int, lane: bytes) -> Iterator[Letter]:
        """Move a lane's clock on, and close the periods that the shard's lanes have all passed."""
        own = [str(each).encode() for each in self._deployment.lanes_of(shard)]
        if lane not in own:
            return
        before = self._states.clocks.get(lane)
        if before is not None and _CLOCK.unpack(before)[0] >= clock:
            return
        self._states.clocks.put(lane, _CLOCK.pack(clock))
        clocks = [self._states.clocks.get(each) for each in own]
        if None in clocks:
            return
        slowest = min(_CLOCK.unpack(each)[0] for each in clocks if each is not None)
        first_open = open_from(slowest, self._deployment.terms)
        ledger = Ledger.from_json(self._states.ledger.get())
        if ledger.first_open is None or first_open > ledger.first_open:
            yield from self._close(shard, first_open)

    def _close(self, shard: int, first_open: int) -> Iterator[Letter]:
        """Drop the states of all periods before one, after what is waiting for them."""
        yield from self._flush(shard)
        ledger = Ledger.from_json(self._states.ledger.get())
        ledger = replace(ledger, first_open=first_open, changed=True)
        over = [period for period in self._journal.heads() if period < first_open]
        if over:
            yield self._report(shard, ledger)
            ledger = replace(ledger, touched=(), changed=False)
        for period in over:
            self._journal.drop(shard, period)
        self._states.ledger.set(ledger.to_json())
        for slot in range(self._deployment.slots):
            yield Letter(Port.WINDOWS, slot, OPENED_HEAD.pack(OPENED, shard, first_open))

    def _tell(self, shard: int, now: int) -> Iterator[Letter]:
        """Tell the books what has changed, if that is due; of audits seldom where they are long."""
        ledger = Ledger.from_json(self._states.ledger.get())
        if not ledger.changed or 0 <= now - ledger.told < self._deployment.every:
            return
        wait = max(self._deployment.every, self._size() // AUDITED)
        if ledger.touched and 0 <= now - ledger.audited < wait:
            yield self._report(shard, replace(ledger, touched=()))
            ledger = replace(ledger, told=now)
        else:
            yield self._report(shard, ledger)
            ledger = replace(ledger, told=now, audited=now, touched=(), changed=False)
        self._states.ledger.set(ledger.to_json())

    def _report(self, shard: int, ledger: Ledger) -> Letter:
        """Return what the books are told, with the audits of all periods that have changed."""
        told = Told(
            first_open=ledger.first_open,
            tally=ledger.tally,
            rejects=ledger.rejects,
            size=self._size(),
            periods={p: self._journal.read(shard, p).totals() for p in ledger.touched},
        )
        return Letter(Port.BOOKS, 0, SHARD_HEAD.pack(SHARD, shard) + told.to_json())

    def _size(self) -> int:
        """Return the bytes of all states."""
        return sum(head.size + head.logged for head in self._journal.heads().values())


def _by_period(found: Sequence[Rows]) -> dict[int, list[bytes]]:
    """Return rows of one shard as packed blocks of each period."""
    blocks: dict[int, list[bytes]] = {}
    for rows in found:
        blocks.setdefault(rows.period, []).append(rows.to_bytes())
    return blocks


def _quarantined(rejects: Sequence[Reject]) -> Iterator[Letter]:
    """Yield packed rejects; none is much larger than a message may be."""
    for at in range(0, len(rejects), REJECTS):
        yield Letter(Port.QUARANTINE, 0, quarantine.pack(rejects[at : at + REJECTS]))
