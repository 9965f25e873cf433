"""The stage that counts: from packed rows to changes of counts, by budget period and shard.

In a bounded pipeline :class:`CountByGroup` gets all rows of a part of a period at once; a part is
as many shards as hold enough rows. In an unbounded one :class:`CountByState` keeps the state of
each shard. Its rows gather in a bag until a timer fires, or there are many, and are then given to
:func:`pipelines.aggregation.step.step` together.

The state is kept as a *snapshot* and a *log* of the packed rows that came after it. A state is a
function of the set of rows that it has seen, so stepping the log after the snapshot restores it.
The log is folded into a new snapshot once it is a quarter as large, so that the bytes written stay
in proportion to the bytes that came.

A worker process also holds live states. They may be ahead of the engine's state, or behind it,
since an engine rolls state back and moves keys between workers. So each change of a state draws a
random token, which is kept beside the state in both places; a live state is used only if its token
is the one in the engine's state. States change in place, so one is taken out of
:class:`LiveStates` before it is changed.

When the watermark has passed a period's end and the plans' horizon, its state is dropped. Rows that
come later, such as those that an operator has requeued, are late.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.transforms import userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.utils.timestamp import Timestamp

from pipelines.aggregation.audit import totals as audited_totals
from pipelines.aggregation.counts import Matrix, WindowKey, pack_change
from pipelines.aggregation.decode import parts_for
from pipelines.aggregation.quarantine import Rejects
from pipelines.aggregation.quarantine import rejected as late_rejects
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import Stepped, Tally, in_order, step_blocks, step_rows
from pipelines.aggregation.table import new_key
from pipelines.beam.coders import StateCoder, read_tuple, write_tuple
from pipelines.beam.decoding import (
    NOTES,
    Grouped,
    Keyed,
    PackedRows,
    increase,
    period_and_shard,
    rejected,
    shard_key,
)
from pipelines.beam.plans import PlanSource, numbering_of
from pipelines.beam.stream import Stream, closing_time, moment, next_settling
from pipelines.storage.states import PART, SHORT, fingerprints_of, registry_ids
from sotto.clocks import now_ms
from sotto.plan.compiled import CompiledMetric, CompiledPlan, canonical
from sotto.plan.registry import Registry
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason

#: So many gathered rows, or bytes of them, are stepped without waiting for the timer.
ROWS = 20_000
BYTES = 4 << 20
#: Bytes that are taken for a row: a payload of up to 64 B makes a packed row of at most 117.
ROW_BYTES = 128
#: A shard is audited again after a millisecond for so many bytes of its state: an audit takes about
#: a hundredth of that time.
AUDITED = 100
#: Name of the output of audits, beside ``rejected`` and ``notes``.
AUDITS = "audits"
#: The layout of audits: the key, and a shard with the numbers of its audit.
PERIOD, SHARD = struct.Struct("<q"), struct.Struct("<H8q")
#: Numbers of the states of open periods, which notes change by differences.
OPEN = ("state_bytes", "chains", "pseudonyms")

_TOKEN = 16
_GROUP = 16
_START = struct.Struct("<q")
#: The number of rows of a packed block, and where it stands.
_ROWS, _ROWS_AT = struct.Struct("<I"), 24


@lru_cache(maxsize=1 << 12)
def window_group(plan: CompiledPlan, metric: CompiledMetric) -> bytes:
    """Return 16 bytes that name a metric, the same in all versions of a plan that share it."""
    content = canonical(
        {"plan": plan.plan, **metric.counted.document(), **plan.attributes_document()}
    )
    return hashlib.sha256(content).digest()[:_GROUP]


class Head(NamedTuple):
    """The small part of what the engine keeps of a period's shard, beside snapshot and log."""

    token: str = ""  #: names the state that snapshot and log make together
    numbering: str = ""  #: hexadecimal: the plans that number the metrics of the log's rows
    size: int = 0  #: bytes of the snapshot
    logged: int = 0  #: bytes of the log
    rows: int = 0  #: how many rows have gathered
    waiting: int = 0  #: bytes of the gathered rows
    armed: bool = False  #: whether the timer that counts the gathered rows is set
    audited: int = 0  #: when the state was audited last, ms
    due: bool = False  #: whether the state has changed since that audit
    reported: tuple[int, int, int] = (0, 0, 0)  #: bytes, chains and pseudonyms in the last note
    #: Whether the period may have been closed before the first row came: the row may be one that an
    #: operator has requeued, or come from a partition that was idle. Rows then wait until a timely
    #: row or the next watermark shows that the period is open; if it is closed they are late. A new
    #: state for a closed period would publish documents that replace the right ones.
    doubtful: bool = False
    closed: bool = False  #: whether the period is closed and its state dropped
    #: Whether the watermark has moved since ``doubtful`` was set. Then the period is open, or the
    #: timer that closes it fires right after.
    watched: bool = False


class LiveStates:
    """States in the memory of a process: those used last, up to ``limit`` bytes, at least one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[int, int], tuple[str, State, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, period: int, shard: int, token: str) -> State | None:
        """Take out the state of a period's shard; return it if it has this token, else None."""
        with self._lock:
            held = self._held.pop((period, shard), None)
            if held is None:
                return None
            of, state, size = held
            self._bytes -= size
            return state if of == token else None

    def hold(self, token: str, state: State) -> None:
        """Hold a state; the caller must not change it any more."""
        self.take(state.period, state.shard, "")
        with self._lock:
            self._held[state.period, state.shard] = token, state, state.nbytes
            self._bytes += state.nbytes
            while self._bytes > self._limit and len(self._held) > 1:
                _, (_, _, size) = self._held.popitem(last=False)
                self._bytes -= size


@lru_cache(maxsize=8)
def _live(job: str, limit: int) -> LiveStates:
    """Return this process's live states of a job, which all instances of the DoFn share."""
    return LiveStates(limit)


def period_and_size(element: Keyed) -> tuple[int, int]:
    """Return the period of packed rows, and their bytes."""
    key, value = element
    return period_and_shard(key)[0], len(value)


def to_part(element: Keyed, plans: PlanSource, sizes: Mapping[int, int]) -> Keyed:
    """Key packed rows by part in place of shard; ``sizes`` are the bytes of rows of each period."""
    key, value = element
    period, shard = period_and_shard(key)
    parts = parts_for([sizes[period] // ROW_BYTES], plans.registry().shards)
    return shard_key(period, shard % parts), value


@beam.typehints.with_input_types(Grouped)
@beam.typehints.with_output_types(Keyed, rejected=bytes, notes=Keyed, audits=Keyed)
class CountByGroup(beam.DoFn):
    """Counts all packed rows of a part of a period at once, without state or timers.

    Yields changes of windows; audits, rejects and notes are side outputs.
    """

    def __init__(self, plans: PlanSource) -> None:
        self._plans = plans

    def process(self, element: Grouped) -> Iterator[Any]:
        """Count rows, and yield the audit of the part, which is final."""
        key, values = element
        period, part = period_and_shard(key)
        registry, blocks = _numbered_alike(self._plans, map(PackedRows.from_bytes, values))
        state = State(registry, part, period, new_key())
        stepped = _step(state, (replace(Rows.from_bytes(each), shard=part) for each in blocks))
        yield from _changes(stepped.changes, registry)
        yield from _outputs(stepped.rejects, stepped.tally)
        audit = SHARD.pack(part, *audited_totals(state).numbers)
        yield beam.pvalue.TaggedOutput(AUDITS, (PERIOD.pack(period), audit))


@beam.typehints.with_input_types(Keyed)
@beam.typehints.with_output_types(Keyed, rejected=bytes, notes=Keyed, audits=Keyed)
class CountByState(beam.DoFn):
    """Counts packed rows by period and shard as they come, with state and timers.

    Yields changes of windows; audits, rejects and notes are side outputs.
    """

    LINGER = userstate.TimerSpec("linger", TimeDomain.REAL_TIME)
    SETTLE = userstate.TimerSpec("settle", TimeDomain.WATERMARK)
    CLOSE = userstate.TimerSpec("close", TimeDomain.WATERMARK)
    #: The parameters of :meth:`process` and of the timers.
    BAG = beam.DoFn.StateParam(userstate.BagStateSpec("gathered", StateCoder()))
    LOG = beam.DoFn.StateParam(userstate.BagStateSpec("log", StateCoder()))
    SNAP = beam.DoFn.StateParam(userstate.ReadModifyWriteStateSpec("snapshot", StateCoder()))
    HEAD = beam.DoFn.StateParam(userstate.ReadModifyWriteStateSpec("head", StateCoder()))
    KEY, TIME = beam.DoFn.KeyParam, beam.DoFn.TimestampParam

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def process(
        self,
        element: Keyed,
        at: Any = TIME,
        gathered: Any = BAG,
        log: Any = LOG,
        snapshot: Any = SNAP,
        kept: Any = HEAD,
        linger: Any = beam.DoFn.TimerParam(LINGER),
        settle: Any = beam.DoFn.TimerParam(SETTLE),
        close: Any = beam.DoFn.TimerParam(CLOSE),
    ) -> Iterator[Any]:
        """Gather rows, and count them at once if there are many."""
        key, value = element
        head = read_tuple(Head, kept)
        packed = PackedRows.from_bytes(value)
        if head.closed:
            yield from _outputs(*self._late(packed))
            return
        registry, time = self.stream.plans.numbered(packed.numbering), at.micros // 1000
        period, _ = period_and_shard(key)
        last = closing_time(period, registry, self.stream.plans.since())
        settles = not head.rows
        if not head.token and not head.rows:
            close.set(moment(last))
            # A row is not earlier than the watermark, so the watermark may have passed the end.
            head = head._replace(doubtful=time >= last)
        elif head.doubtful and time < last:
            head, settles = head._replace(doubtful=False), True
        if settles and head.doubtful:
            # A time before the period's end: the next watermark fires the timer.
            settle.set(moment(period * registry.period))
        elif settles:
            settle.set(moment(next_settling(time, registry)))
        gathered.add(value)
        (rows,) = _ROWS.unpack_from(packed.rows, _ROWS_AT)
        head = head._replace(rows=head.rows + rows, waiting=head.waiting + len(value))
        if (head.rows >= ROWS or head.waiting >= BYTES) and not head.doubtful:
            head = yield from self._count(key, head, gathered, log, snapshot)
        if not head.armed:
            linger.set(Timestamp(micros=(now_ms() + self.stream.linger) * 1000))
            head = head._replace(armed=True)
        write_tuple(kept, head)

    @userstate.on_timer(LINGER)
    def gathered_long(
        self,
        key: Any = KEY,
        gathered: Any = BAG,
        log: Any = LOG,
        snapshot: Any = SNAP,
        kept: Any = HEAD,
        linger: Any = beam.DoFn.TimerParam(LINGER),
    ) -> Iterator[Any]:
        """Count the gathered rows, and audit the state if that is due."""
        head = read_tuple(Head, kept)
        if head.closed:
            return
        if head.doubtful and not head.watched:
            linger.set(Timestamp(micros=(now_ms() + self.stream.linger) * 1000))
            return
        head = yield from self._count(key, head._replace(armed=False), gathered, log, snapshot)
        if head.due:
            wait = head.audited + max(self.stream.every, (head.size + head.logged) // AUDITED)
            if now_ms() >= wait:
                head = yield from self._audit(key, head, log, snapshot, closed=False)
            else:
                # ``armed`` stays False: rows that come meanwhile set the timer earlier.
                linger.set(Timestamp(micros=wait * 1000))
        write_tuple(kept, head)

    @userstate.on_timer(SETTLE)
    def window_over(
        self,
        key: Any = KEY,
        gathered: Any = BAG,
        log: Any = LOG,
        snapshot: Any = SNAP,
        kept: Any = HEAD,
    ) -> Iterator[Any]:
        """Count the gathered rows before the watermark completes a window."""
        head = read_tuple(Head, kept)
        if head.doubtful:
            write_tuple(kept, head._replace(watched=True))
        elif head.rows and not head.closed:
            head = yield from self._count(key, head, gathered, log, snapshot)
            write_tuple(kept, head)

    @userstate.on_timer(CLOSE)
    def period_over(
        self,
        key: Any = KEY,
        gathered: Any = BAG,
        log: Any = LOG,
        snapshot: Any = SNAP,
        kept: Any = HEAD,
        close: Any = beam.DoFn.TimerParam(CLOSE),
        at: Any = TIME,
    ) -> Iterator[Any]:
        """Count the gathered rows, emit the last audit and drop the state."""
        head = read_tuple(Head, kept)
        if head.closed:
            return
        period, shard = period_and_shard(key)
        plans = self.stream.plans
        last = closing_time(period, plans.latest(), plans.since())
        if at.micros // 1000 < last:
            # A plan that came later accepts reports for longer.
            close.set(moment(last))
            return
        if head.doubtful:
            for value in gathered.read():
                yield from _outputs(*self._late(PackedRows.from_bytes(value)))
        else:
            head = yield from self._count(key, head, gathered, log, snapshot)
            yield from self._audit(key, head, log, snapshot, closed=True)
        _live(self.stream.job, self.stream.cache).take(period, shard, "")
        for each in (gathered, log, snapshot):
            each.clear()
        write_tuple(kept, Head(closed=True))

    def _count(
        self, key: bytes, head: Head, gathered: Any, log: Any, snapshot: Any
    ) -> Generator[Any, None, Head]:
        """Step the gathered rows; return the new head."""
        if not head.rows:
            return head
        period, shard = period_and_shard(key)
        registry, rows = _numbered_alike(
            self.stream.plans,
            map(PackedRows.from_bytes, gathered.read()),
            bytes.fromhex(head.numbering),
        )
        state, head = self._state(period, shard, head, registry, log, snapshot)
        gathered.clear()
        stepped = _step(state, map(Rows.from_bytes, rows))
        logged = head.logged + sum(map(len, rows))
        if logged > max(SHORT, head.size // PART):
            packed = state.to_bytes()
            snapshot.write(packed)
            log.clear()
            head = head._replace(size=len(packed), logged=0)
        else:
            for each in rows:
                log.add(each)
            head = head._replace(logged=logged)
        head = head._replace(
            token=secrets.token_hex(_TOKEN),
            numbering=numbering_of(registry).hex(),
            rows=0,
            waiting=0,
            due=True,
            doubtful=False,
            watched=False,
        )
        _live(self.stream.job, self.stream.cache).hold(head.token, state)
        yield from _changes(stepped.changes, registry)
        yield from _outputs(stepped.rejects, stepped.tally)
        return head

    def _state(
        self, period: int, shard: int, head: Head, registry: Registry, log: Any, snapshot: Any
    ) -> tuple[State, Head]:
        """Return the state under a registry.

        If the log's rows were counted under other plans, the log is folded into the snapshot under
        these first, so that pseudonyms that they revoked stay revoked.
        """
        numbering = bytes.fromhex(head.numbering)
        if not head.token or numbering == numbering_of(registry):
            return self._restored(period, shard, head, registry, log, snapshot), head
        former = self.stream.plans.numbered(numbering)
        packed = self._restored(period, shard, head, former, log, snapshot).to_bytes()
        snapshot.write(packed)
        log.clear()
        return State.from_bytes(packed, registry), head._replace(size=len(packed), logged=0)

    def _restored(
        self, period: int, shard: int, head: Head, registry: Registry, log: Any, snapshot: Any
    ) -> State:
        live = _live(self.stream.job, self.stream.cache).take(period, shard, head.token)
        if live is not None and live.registry is registry:
            return live
        if head.size:
            state = State.from_bytes(snapshot.read(), registry)
        else:
            state = State(registry, shard, period, new_key())
        return step_blocks(state, log.read()).state if head.logged else state

    def _audit(
        self, key: bytes, head: Head, log: Any, snapshot: Any, *, closed: bool
    ) -> Generator[Any, None, Head]:
        """Emit the audit of a state; return the new head."""
        period, shard = period_and_shard(key)
        if not head.token:
            return head
        registry = self.stream.plans.numbered(bytes.fromhex(head.numbering))
        state = self._restored(period, shard, head, registry, log, snapshot)
        totals = audited_totals(state)
        _live(self.stream.job, self.stream.cache).hold(head.token, state)
        packed = SHARD.pack(shard, *totals.numbers)
        yield beam.pvalue.TaggedOutput(AUDITS, (PERIOD.pack(period), packed))
        now = (head.size + head.logged, totals.chains, totals.pseudonyms)
        # A sum and a number take the place of a distribution, which engines show as text.
        increase("state_bytes_sum", now[0])
        increase("state_bytes_count", 1)
        reported = (0, 0, 0) if closed else now
        note = {
            name: after - before
            for name, after, before in zip(OPEN, reported, head.reported, strict=True)
        }
        yield beam.pvalue.TaggedOutput(NOTES, (b"", json.dumps(note).encode()))
        return head._replace(audited=now_ms(), due=False, reported=reported)

    def _late(self, packed: PackedRows) -> tuple[list[Reject], Tally]:
        """Return the countable rows of a closed period as rejects; others were rejected before."""
        rows = Rows.from_bytes(packed.rows)
        rows = rows.select(rows.countable)
        reasons = np.full(len(rows), Reason.LATE, dtype=np.uint8)
        registry = self.stream.plans.numbered(packed.numbering)
        return late_rejects(Rejects(rows, reasons), registry), Tally()


def _numbered_alike(
    plans: PlanSource, elements: Iterable[PackedRows], *numberings: bytes
) -> tuple[Registry, list[bytes]]:
    """Return a registry with all plans of the elements and ``numberings``, and the elements' rows.

    The rows' metrics are numbered as that registry does.
    """
    packed = list(elements)
    known = {*numberings, *(each.numbering for each in packed)}
    registry = plans.registry(*{plan for each in known for plan in fingerprints_of(each)})
    return registry, [_renumbered(each, registry) for each in packed]


def _renumbered(packed: PackedRows, registry: Registry) -> bytes:
    if packed.numbering == numbering_of(registry):
        return packed.rows
    ids = registry_ids(fingerprints_of(packed.numbering), registry)
    return Rows.from_bytes(packed.rows).renumbered(ids).to_bytes()


def _step(state: State, rows: Iterable[Rows]) -> Stepped:
    """Take rows into a state, and add the time that it takes to Beam's counters."""
    begin = perf_counter()
    stepped = step_rows(state, in_order(rows))
    increase("step_ms_sum", round(1_000 * (perf_counter() - begin)))
    increase("step_ms_count", 1)
    return stepped


def _changes(changes: Mapping[WindowKey, Matrix], registry: Registry) -> Iterator[Keyed]:
    for window, change in changes.items():
        if change.any():
            plan = registry.by_fingerprint[window.fingerprint]
            group = window_group(plan, plan.metrics[window.metric])
            yield group + _START.pack(window.start), pack_change(window, change)


def _outputs(rejects: list[Reject], tally: Tally) -> Iterator[Any]:
    for name, value in rejected(rejects, tally):
        yield beam.pvalue.TaggedOutput(name, value)
