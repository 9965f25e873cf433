"""Windows: counts are added up, and estimates made early, on time, and when they sharpen.

A window is told of as soon as it has counts of a rung that it had none of, and otherwise while it
changes at most every so often; once when the log's time has passed its end and the plan's grace;
and once at its end. What is told soon after a start is told again, as
:mod:`pipelines.streaming.settling` says, and nothing but what ends is told while lanes that were
restored are behind, as :mod:`pipelines.streaming.catching` says. A window is kept until every
shard has closed the last budget period that it has a part of: what a shard sends before it says so
is here before that, and afterwards it has no state from which it could change the window, so that
no window ever begins again from zero.

The last document says nothing new, unless a rollback lies between: where a report that was given
back meets a period that is about to be closed, it may be counted the first time and late the next.
In the same way a document may stay of a window of which there is nothing any more: if all that was
counted in it before a rollback came from pseudonyms that contradict themselves, and the order in
which lanes are read has them revoked before that the next time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipelines.counts import Matrix, Window, WindowKey, pack_matrix, unpack_matrix
from pipelines.estimates import rows_of_windows
from pipelines.published import window_document
from pipelines.streaming.catching import Waiting
from pipelines.streaming.deployment import Deployment
from pipelines.streaming.letters import (
    BEHIND,
    CHANGE,
    CHANGE_HEAD,
    OPENED,
    OPENED_HEAD,
    TICK_HEAD,
    Letter,
    Port,
    unpack_change,
)
from pipelines.streaming.settling import Settling
from pipelines.streaming.states import WindowStates
from sotto.errors import FormatError, ParameterError
from sotto.logreader import EARLIEST

_CLOCK = struct.Struct("<qq")
_SLOTS = struct.Struct("<I")
_ENTRY = struct.Struct("<Qq??BB")


class _Entry(NamedTuple):
    """What has been told of a window: in a revision, when, and whether once its time was over.

    ``rungs`` is the highest rung that was ever counted, from one, and ``shown`` that of the last
    document. ``changed`` is whether there is more to tell than that.
    """

    revision: int = 0
    told: int = 0
    timely: bool = False
    changed: bool = False
    rungs: int = 0
    shown: int = 0


class WindowKeeper:
    """Keeps the counts of windows; keyed by slot.

    Parameters
    ----------
    deployment : Deployment
    states : WindowStates
    """

    def __init__(self, deployment: Deployment, states: WindowStates) -> None:
        self._deployment = deployment
        self._registry = deployment.registry
        self._states = states
        self._settling = Settling()
        self._waiting = Waiting(deployment.linger)

    def take(self, slot: int, body: bytes, now: int) -> Iterator[Letter]:
        """Yield what follows from a letter.

        Parameters
        ----------
        slot : int
            The key.
        body : bytes
            Of a letter to :attr:`Port.WINDOWS`.
        now : int
            The wall clock at this call, ms: never that of an earlier one, since revisions come
            from it.

        Raises
        ------
        FormatError
            A window would change that is closed, or be negative: state was lost.
        ParameterError
            Windows have been spread over another number of slots.
        """
        if not self._waiting.knows(slot):
            self._waiting.meet(slot, self._states.clock.get() is not None, now)
        if body[:1] == CHANGE:
            _, window = CHANGE_HEAD.unpack_from(body)
            self._add(window, unpack_change(body[CHANGE_HEAD.size :]))
        elif body[:1] == OPENED:
            _, shard, period = OPENED_HEAD.unpack(body)
            yield from self._close(shard, period, now)
        elif body[:1] == BEHIND:
            self._waiting.hear(slot, now)
        else:
            _, clock = TICK_HEAD.unpack_from(body)
            yield from self._tick(slot, clock, now)

    def _add(self, window: bytes, change: Matrix) -> None:
        before = self._states.counts.get(window)
        counts = change if before is None else unpack_matrix(before) + change
        if counts.min() < 0:
            raise FormatError("counts of a window would be negative")
        if before is None and self._last_period(window) < self._opened().min():
            raise FormatError("a window would change that is closed")
        self._states.counts.put(window, pack_matrix(counts))
        entry = self._entry(window)
        rungs = int(np.flatnonzero(change.any(axis=1)).max(initial=-1)) + 1
        entry = entry._replace(changed=True, rungs=max(entry.rungs, rungs))
        self._states.agenda.put(window, _ENTRY.pack(*entry))

    def _tick(self, slot: int, clock: int, now: int) -> Iterator[Letter]:
        """Tell what is due, what has waited longest first."""
        self._opened()  # Refuses other slots.
        time = self._time(clock, now)
        agenda = self._agenda(self._settling.since(slot, now))
        if self._waiting.waits(slot, now):
            return
        due = [
            (entry.told, key, entry) for key, entry in agenda if self._due(key, entry, time, now)
        ]
        for _, window, entry in sorted(due)[: self._deployment.documents]:
            yield self._document(window, entry, time, now)

    def _agenda(self, again: int | None) -> list[tuple[bytes, _Entry]]:
        """Return all windows; there is more to tell of those that were told of since a time."""
        agenda = []
        for window, packed in list(self._states.agenda.items()):
            entry = _Entry(*_ENTRY.unpack(packed))
            if again is not None and entry.told >= again:
                entry = entry._replace(changed=True)
                self._states.agenda.put(window, _ENTRY.pack(*entry))
            agenda.append((window, entry))
        return agenda

    def _due(self, window: bytes, entry: _Entry, time: int, now: int) -> bool:
        if not entry.timely and time >= self._timely(window):
            return True
        waited = not 0 <= now - entry.told < self._deployment.every
        return entry.changed and (waited or entry.rungs > entry.shown)

    def _time(self, clock: int, now: int) -> int:
        """Return the log's time: its clock, and how long ago that was seen to advance."""
        held = self._states.clock.get()
        before, since = (EARLIEST, now) if held is None else _CLOCK.unpack(held)
        if clock > before:
            self._states.clock.set(_CLOCK.pack(clock, now))
            return clock
        passed = 0 if before == EARLIEST else max(now - since, 0)
        return int(before + passed)

    def _document(self, window: bytes, entry: _Entry, time: int, now: int) -> Letter:
        """Return the document of a window as it is now, and note that it was told.

        Revisions are times: higher than those of documents that were made in what was rolled back.
        """
        packed = self._states.counts.get(window)
        if packed is None:
            raise FormatError("a window has no counts")
        key, counts = WindowKey.from_bytes(window), unpack_matrix(packed)
        timely = time >= self._timely(window)
        pane = "late" if entry.timely else "on_time" if timely else "early"
        revision = max(entry.revision + 1, now)
        (row,), estimates = rows_of_windows(
            [(key, Window(revision, counts))], self._registry, self._deployment.candidates
        )
        told = _Entry(revision, now, timely or entry.timely, False, entry.rungs, entry.rungs)
        self._states.agenda.put(window, _ENTRY.pack(*told))
        shown = estimates if counts.any() else ()
        name, body = window_document(self._deployment.job, row, shown, revision, pane)
        return Letter(Port.DOCUMENTS, 0, body, name)

    def _close(self, shard: int, period: int, now: int) -> Iterator[Letter]:
        """Note a shard's first open period; drop the windows that no shard can change any more."""
        opened = self._opened()
        before = opened.min()
        opened[shard] = max(int(opened[shard]), period)
        self._states.opened.set(_SLOTS.pack(self._deployment.slots) + opened.tobytes())
        if opened.min() == before:
            return
        time = self._time(EARLIEST, now)
        for window, packed in list(self._states.agenda.items()):
            if self._last_period(window) < opened.min():
                entry = _Entry(*_ENTRY.unpack(packed))
                yield self._document(window, entry, max(time, self._timely(window)), now)
                self._states.agenda.remove(window)
                self._states.counts.remove(window)

    def _opened(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the first open period of each shard."""
        held = self._states.opened.get()
        if held is None:
            return np.full(self._registry.shards, EARLIEST, dtype=np.int64)
        (slots,) = _SLOTS.unpack_from(held)
        if slots != self._deployment.slots:
            raise ParameterError(f"slots {self._deployment.slots} must be {slots}, as they were")
        return np.frombuffer(held, dtype=np.int64, offset=_SLOTS.size).copy()

    def _entry(self, window: bytes) -> _Entry:
        held = self._states.agenda.get(window)
        return _Entry() if held is None else _Entry(*_ENTRY.unpack(held))

    def _end(self, window: bytes) -> int:
        key = WindowKey.from_bytes(window)
        plan = self._registry.by_fingerprint[key.fingerprint]
        return key.start + plan.metrics[key.metric].window

    def _timely(self, window: bytes) -> int:
        """Return the log's time at which honest reports of a window's events have come."""
        plan = self._registry.by_fingerprint[WindowKey.from_bytes(window).fingerprint]
        return self._end(window) + plan.resolution + plan.grace

    def _last_period(self, window: bytes) -> int:
        return self._registry.period_of(self._end(window) - 1)
