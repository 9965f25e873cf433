"""The stages that publish: from changes to documents of windows, budget periods and the job.

In a bounded pipeline :class:`PublishByGroup` makes the documents of a key once, from all its
changes. In an unbounded one :class:`PublishByState` gathers the changes of a key in a bag, and its
timers decide when documents are emitted:

* ``EMIT``: a second after the first change, but at most every ``Stream.every`` ms
  (``--publish-every``);
* ``COMPLETE``: when the watermark passes the time at which a window is complete (the pane
  ``on_time``);
* ``LAST``: when no budget period that a window has a part of is open any more; then its counts are
  dropped.

A document of a window that is emitted again has the present numbers of reports. Whether its figures
change is decided by :func:`pipelines.aggregation.published.renewed`.

The document of a key with the highest revision, a time in ms, counts. A pipeline that has gone back
to a checkpoint may emit less than before for a while; the document is made again with the next
change, and at the latest by ``LAST``.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.transforms import userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from pipelines.aggregation import counts
from pipelines.aggregation.audit import Totals
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.published import pack, unpack
from pipelines.aggregation.result_rows import joined, published_again, rows_of_windows
from pipelines.aggregation.step import Tally
from pipelines.beam.coders import StateCoder, read_tuple, write_tuple
from pipelines.beam.counting import OPEN, PERIOD, SHARD
from pipelines.beam.decoding import Grouped, Keyed, increase
from pipelines.beam.stream import Stream, closing_time, moment
from pipelines.results.documents import (
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.sources.base import LATEST
from sotto.clocks import now_ms
from sotto.errors import FormatError

_LOGGER = logging.getLogger(__name__)

#: Milliseconds from the first change of a key to its document, so that changes of other shards are
#: in it, too.
SOON = 1_000

Published: TypeAlias = tuple[bytes, bytes]


class _EmittedDocuments(NamedTuple):
    """The part of a key's state that says which documents have been emitted."""

    revision: int = 0  #: the last one; a time, ms
    armed: bool = False  #: whether the timer ``EMIT`` is set
    timely: bool = False  #: whether the timer ``COMPLETE`` has fired
    closed: bool = False  #: whether the last document was emitted; nothing changes it any more
    published: str = ""  #: what is published of a window, packed, in base64; empty for others


def _revision(before: _EmittedDocuments) -> int:
    return max(before.revision + 1, now_ms())


class Subject:
    """The subject of documents of one kind: adds changes up, and makes documents of the sum."""

    #: The name in log lines.
    name = ""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def times(self, key: bytes, change: bytes) -> tuple[Timestamp | None, Timestamp]:
        """Return when ``COMPLETE`` fires, None for never, and when ``LAST`` does."""
        raise NotImplementedError

    def sum(self, parts: list[bytes]) -> bytes:
        """Add up changes, or a former sum and changes, to one sum."""
        raise NotImplementedError

    def documents(
        self, key: bytes, total: bytes, revision: int, pane: str, published: str, closed: bool
    ) -> tuple[list[Published], str]:
        """Return the documents of a sum, and what is to be kept as ``published``.

        ``published``: what was kept before. ``closed``: whether these documents are the last.
        """
        raise NotImplementedError


@beam.typehints.with_input_types(Grouped)
@beam.typehints.with_output_types(Keyed)
class PublishByGroup(beam.DoFn):
    """Makes the final documents of a key from all its changes, without state or timers."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def process(self, element: Grouped) -> Iterator[Published]:
        key, changes = element
        total = self.subject.sum(list(changes))
        found, _ = self.subject.documents(key, total, now_ms(), "late", "", closed=True)
        yield from found


@beam.typehints.with_input_types(Keyed)
@beam.typehints.with_output_types(Keyed)
class PublishByState(beam.DoFn):
    """Gathers the changes of a key and emits its documents when a timer fires."""

    EMIT = userstate.TimerSpec("emit", TimeDomain.REAL_TIME)
    COMPLETE = userstate.TimerSpec("complete", TimeDomain.WATERMARK)
    LAST = userstate.TimerSpec("last", TimeDomain.WATERMARK)
    #: The parameters of :meth:`process` and of the timers.
    BAG = beam.DoFn.StateParam(userstate.BagStateSpec("changes", StateCoder()))
    SUM = beam.DoFn.StateParam(userstate.ReadModifyWriteStateSpec("sum", StateCoder()))
    EMITTED = beam.DoFn.StateParam(userstate.ReadModifyWriteStateSpec("emitted", StateCoder()))
    KEY, TIME = beam.DoFn.KeyParam, beam.DoFn.TimestampParam

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def process(
        self,
        element: Keyed,
        changes: Any = BAG,
        emitted: Any = EMITTED,
        emit: Any = beam.DoFn.TimerParam(EMIT),
        complete: Any = beam.DoFn.TimerParam(COMPLETE),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> None:
        key, change = element
        before = read_tuple(_EmittedDocuments, emitted)
        if before.closed:
            # This happens only if a plan with a longer horizon came after the end.
            _LOGGER.warning("%s: what came after the end is left out", self.subject.name)
            increase("left_out", 1)
            return
        if emitted.read() is None:
            timely, over = self.subject.times(key, change)
            if timely is not None:
                complete.set(timely)
            last.set(over)
        changes.add(change)
        if not before.armed:
            now, every = now_ms(), self.subject.stream.every
            due = max(before.revision + every, now + SOON)
            # The limit is for a clock that was set back, which would silence the pipeline.
            emit.set(moment(min(due, now + SOON + every)))
            before = before._replace(armed=True)
        write_tuple(emitted, before)

    @userstate.on_timer(EMIT)
    def early(
        self, key: Any = KEY, changes: Any = BAG, total: Any = SUM, emitted: Any = EMITTED
    ) -> Iterator[Published]:
        before = read_tuple(_EmittedDocuments, emitted)
        if before.armed:
            pane = "late" if before.timely else "early"
            yield from self._emitted(key, pane, changes, total, emitted)

    @userstate.on_timer(COMPLETE)
    def timely(
        self,
        key: Any = KEY,
        changes: Any = BAG,
        total: Any = SUM,
        emitted: Any = EMITTED,
        emit: Any = beam.DoFn.TimerParam(EMIT),
    ) -> Iterator[Published]:
        if not read_tuple(_EmittedDocuments, emitted).closed:
            emit.clear()
            yield from self._emitted(key, "on_time", changes, total, emitted)

    @userstate.on_timer(LAST)
    def over(
        self,
        key: Any = KEY,
        changes: Any = BAG,
        total: Any = SUM,
        emitted: Any = EMITTED,
        emit: Any = beam.DoFn.TimerParam(EMIT),
        last: Any = beam.DoFn.TimerParam(LAST),
        at: Any = TIME,
    ) -> Iterator[Published]:
        if read_tuple(_EmittedDocuments, emitted).closed:
            return
        # Plans must be at least as new as those by which the shards were closed.
        self.subject.stream.plans.latest()
        _, over = self.subject.times(key, self._added(changes, total))
        if at.micros // 1000 < over.micros // 1000:
            # A plan that came later accepts reports for longer.
            last.set(over)
            return
        emit.clear()
        yield from self._emitted(key, "late", changes, total, emitted, closed=True)
        total.clear()
        write_tuple(emitted, _EmittedDocuments(closed=True))

    def _emitted(
        self, key: bytes, pane: str, changes: Any, total: Any, emitted: Any, closed: bool = False
    ) -> list[Published]:
        before = read_tuple(_EmittedDocuments, emitted)
        revision = _revision(before)
        held = self._added(changes, total)
        found, published = self.subject.documents(
            key, held, revision, pane, before.published, closed
        )
        timely = before.timely or pane == "on_time"
        now = _EmittedDocuments(revision, timely=timely, published=published)
        write_tuple(emitted, now)
        return found

    def _added(self, changes: Any, total: Any) -> bytes:
        held, new = total.read(), list(changes.read())
        if new:
            held = self.subject.sum([held, *new] if held else new)
            total.write(held)
            changes.clear()
        if held is None:
            raise FormatError(f"{self.subject.name}: there is nothing to emit")
        return held  # type: ignore[no-any-return]


class WindowEstimates(Subject):
    """Changes of a window's counts, to documents of its estimates."""

    name = "windows"

    def times(self, key: bytes, change: bytes) -> tuple[Timestamp | None, Timestamp]:
        window, _ = next(counts.unpack_changes(change))
        registry = self.stream.plans.registry(window.fingerprint)
        plan = registry.by_fingerprint[window.fingerprint]
        end = window.start + plan.metrics[window.metric].window
        complete = registry.complete_at(*window[:3])
        # One ms after the shards close the period, so that their last changes come before.
        since = self.stream.plans.since()
        over = closing_time(registry.period_of(end - 1), registry, since) + 1
        return moment(complete), moment(max(over, complete + 1))

    def sum(self, parts: list[bytes]) -> bytes:
        """Add counts, version by version of the plan."""
        return counts.summed(parts)

    def documents(
        self, key: bytes, total: bytes, revision: int, pane: str, published: str, closed: bool
    ) -> tuple[list[Published], str]:
        versions = {
            key: WindowCounts(revision, matrix) for key, matrix in counts.unpack_changes(total)
        }
        if min(window.counts.min() for window in versions.values()) < 0:
            raise FormatError("counts of a window would be negative")
        plans = self.stream.plans
        registry = plans.registry(*(key.fingerprint for key in versions))
        cells = joined(versions, registry, None if pane == "early" else LATEST)
        (current, window), *_ = cells
        name = current._replace(cell=0)
        former = unpack(b64decode(published)) if published else {}
        known = [(name, each) for each in former.values()]
        now = published_again(cells, registry, dict(known), revision)
        (row, *segments), estimates = rows_of_windows(cells, registry, plans.candidates(), now)
        shown = estimates if row["n"] else ()
        job = self.stream.job
        found = [WindowDocument.of(job, row, shown, revision, pane, segments).record]
        found += [self._emptied(each, window, pane) for each in former if each != name]
        return found, b64encode(pack(now)).decode()

    def _emptied(self, former: WindowKey, window: WindowCounts, pane: str) -> Published:
        """Return the document that empties a window under its former name.

        A lower version of the plan has come since, and the window now has the name of that one.
        """
        registry = self.stream.plans.registry(former.fingerprint)
        empty = replace(window, counts=np.zeros_like(window.counts))
        (row,), _ = rows_of_windows([(former, empty)], registry, {})
        return WindowDocument.of(self.stream.job, row, (), window.revision, pane).record


class PeriodAudit(Subject):
    """Audits of shards by budget period, to documents of the period's audit."""

    name = "periods"

    def times(self, key: bytes, change: bytes) -> tuple[Timestamp | None, Timestamp]:
        # One ms after the shards close the period, so that their last audits come before.
        (period,) = PERIOD.unpack(key)
        plans = self.stream.plans
        return None, moment(closing_time(period, plans.registry(), plans.since()) + 1)

    def sum(self, parts: list[bytes]) -> bytes:
        """Keep the last audit of each shard."""
        audits = (
            part[at : at + SHARD.size] for part in parts for at in range(0, len(part), SHARD.size)
        )
        return b"".join({audit[:2]: audit for audit in audits}.values())

    def documents(
        self, key: bytes, total: bytes, revision: int, pane: str, published: str, closed: bool
    ) -> tuple[list[Published], str]:
        (period,) = PERIOD.unpack(key)
        registry = self.stream.plans.registry()
        totals = (Totals(*totals) for _, *totals in SHARD.iter_unpack(total))
        row = reduce(Totals.plus, totals).row(registry, period, closed)
        return [PeriodDocument.of(self.stream.job, row, revision).record], ""


class JobHealth(Subject):
    """Notes of all stages, to documents of what was rejected and of the job's health."""

    name = "health"

    def times(self, key: bytes, change: bytes) -> tuple[Timestamp | None, Timestamp]:
        return None, GlobalWindow().max_timestamp()

    def sum(self, parts: list[bytes]) -> bytes:
        tally, rejects, clock = Tally(), Counter[str](), None
        offsets: dict[str, int] = {}
        numbers = dict.fromkeys((*OPEN, "future"), 0)
        for part in map(json.loads, parts):
            tally = tally.plus(Tally(*part.get("tally", Tally())))
            rejects.update(part.get("rejects", {}))
            for name in numbers:
                numbers[name] += part.get(name, 0)
            if part.get("clock") is not None:
                clock = part["clock"] if clock is None else max(clock, part["clock"])
            offsets |= part.get("offsets", {})
        value = {"tally": tally, "rejects": rejects, "clock": clock, "offsets": offsets, **numbers}
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    def documents(
        self, key: bytes, total: bytes, revision: int, pane: str, published: str, closed: bool
    ) -> tuple[list[Published], str]:
        value, job = json.loads(total), self.stream.job
        collector = self.stream.plans.registry().collector
        health = {
            **Tally(*value["tally"])._asdict(),
            **{name: value[name] for name in (*OPEN, "future", "clock", "offsets")},
        }
        return [
            RejectsDocument.of(job, collector, value["rejects"], revision).record,
            HealthDocument.of(job, collector, health, revision).record,
        ], ""
