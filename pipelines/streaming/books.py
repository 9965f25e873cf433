"""The books: what became of all reports, the audits of periods, and how the job is.

Every shard tells what became of all reports that it has ever taken, so that hearing it again
changes nothing; the books are their sum. A period is closed once every shard has closed it.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce

from pipelines.audit import Totals
from pipelines.manifest import Manifest
from pipelines.published import health_document, period_document, rejects_document
from pipelines.streaming.catching import Waiting
from pipelines.streaming.deployment import Deployment
from pipelines.streaming.ledger import Told
from pipelines.streaming.letters import (
    BEHIND,
    LANE,
    LANE_HEAD,
    SHARD_HEAD,
    UNREADABLE,
    Letter,
    Port,
)
from pipelines.streaming.settling import Settling
from pipelines.streaming.states import BookStates
from pipelines.written import Held, Tally, numbers_of
from sotto.logreader import EARLIEST

#: Stands for all shards, where a period's audit is the sum over them.
_ALL = -1
_SHARD = struct.Struct("<i")
_PERIOD = struct.Struct("<qi")
_TOTALS = struct.Struct("<8q")
_LANE = struct.Struct("<qq")


@dataclass(frozen=True)
class _Notes:
    """What documents have been made: the last revision and when, and what has changed since."""

    revision: int = 0
    at: int = 0
    changed: bool = False
    periods: tuple[int, ...] = ()
    first_open: int | None = None

    def to_json(self) -> bytes:
        return json.dumps(vars(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes | None) -> _Notes:
        value = json.loads(content or b"{}")
        return cls(**{**value, "periods": tuple(value.get("periods", ()))})


class BookKeeper:
    """Keeps the sums over all shards; its only key is 0.

    Parameters
    ----------
    deployment : Deployment
    states : BookStates
    """

    def __init__(self, deployment: Deployment, states: BookStates) -> None:
        self._deployment = deployment
        self._states = states
        self._settling = Settling()
        self._waiting = Waiting(deployment.linger)
        self._periods_told: set[int] = set()

    def take(self, body: bytes, now: int) -> Iterator[Letter]:
        """Yield what follows from a letter.

        Parameters
        ----------
        body : bytes
            Of a letter to :attr:`Port.BOOKS`.
        now : int
            The wall clock at this call, ms, as of :meth:`WindowKeeper.take`.
        """
        held = self._states.told.get()
        self._waiting.meet(0, held is not None, now)
        if body[:1] == BEHIND:
            self._waiting.hear(0, now)
            return
        notes = _Notes.from_json(held)
        if body[:1] != LANE:
            _, shard = SHARD_HEAD.unpack_from(body)
            told = Told.from_json(body[SHARD_HEAD.size :])
            self._states.told.set(self._enter(notes, shard, told).to_json())
            return
        _, clock, offset = LANE_HEAD.unpack_from(body)
        lane, place = body[LANE_HEAD.size :], _LANE.pack(clock, offset)
        moved = self._states.lanes.get(lane) != place
        if moved:
            self._states.lanes.put(lane, place)
            notes = replace(notes, changed=True)
        again = self._settling.since(0, now) is not None
        if again:
            periods = tuple(sorted({*notes.periods, *self._periods_told}))
            notes = replace(notes, changed=True, periods=periods)
        waits = self._waiting.waits(0, now) or 0 <= now - notes.at < self._deployment.every
        due = notes.changed and not waits
        if due:
            revision = max(notes.revision + 1, now)
            yield from self._documents(notes, revision)
            self._periods_told.update(notes.periods)
            notes = replace(notes, revision=revision, at=now, changed=False, periods=())
        if moved or again or due:
            self._states.told.set(notes.to_json())

    def _enter(self, notes: _Notes, shard: int, told: Told) -> _Notes:
        """Take down what a shard tells; a shard has told of its periods before it closes them."""
        for period, totals in told.periods.items():
            self._states.periods.put(_PERIOD.pack(period, shard), _TOTALS.pack(*numbers_of(totals)))
        self._states.shards.put(_SHARD.pack(shard), replace(told, periods={}).to_json())
        notes = replace(notes, changed=True)
        periods, first_open = {*notes.periods, *told.periods}, self._first_open()
        if first_open is not None and (notes.first_open is None or first_open > notes.first_open):
            periods |= self._close(first_open)
            notes = replace(notes, first_open=first_open)
        return replace(notes, periods=tuple(sorted(periods)))

    def _first_open(self) -> int | None:
        """Return the first period that some shard takes rows of; None before all have said."""
        shards = self._shards()
        said = [shards[shard].first_open for shard in sorted(shards) if shard != UNREADABLE]
        if len(said) < self._deployment.registry.shards or None in said:
            return None
        return min(period for period in said if period is not None)

    def _close(self, first_open: int) -> set[int]:
        """Sum the audits of closed periods; return these."""
        entries = [_PERIOD.unpack(key) for key, _ in self._states.periods.items()]
        over = [(period, shard) for period, shard in entries if period < first_open]
        apart = [(period, shard) for period, shard in over if shard != _ALL]
        audits = self._audits()
        for period, shard in apart:
            self._states.periods.remove(_PERIOD.pack(period, shard))
            total = _TOTALS.pack(*numbers_of(audits[period]))
            self._states.periods.put(_PERIOD.pack(period, _ALL), total)
        return {period for period, _ in apart}

    def _audits(self) -> dict[int, Totals]:
        """Return the audit of each period, summed over shards as a drain sums it."""
        entries = {
            _PERIOD.unpack(key): Totals(*_TOTALS.unpack(packed))
            for key, packed in self._states.periods.items()
        }
        closed = {period: totals for (period, shard), totals in entries.items() if shard == _ALL}
        held = {key: Held(totals, None) for key, totals in entries.items() if key[1] != _ALL}
        return Manifest(state="", key=b"", states=held, periods=closed).audit()

    def _shards(self) -> dict[int, Told]:
        items = self._states.shards.items()
        return {_SHARD.unpack(key)[0]: Told.from_json(content) for key, content in items}

    def _documents(self, notes: _Notes, revision: int) -> Iterator[Letter]:
        job, registry = self._deployment.job, self._deployment.registry
        audits, shards = self._audits(), self._shards()
        for period in notes.periods:
            row = {
                "collector": registry.collector,
                "period_start": period * registry.period,
                "period_end": (period + 1) * registry.period,
                "closed": notes.first_open is not None and period < notes.first_open,
                **asdict(audits[period]),
            }
            yield _document(period_document(job, row, revision))
        rejects = sum((Counter(told.rejects) for told in shards.values()), Counter[str]())
        yield _document(rejects_document(job, registry.collector, dict(rejects), revision))
        open_ = [
            audits[period]
            for period in audits
            if notes.first_open is None or period >= notes.first_open
        ]
        health = self._health(shards, open_)
        yield _document(health_document(job, registry.collector, health, revision))

    def _health(self, shards: dict[int, Told], audits: list[Totals]) -> dict[str, object]:
        """Return how the job is; chains and pseudonyms are those of open periods."""
        lanes = {key.decode(): _LANE.unpack(packed) for key, packed in self._states.lanes.items()}
        tally = reduce(Tally.plus, (told.tally for told in shards.values()), Tally())
        given_back = self._deployment.requeue
        clocks = [
            clock for lane, (clock, _) in lanes.items() if lane.partition("/")[0] != given_back
        ]
        clock = max(clocks, default=EARLIEST)
        return {
            **tally._asdict(),
            "state_bytes": sum(told.size for told in shards.values()),
            "chains": sum(totals.chains for totals in audits),
            "pseudonyms": sum(totals.pseudonyms for totals in audits),
            "clock": None if clock == EARLIEST else clock,
            "offsets": {lane: offset for lane, (_, offset) in lanes.items()},
        }


def _document(record: tuple[bytes, bytes]) -> Letter:
    name, body = record
    return Letter(Port.DOCUMENTS, 0, body, name)
