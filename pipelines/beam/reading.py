"""Reading partitions: a splittable DoFn whose restriction is a partition's offsets.

One call reads for a moment, decodes what it has read, and yields packed rows, one element for
each budget period and shard: no report crosses the engine by itself. The watermark of a partition
is the broker's append time of its last record. A partition that is read to its end and gives
nothing more follows the clock, at a distance, so that it does not hold the others back.
"""

from __future__ import annotations

import json
import logging
import struct
import time
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import PickleCoder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker, WatermarkEstimator
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider, WatermarkEstimatorProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from pipelines.aggregation import quarantine
from pipelines.aggregation.decode import arrivals
from pipelines.aggregation.rows import Rows, padded_width
from pipelines.aggregation.step import Tally
from pipelines.beam.plans import numbering_of
from pipelines.beam.stream import Stream, moment
from pipelines.sources.base import GoneError, Partition, Source, trusted_until
from sotto.clocks import now_ms
from sotto.errors import AggregationError
from sotto.log.reader import EARLIEST, Block
from sotto.plan.registry import Registry
from sotto.wire.decode import Reject

#: A call ends after so many seconds or bytes, whichever comes first.
READ_SECONDS = 0.5
READ_BYTES = 8 << 20
#: Seconds until a partition that is read to its end is asked again; engines may know whole ones
#: only. What has come meanwhile is taken in few large elements instead of many small ones.
IDLE_SECONDS = 2
#: Seconds between two looks for new partitions, by which the watermark is behind at least.
LOOK_SECONDS = 10.0
#: Seconds between two questions of whether an idle partition is read to its end.
END_SECONDS = 5.0
#: Seconds between two notes of how far a partition is read.
NOTE_SECONDS = 5.0
#: Seconds between two warnings of a partition.
WARN_SECONDS = 60.0
#: Of so many rejects one element is made at most.
REJECTS = 1_000
#: Names of the outputs beside the main one.
REJECTED, NOTES = "rejected", "notes"

_LOGGER = logging.getLogger(__name__)
_END = 2**62
_STATE_KEY = struct.Struct("<qH")
_NUMBERING = struct.Struct("<H")


class Clock(NamedTuple):
    """The time of a partition, ms."""

    #: The append time of its last record: none that follows is given an earlier one.
    append: int = EARLIEST
    watermark: int = EARLIEST  #: no element that follows has an earlier timestamp


class AppendTime(WatermarkEstimator):
    """Returns the watermark that the reader sets."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def advance(self, clock: Clock) -> None:
        """Set the clock; to be called as a method, since Beam hands out a wrapper."""
        self.clock = clock

    def get_estimator_state(self) -> Clock:
        return self.clock

    def current_watermark(self) -> Timestamp:
        return moment(self.clock.watermark)

    def observe_timestamp(self, timestamp: Timestamp) -> None:
        """Do nothing: blocks have the time of their first record."""


class AppendTimes(WatermarkEstimatorProvider):
    """Gives every partition its clock; checkpointed with its offsets."""

    def initial_estimator_state(self, element: str, restriction: OffsetRange) -> Clock:
        return Clock()

    def create_watermark_estimator(self, estimator_state: Clock) -> AppendTime:
        return AppendTime(estimator_state)

    def estimator_state_coder(self) -> PickleCoder:
        return PickleCoder()


class _Tail(OffsetRestrictionTracker):
    """Offsets that may have no end; cut after what is read, nowhere else.

    A block is claimed whole: of one that lies on both sides of a cut nobody would read the first
    part.
    """

    def try_split(self, fraction_of_remainder: float) -> tuple[OffsetRange, OffsetRange] | None:
        return super().try_split(0) if fraction_of_remainder == 0 else None

    def is_bounded(self) -> bool:
        return bool(self.current_restriction().stop < _END)

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=0, remaining=1)


class _Unsized(RestrictionProvider):
    """Restrictions whose size is not known."""

    def restriction_size(self, element: object, restriction: object) -> int:
        return 1

    def restriction_coder(self) -> PickleCoder:
        return PickleCoder()

    def truncate(self, element: object, restriction: object) -> None:
        """Read nothing more when the engine drains the pipeline."""


class _Offsets(_Unsized):
    """A partition from its first record on, without an end or up to where it ends now."""

    def __init__(self, source: Source, bounded: bool) -> None:
        self._source = source
        self._bounded = bounded

    def initial_restriction(self, element: str) -> OffsetRange:
        partition = self._source.partition(element)
        try:
            first, end = partition.bounds()
            return OffsetRange(first, max(first, end) if self._bounded else _END)
        finally:
            partition.close()

    def create_tracker(self, restriction: OffsetRange) -> _Tail:
        return _Tail(restriction)


class _Emitted(RestrictionTracker):
    """The names that have been emitted, which only become more."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def current_restriction(self) -> tuple[str, ...]:
        return self._names

    def try_claim(self, position: tuple[str, ...]) -> bool:
        self._names = (*self._names, *position)
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[tuple[str, ...], ...] | None:
        # Two that look for new names would each emit them.
        return (self._names, self._names) if fraction_of_remainder == 0 else None

    def check_done(self) -> bool:
        return True

    def is_bounded(self) -> bool:
        return False

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=0, remaining=1)


class _Names(_Unsized):
    """Names of which none has been emitted yet."""

    def initial_restriction(self, element: bytes) -> tuple[str, ...]:
        return ()

    def create_tracker(self, restriction: tuple[str, ...]) -> _Emitted:
        return _Emitted(restriction)


def discover_dofn(stream: Stream, source: Source) -> beam.DoFn:
    """Return the splittable DoFn that emits the names of partitions, given anything.

    It goes on looking for new ones. The watermark is the time of its last look: a partition that
    came later has no earlier record.
    """

    names = beam.DoFn.RestrictionParam(_Names())
    times = beam.DoFn.WatermarkEstimatorParam(AppendTimes())

    class Discover(beam.DoFn):
        @beam.DoFn.unbounded_per_element()
        def process(
            self, element: bytes, tracker: Any = names, estimator: Any = times
        ) -> Iterator[Any]:
            now = now_ms()
            seen = tracker.current_restriction()
            new = tuple(name for name in source.names() if name not in seen)
            tracker.try_claim(new)
            for name in new:
                yield TimestampedValue(name, moment(estimator.get_estimator_state().watermark))
            if not stream.bounded:
                estimator.advance(Clock(EARLIEST, now))
                tracker.defer_remainder(Duration.of(LOOK_SECONDS))

    return Discover()


class _Held:
    """A partition that a worker has open: the position after its last record, and since when."""

    def __init__(self, name: str, partition: Partition) -> None:
        self._name = name
        self.partition = partition
        self.moved = time.monotonic()
        self._noted, self._position = float("-inf"), -1
        self._asked = self._warned = float("-inf")

    def warn_of_the_future(self, block: Block) -> None:
        """Warn, now and then, of records whose append time is ahead of this machine's clock."""
        future = [each.position for each in block.corrupt if each.future]
        if future and time.monotonic() - self._warned > WARN_SECONDS:
            self._warned = time.monotonic()
            _LOGGER.warning(
                "%s has records at %d that bear a time ahead of this machine's clock, and go to "
                "quarantine as future: one of the clocks is wrong",
                self._name,
                future[0],
            )

    def must_note(self, position: int, idle: bool) -> bool:
        """Return whether to note a position: now and then, and the last before nothing comes."""
        now = time.monotonic()
        if position == self._position or not (idle or now - self._noted > NOTE_SECONDS):
            return False
        self._noted, self._position = now, position
        return True

    def idle_for(self, ms: int, position: int) -> bool:
        """Return whether nothing came for so long, and the broker, now asked, has nothing."""
        now = time.monotonic()
        if now - self.moved <= ms / 1000 or now - self._asked < END_SECONDS:
            return False
        self._asked = now
        _, end = self.partition.bounds()
        if end < position:
            raise AggregationError(
                f"{self._name} ends at offset {end}, but {position} have been read: the broker "
                "has lost what it had confirmed, or the topic was created again; start it anew"
            )
        return end == position


class Gathered:
    """What a call has read."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int, int], list[Rows]] = {}
        self.rejects: list[Reject] = []
        self.reports = 0
        self.size = 0
        self.first = EARLIEST

    def add(self, block: Block, registry: Registry) -> None:
        found = arrivals(block, registry, None)
        for rows in found.rows:
            key = (rows.period, rows.shard, padded_width(rows.payload.shape[1]))
            self.rows.setdefault(key, []).append(rows)
        self.rejects += found.rejects
        self.reports += found.reports
        self.size += len(block.buffer)
        if self.first == EARLIEST and len(block.append):
            self.first = int(block.append[0])


def read_dofn(stream: Stream, source: Source) -> beam.DoFn:
    """Return the splittable DoFn that reads partitions, given their names.

    Its main output are pairs of bytes: period and shard, and rows with their numbering; beside it
    are packed rejects, and notes for the job's health.
    """
    requeued = source.requeued
    offsets = beam.DoFn.RestrictionParam(_Offsets(source, stream.bounded))
    times = beam.DoFn.WatermarkEstimatorParam(AppendTimes())

    class Read(beam.DoFn):
        def setup(self) -> None:
            self._held: dict[str, _Held] = {}

        def teardown(self) -> None:
            for held in self._held.values():
                held.partition.close()

        @beam.DoFn.unbounded_per_element()
        def process(
            self, name: str, tracker: Any = offsets, estimator: Any = times
        ) -> Iterator[Any]:
            clock = estimator.get_estimator_state()
            try:
                # Absent while it is in use: a call that fails leaves no odd connection behind.
                held = self._held.pop(name, None) or _Held(name, source.partition(name))
            except GoneError:
                # Only that of a partition that was read to its end follows the wall clock.
                if not clock.append < clock.watermark:
                    raise
                _LOGGER.warning("%s is gone; it had been read to its end", name)
                tracker.try_claim(_END)
                return
            try:
                goes_on = yield from self._read(name, held, tracker, estimator)
            except BaseException:
                held.partition.close()
                raise
            if goes_on is None:
                held.partition.close()
            else:
                self._held[name] = held
                tracker.defer_remainder(Duration.of(goes_on))

        def _read(
            self, name: str, held: _Held, tracker: Any, estimator: Any
        ) -> Generator[Any, None, float | None]:
            """Read for a moment; return after how many seconds to go on, None for never."""
            registry, restriction = stream.plans.registry(), tracker.current_restriction()
            at, clock = restriction.start, estimator.get_estimator_state()
            gathered, end = Gathered(), time.monotonic() + READ_SECONDS
            append, idle, ours = clock.append, False, True
            while at < restriction.stop and gathered.size < READ_BYTES and time.monotonic() < end:
                trusted = trusted_until(now_ms(), registry)
                if trusted < append:
                    raise AggregationError(
                        f"{name} has been read up to {append} ms, but by this machine's clock no "
                        f"record can be from after {trusted} ms: set the clock"
                    )
                block = held.partition.poll(at, restriction.stop, append, trusted)
                idle = block is None
                if block is None:
                    break
                held.warn_of_the_future(block)
                # What is not claimed is another worker's to read.
                if not (ours := tracker.try_claim(block.end - 1)):
                    break
                gathered.add(block, registry)
                at, append = block.end, block.clock
                # Whoever goes on here, where a runner splits what is left, begins with this clock.
                estimator.advance(clock._replace(append=append))
            if at != restriction.start:
                held.moved = time.monotonic()
            now = now_ms()
            time_of = max(now if requeued else gathered.first, clock.watermark)
            yield from _elements(gathered, numbering_of(registry), moment(time_of))
            if held.must_note(at, idle):
                note: dict[str, object] = {"offsets": {name: at}}
                if not requeued and append != EARLIEST:
                    note["clock"] = append
                yield _tagged(NOTES, (b"", json.dumps(note).encode()), moment(time_of))
            watermark = max(clock.watermark, append)
            if requeued:
                watermark = max(watermark, now)
            elif idle and held.idle_for(stream.idle, at):
                watermark = max(watermark, now - stream.idle)
            # A pipeline that ends closes all periods together, once everything is read.
            estimator.advance(Clock(append, EARLIEST if stream.bounded else watermark))
            if at >= restriction.stop or not ours:
                return None
            return IDLE_SECONDS if idle else 0

    return Read()


def with_numbering(numbering: bytes, rows: bytes) -> bytes:
    """Return packed rows with the plans by which their metrics are numbered before them."""
    return _NUMBERING.pack(len(numbering)) + numbering + rows


def numbered(element: bytes) -> tuple[bytes, bytes]:
    """Return numbering and packed rows of :func:`with_numbering`."""
    (size,) = _NUMBERING.unpack_from(element)
    return element[_NUMBERING.size : _NUMBERING.size + size], element[_NUMBERING.size + size :]


def shard_key(period: int, shard: int) -> bytes:
    return _STATE_KEY.pack(period, shard)


def period_and_shard(key: bytes) -> tuple[int, int]:
    period, shard = _STATE_KEY.unpack(key)
    return period, shard


def rejected(rejects: list[Reject], tally: Tally) -> Iterator[tuple[str, Any]]:
    """Yield packed rejects and a note of them, each with the name of its output."""
    for at in range(0, len(rejects), REJECTS):
        yield REJECTED, quarantine.pack(rejects[at : at + REJECTS])
    if rejects or any(tally):
        note = {"tally": list(tally), "rejects": quarantine.numbers(rejects)}
        yield NOTES, (b"", json.dumps(note).encode())


def _elements(gathered: Gathered, numbering: bytes, at: Timestamp) -> Iterator[Any]:
    for (period, shard, _), parts in gathered.rows.items():
        rows = with_numbering(numbering, Rows.concat(parts).to_bytes())
        yield TimestampedValue((shard_key(period, shard), rows), at)
    for name, value in rejected(gathered.rejects, Tally(reports=gathered.reports)):
        yield _tagged(name, value, at)


def _tagged(name: str, value: object, at: Timestamp) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput(name, TimestampedValue(value, at))
