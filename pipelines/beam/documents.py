"""Documents: what is told of windows, of budget periods and of the job, each kept by one key.

What comes gathers in a bag; a timer adds it up and makes the document, at most every so often.
A window is told of once more when the watermark has passed the time at which its reports are
complete (the pane ``on_time``), and a last time when no budget period that it has a part of is
open any more; then its counts are dropped.

Documents are idempotent: of one thing the one with the highest revision counts. Revisions are
times. A pipeline that has gone back to a checkpoint may tell for a while of less than it has told
before; the document is made again with the next change, and at the latest with the last. What was
told and has no successor stays: a window whose only reports are rejected this time, since what
revokes their sender comes together with them now.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import reduce
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from pipelines.aggregation.audit import Totals
from pipelines.aggregation.counts import (
    KEY_BYTES,
    Matrix,
    Window,
    WindowKey,
    matrix_bytes,
    unpack_matrix,
)
from pipelines.aggregation.result_rows import joined, rows_of_windows
from pipelines.aggregation.step import Tally
from pipelines.beam.counting import OPEN, PERIOD, SHARD, changed
from pipelines.beam.stream import Stream, closing_time, moment
from pipelines.sinks.documents import (
    health_document,
    period_document,
    rejects_document,
    window_document,
)
from sotto.clocks import now_ms
from sotto.errors import FormatError

_LOGGER = logging.getLogger(__name__)

#: Milliseconds from the first news of something to its document: other shards have news as well.
SOON = 1_000


class _Told(NamedTuple):
    """What has been told of a key.

    Attributes
    ----------
    revision : int
        The last one; a time, ms.
    armed : bool
        Whether the timer is set that tells of it again.
    timely : bool
        Whether its timely reports were complete.
    closed : bool
        Whether it was told of a last time; nothing changes it any more.
    named : str
        Of a window: fingerprint and metric under which it was told of last.
    """

    revision: int = 0
    armed: bool = False
    timely: bool = False
    closed: bool = False
    named: str = ""


_CLOSED = json.dumps(_Told(closed=True)).encode()


class _Documents(beam.DoFn):
    """Gathers what comes for a key, and makes its document when the timer fires.

    Subclasses add up, and make the document. Their timers have names of their own: the embedded
    runner mixes up timers of one name in stages that it fuses.
    """

    NEWS = BagStateSpec("news", BytesCoder())
    SUM = ReadModifyWriteStateSpec("sum", BytesCoder())
    TOLD = ReadModifyWriteStateSpec("told", BytesCoder())

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def gather(self, value: bytes, news: Any, told: Any, tell: Any) -> None:
        """Keep news, and see to it that they are told."""
        before = _told(told)
        if before.closed:
            # Only where a plan with a longer horizon came after the end.
            _LOGGER.warning("%s: what came after the end is left out", type(self).__name__)
            return
        news.add(value)
        if self.stream.bounded:
            told.write(json.dumps(before).encode())
        elif not before.armed:
            now = now_ms()
            due = max(before.revision + self.stream.every, now + SOON)
            # A clock that was set back does not silence the pipeline.
            tell.set(Timestamp(micros=min(due, now + SOON + self.stream.every) * 1000))
            told.write(json.dumps(before._replace(armed=True)).encode())

    def added(self, news: Any, total: Any) -> bytes:
        """Add news to the sum and return it.

        Raises
        ------
        FormatError
            There is nothing at all: timers are set for what has come alone.
        """
        held, new = total.read(), list(news.read())
        if new:
            held = self.sum([held, *new] if held else new)
            total.write(held)
            news.clear()
        if held is None:
            raise FormatError(f"{type(self).__name__}: there is nothing to tell")
        return held  # type: ignore[no-any-return]

    def sum(self, parts: list[bytes]) -> bytes:
        """Return a sum and news, or sums, as one sum."""
        raise NotImplementedError


def _told(told: Any) -> _Told:
    return _Told(*json.loads(told.read() or b"[]"))


def _revision(before: _Told) -> int:
    return max(before.revision + 1, now_ms())


class Windows(_Documents):
    """Changes of counts by window to documents of its estimates."""

    NEWS = _Documents.NEWS
    SUM = _Documents.SUM
    TOLD = _Documents.TOLD
    TELL = TimerSpec("windows_tell", TimeDomain.REAL_TIME)
    ON_TIME = TimerSpec("windows_on_time", TimeDomain.WATERMARK)
    LAST = TimerSpec("windows_last", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[bytes, bytes],
        news: Any = beam.DoFn.StateParam(NEWS),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
        on_time: Any = beam.DoFn.TimerParam(ON_TIME),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> None:
        """Gather a change of a window's counts."""
        change = element[1]
        if told.read() is None:
            complete, over = self._times(change)
            on_time.set(moment(complete))
            last.set(moment(over))
        self.gather(change, news, told, tell)

    @on_timer(TELL)
    def early(
        self,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell what is counted until now."""
        before = _told(told)
        if before.armed:
            yield from self._tell("late" if before.timely else "early", news, total, told)

    @on_timer(ON_TIME)
    def complete(
        self,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell what is counted once all timely reports are."""
        if not _told(told).closed:
            tell.clear()
            yield from self._tell("on_time", news, total, told)

    @on_timer(LAST)
    def over(
        self,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
        last: Any = beam.DoFn.TimerParam(LAST),
        at: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell of the window a last time and drop its counts."""
        packed = self.added(news, total)
        # No older plans than those by which shards were closed.
        self.stream.plans.latest()
        _, over = self._times(packed)
        if at.micros // 1000 < over:
            # A plan that came later accepts reports for longer.
            last.set(moment(over))
            return
        tell.clear()
        yield from self._tell("late", news, total, told)
        total.clear()
        told.write(_CLOSED)

    def sum(self, parts: list[bytes]) -> bytes:
        """Add counts, version by version of the plan: packed one behind the other."""
        total: dict[WindowKey, Matrix] = {}
        for part in parts:
            for key, counts in _matrices(part):
                total[key] = total[key] + counts if key in total else counts
        return b"".join(changed(*each) for each in sorted(total.items(), key=lambda pair: pair[0]))

    def _tell(self, pane: str, news: Any, total: Any, told: Any) -> Iterator[tuple[bytes, bytes]]:
        packed = self.added(news, total)
        before = _told(told)
        revision, plans = _revision(before), self.stream.plans
        versions = {key: Window(revision, counts) for key, counts in _matrices(packed)}
        if min(window.counts.min() for window in versions.values()) < 0:
            raise FormatError("counts of a window would be negative")
        registry = plans.registry(*(key.fingerprint for key in versions))
        ((key, window),) = joined(versions, registry)
        (row,), estimates = rows_of_windows([(key, window)], registry, plans.candidates())
        shown = estimates if window.counts.any() else ()
        timely, named = before.timely or pane == "on_time", f"{key.fingerprint.hex()}.{key.metric}"
        told.write(json.dumps(_Told(revision, False, timely, named=named)).encode())
        yield window_document(self.stream.job, row, shown, revision, pane)
        if before.named not in ("", named):
            yield self._taken_back(before.named, window, key.start, pane)

    def _taken_back(self, named: str, window: Window, start: int, pane: str) -> tuple[bytes, bytes]:
        """Return the document that empties a window's former one: a lower version has come since.

        Otherwise the same reports would stand under both versions.
        """
        fingerprint, _, metric = named.partition(".")
        former = WindowKey(bytes.fromhex(fingerprint), int(metric), start)
        registry = self.stream.plans.registry(former.fingerprint)
        empty = replace(window, counts=np.zeros_like(window.counts))
        (row,), _ = rows_of_windows([(former, empty)], registry, {})
        return window_document(self.stream.job, row, (), window.revision, pane)

    def _times(self, packed: bytes) -> tuple[int, int]:
        """Return when a window's timely reports are complete, and when nothing changes it."""
        window, _ = next(_matrices(packed))
        registry = self.stream.plans.registry(window.fingerprint)
        plan = registry.by_fingerprint[window.fingerprint]
        end = window.start + plan.metrics[window.metric].window
        # What shards tell when they close the last period comes before that.
        since = self.stream.plans.since()
        over = closing_time(registry.period_of(end - 1), registry, since) + 1
        return end + plan.resolution + plan.grace, over


def _matrices(packed: bytes) -> Iterator[tuple[WindowKey, Matrix]]:
    """Yield the windows, one a version of the plan, of packed changes or counts."""
    at = 0
    while at < len(packed):
        start, end = at + KEY_BYTES, at + KEY_BYTES + matrix_bytes(packed, at + KEY_BYTES)
        yield WindowKey.from_bytes(packed[at:start]), unpack_matrix(packed[start:end])
        at = end


class Periods(_Documents):
    """Audits of shards by budget period to documents of the period's audit."""

    NEWS = _Documents.NEWS
    SUM = _Documents.SUM
    TOLD = _Documents.TOLD
    TELL = TimerSpec("periods_tell", TimeDomain.REAL_TIME)
    LAST = TimerSpec("periods_last", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[bytes, bytes],
        news: Any = beam.DoFn.StateParam(NEWS),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
        last: Any = beam.DoFn.TimerParam(LAST),
    ) -> None:
        """Gather a shard's audit."""
        key, totals = element
        if told.read() is None:
            last.set(moment(self._over(key)))
        self.gather(totals, news, told, tell)

    @on_timer(TELL)
    def open(
        self,
        key: Any = beam.DoFn.KeyParam,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell the audit of all shards until now."""
        before = _told(told)
        if before.armed:
            revision = _revision(before)
            told.write(json.dumps(_Told(revision)).encode())
            yield self._document(key, revision, news, total, closed=False)

    @on_timer(LAST)
    def over(
        self,
        key: Any = beam.DoFn.KeyParam,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
        last: Any = beam.DoFn.TimerParam(LAST),
        at: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell the last audit, once all shards have closed the period."""
        # No older plans than those by which shards were closed.
        self.stream.plans.latest()
        over = self._over(key)
        if at.micros // 1000 < over:
            # A plan that came later accepts reports for longer.
            last.set(moment(over))
            return
        tell.clear()
        yield self._document(key, _revision(_told(told)), news, total, closed=True)
        total.clear()
        told.write(_CLOSED)

    def _document(
        self, key: bytes, revision: int, news: Any, total: Any, *, closed: bool
    ) -> tuple[bytes, bytes]:
        packed = self.added(news, total)
        (period,) = PERIOD.unpack(key)
        registry = self.stream.plans.registry()
        totals = (Totals(*totals) for _, *totals in SHARD.iter_unpack(packed))
        row = {
            "collector": registry.collector,
            "period_start": period * registry.period,
            "period_end": (period + 1) * registry.period,
            "closed": closed,
            **asdict(reduce(Totals.plus, totals)),
        }
        return period_document(self.stream.job, row, revision)

    def _over(self, key: bytes) -> int:
        # What shards tell when they close it comes before that.
        (period,) = PERIOD.unpack(key)
        plans = self.stream.plans
        return closing_time(period, plans.registry(), plans.since()) + 1

    def sum(self, parts: list[bytes]) -> bytes:
        # Of a shard the last audit counts.
        return b"".join({p[:2]: p for part in parts for p in _cut(part)}.values())


def _cut(packed: bytes) -> Iterator[bytes]:
    for at in range(0, len(packed), SHARD.size):
        yield packed[at : at + SHARD.size]


class Health(_Documents):
    """Notes of all stages to documents of what was rejected and of the job's health."""

    NEWS = _Documents.NEWS
    SUM = _Documents.SUM
    TOLD = _Documents.TOLD
    TELL = TimerSpec("health_tell", TimeDomain.REAL_TIME)
    END = TimerSpec("health_end", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[bytes, bytes],
        news: Any = beam.DoFn.StateParam(NEWS),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        """Gather a note."""
        if told.read() is None:
            end.set(GlobalWindow().max_timestamp())
        self.gather(element[1], news, told, tell)

    @on_timer(TELL)
    def now(
        self,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell how the job is."""
        yield from self._documents(news, total, told)

    @on_timer(END)
    def over(
        self,
        news: Any = beam.DoFn.StateParam(NEWS),
        total: Any = beam.DoFn.StateParam(SUM),
        told: Any = beam.DoFn.StateParam(TOLD),
        tell: Any = beam.DoFn.TimerParam(TELL),
    ) -> Iterator[tuple[bytes, bytes]]:
        """Tell how the job was, at the end of all time."""
        tell.clear()
        yield from self._documents(news, total, told)

    def _documents(self, news: Any, total: Any, told: Any) -> Iterator[tuple[bytes, bytes]]:
        packed = self.added(news, total)
        value, job = json.loads(packed), self.stream.job
        revision = _revision(_told(told))
        collector = self.stream.plans.registry().collector
        health = {
            **Tally(*value["tally"])._asdict(),
            "state_bytes": value["state_bytes"],
            "chains": value["chains"],
            "pseudonyms": value["pseudonyms"],
            "clock": value["clock"],
            "offsets": value["offsets"],
        }
        told.write(json.dumps(_Told(revision)).encode())
        yield rejects_document(job, collector, value["rejects"], revision)
        yield health_document(job, collector, health, revision)

    def sum(self, parts: list[bytes]) -> bytes:
        tally, rejects, clock = Tally(), Counter[str](), None
        offsets: dict[str, int] = {}
        numbers = dict.fromkeys(OPEN, 0)
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
