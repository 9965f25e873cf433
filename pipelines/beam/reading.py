"""The stage that reads partitions: a splittable DoFn whose restriction is a partition's offsets.

One call reads for a short time and yields blocks of messages. The watermark of a partition is the
broker's append time of its last record. If a partition is read to its end and gives nothing more,
its watermark follows the clock at a distance (``--idle``), so that it does not hold the others
back.

A pipeline that ends reads fixed ranges instead, without watermarks or splitting.
"""

from __future__ import annotations

import logging
import math
import mmap
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker, WatermarkEstimator
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import RestrictionProvider, WatermarkEstimatorProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from pipelines.beam.coders import Clock, ClockCoder, NamesCoder, OffsetsCoder
from pipelines.beam.decoding import MessageBlock
from pipelines.beam.plans import PlanSource
from pipelines.beam.stream import Stream, moment
from pipelines.flink import WORKER_BYTES
from pipelines.sources.base import (
    WARN_SECONDS,
    GoneError,
    LostError,
    Outage,
    Partition,
    ReportSource,
    trusted_until,
)
from sotto.clocks import minute, now_ms
from sotto.errors import AggregationError, BrokerError
from sotto.log.reader import EARLIEST, Block

#: A call ends after so many seconds or bytes, whichever comes first.
READ_SECONDS = 0.5
READ_BYTES = 8 << 20
#: Seconds until a partition that is read to its end is read again: a whole number, since engines
#: may know no others. Records that came meanwhile make few large elements, not many small ones.
IDLE_SECONDS = 2
#: Seconds until a partition is tried again whose broker is away, or denies access.
AWAY_SECONDS = 5
#: Seconds between two looks for new partitions, each of which moves the watermark of discovery.
LOOK_SECONDS = 10.0
#: Seconds between two times at which the broker is asked for the end of an idle partition.
END_SECONDS = 5.0
#: Seconds after which the broker is asked again for the backlog of a partition.
SIZE_SECONDS = 10.0

_LOGGER = logging.getLogger(__name__)
_END = 2**62


class AppendTime(WatermarkEstimator):
    """Returns the watermark that the reader sets."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def advance(self, clock: Clock) -> None:
        """Set the clock. Beam hands out a wrapper, which passes on calls and no attributes."""
        self.clock = clock

    def get_estimator_state(self) -> Clock:
        return self.clock

    def current_watermark(self) -> Timestamp:
        return moment(self.clock.watermark)

    def observe_timestamp(self, timestamp: Timestamp) -> None:
        """Do nothing: a block has the time of its first record, and the clock that of its last."""


class AppendTimes(WatermarkEstimatorProvider):
    """Gives every partition its clock, which is checkpointed with its offsets."""

    def initial_estimator_state(self, element: str, restriction: OffsetRange) -> Clock:
        return Clock()

    def create_watermark_estimator(self, estimator_state: Clock) -> AppendTime:
        return AppendTime(estimator_state)

    def estimator_state_coder(self) -> ClockCoder:
        return ClockCoder()


_TIMES = beam.DoFn.WatermarkEstimatorParam(AppendTimes())


class _Tail(OffsetRestrictionTracker):
    """Offsets that may have no end; they can be split only behind the last record that was read.

    A block is claimed by its last offset. If a split lay within a block, nobody would read the
    block's first part.
    """

    def __init__(self, restriction: OffsetRange, ends: _Ends) -> None:
        super().__init__(restriction)
        self._at, self._ends = restriction.start, ends

    def try_claim(self, position: int) -> bool:
        claimed = bool(super().try_claim(position))
        self._at = position + 1 if claimed else self._at
        return claimed

    def try_split(self, fraction_of_remainder: float) -> tuple[OffsetRange, OffsetRange] | None:
        return super().try_split(0) if fraction_of_remainder == 0 else None

    def is_bounded(self) -> bool:
        return bool(self.current_restriction().stop < _END)

    def current_progress(self) -> RestrictionProgress:
        """Return how many positions were read, and how many more there are as far as known."""
        read = self._at - self.current_restriction().start
        return RestrictionProgress(completed=read, remaining=self._ends.beyond(self._at))


class _Ends:
    """The last known ends of partitions, which a DoFn keeps; it reads one partition at a time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}
        self.reading = ""  #: the partition that is being read

    def note(self, name: str, end: int) -> None:
        self._known[name] = end, time.monotonic()

    def knows(self, name: str, seconds: float = math.inf) -> bool:
        """Return whether the end of a partition was noted within the last ``seconds``."""
        return name in self._known and time.monotonic() - self._known[name][1] <= seconds

    def beyond(self, position: int, name: str | None = None) -> int:
        """Return the distance from a position to the end of a partition; 1 if that is 0 or unknown.

        ``name``: the partition, by default the one that is being read.
        """
        end, _ = self._known.get(self.reading if name is None else name, (position, 0.0))
        return max(end - position, 1)


class _Emitted(RestrictionTracker):
    """The restriction of discovery: the names that have been emitted, which only become more."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def current_restriction(self) -> tuple[str, ...]:
        return self._names

    def try_claim(self, position: tuple[str, ...]) -> bool:
        self._names = (*self._names, *position)
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[tuple[str, ...], ...] | None:
        # A second discovery would emit the same new names again.
        return (self._names, self._names) if fraction_of_remainder == 0 else None

    def check_done(self) -> bool:
        return True

    def is_bounded(self) -> bool:
        return False

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=0, remaining=1)


@beam.typehints.with_output_types(str)
class DiscoverPartitions(beam.DoFn, RestrictionProvider):
    """Emits the names of a source's partitions, for any element, and goes on to look for new ones.

    The watermark is the time of the last look: a partition that is made later has no earlier
    record. While the broker is away the watermark does not move.
    """

    def __init__(self, source: ReportSource) -> None:
        self._source, self._outage = source, Outage()

    def initial_restriction(self, element: bytes) -> tuple[str, ...]:
        return ()

    def create_tracker(self, restriction: tuple[str, ...]) -> _Emitted:
        return _Emitted(restriction)

    def restriction_coder(self) -> NamesCoder:
        return NamesCoder()

    def restriction_size(self, element: bytes, restriction: tuple[str, ...]) -> int:
        return 1

    def truncate(self, element: bytes, restriction: tuple[str, ...]) -> None:
        """Return None, so that the look for partitions ends when the engine drains the pipeline."""

    @beam.DoFn.unbounded_per_element()
    def process(
        self, element: bytes, tracker: Any = beam.DoFn.RestrictionParam(), estimator: Any = _TIMES
    ) -> Iterator[Any]:
        now = now_ms()
        seen = tracker.current_restriction()
        try:
            names = self._source.names()
        except BrokerError as error:
            self._outage.begin(f"the look for partitions of {self._source.label}", error)
            tracker.defer_remainder(Duration.of(LOOK_SECONDS))
            return
        self._outage.end()
        new = tuple(name for name in names if name not in seen)
        tracker.try_claim(new)
        for name in new:
            yield TimestampedValue(name, moment(estimator.get_estimator_state().watermark))
        estimator.advance(Clock(EARLIEST, now))
        tracker.defer_remainder(Duration.of(LOOK_SECONDS))


class _Held:
    """A partition that a worker has open, and when something last came from it."""

    def __init__(self, name: str, partition: Partition) -> None:
        self._name = name
        self.partition = partition
        self.away: BrokerError | None = None  #: why its broker does not answer
        self.moved = time.monotonic()
        self._asked = self._warned = float("-inf")

    def poll(self, start: int, stop: int, clock: int, trusted: int) -> Block | None:
        """Return what :meth:`Partition.poll` does; None also if the broker is away."""
        try:
            return self.partition.poll(start, stop, clock, trusted)
        except BrokerError as error:
            self.away = error
            return None

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

    def idle_for(self, ms: int, position: int) -> bool:
        """Return whether nothing came for ``ms``, and the broker says that there is nothing."""
        now = time.monotonic()
        if self.away or now - self.moved <= ms / 1000 or now - self._asked < END_SECONDS:
            return False
        self._asked = now
        try:
            _, end = self.partition.bounds()
        except BrokerError as error:
            self.away = error
            return False
        if end < position:
            raise LostError(
                f"{self._name} ends at offset {end}, but {position} have been read: the broker "
                "has lost what it had confirmed, or the topic is another one: begin --from-scratch"
            )
        return end == position


@beam.typehints.with_output_types(MessageBlock)
class ReadPartitions(beam.DoFn, RestrictionProvider):
    """Reads partitions, given their names, from their first record on, without an end."""

    def __init__(self, stream: Stream, source: ReportSource) -> None:
        self._stream, self._source = stream, source
        self._held: dict[str, _Held] = {}
        self._ends = _Ends()

    def initial_restriction(self, element: str) -> OffsetRange:
        return OffsetRange(self._bounds(element)[0], _END)

    def create_tracker(self, restriction: OffsetRange) -> _Tail:
        return _Tail(restriction, self._ends)

    def restriction_coder(self) -> OffsetsCoder:
        return OffsetsCoder()

    def restriction_size(self, element: str, restriction: OffsetRange) -> int:
        """Return the backlog of a partition, in positions, at least 1.

        The source is asked now and then. If the partition is not open here, it is asked once, so
        that no connection is tried again and again while a broker is away.
        """
        if not self._ends.knows(element, SIZE_SECONDS if element in self._held else math.inf):
            try:
                self._bounds(element)
            except (BrokerError, GoneError):
                self._ends.note(element, restriction.start)
        return self._ends.beyond(restriction.start, element)

    def truncate(self, element: str, restriction: OffsetRange) -> None:
        """Return None, so that reading ends when the engine drains the pipeline."""

    def _bounds(self, name: str) -> tuple[int, int]:
        if held := self._held.get(name):
            bounds = held.partition.bounds()
        else:
            with closing(self._source.partition(name)) as partition:
                bounds = partition.bounds()
        self._ends.note(name, bounds[1])
        return bounds

    def setup(self) -> None:
        self._outage = Outage()
        self._memory = Metrics.gauge("sotto", WORKER_BYTES)

    def teardown(self) -> None:
        for held in self._held.values():
            held.partition.close()

    @beam.DoFn.unbounded_per_element()
    def process(
        self, name: str, tracker: Any = beam.DoFn.RestrictionParam(), estimator: Any = _TIMES
    ) -> Iterator[Any]:
        """Yield blocks of messages, each at the append time of its first."""
        clock, self._ends.reading = estimator.get_estimator_state(), name
        self._memory.set(resident_bytes())
        try:
            # It is taken out while in use: a call that fails leaves no broken connection behind.
            held = self._held.pop(name, None) or _Held(name, self._source.partition(name))
        except GoneError:
            # The watermark is ahead of the records only if the partition was read to its end.
            if not clock.append < clock.watermark:
                raise
            _LOGGER.warning("%s is gone; it had been read to its end", name)
            tracker.try_claim(_END)
            return
        except BrokerError as error:
            self._wait_for_broker(name, error, tracker)
            return
        try:
            goes_on = yield from self._read(name, held, tracker, estimator)
        except BaseException:
            held.partition.close()
            raise
        if goes_on is None or held.away:
            held.partition.close()
        else:
            self._held[name] = held
        if held.away and goes_on is not None:
            self._wait_for_broker(name, held.away, tracker)
            return
        self._outage.end()
        if goes_on is not None:
            tracker.defer_remainder(Duration.of(goes_on))

    def _wait_for_broker(self, name: str, error: BrokerError, tracker: Any) -> None:
        """Go on later from where the partition was read to."""
        self._outage.begin(name, error)
        tracker.defer_remainder(Duration.of(AWAY_SECONDS))

    def _read(
        self, name: str, held: _Held, tracker: Any, estimator: Any
    ) -> Generator[Any, None, float | None]:
        """Read for a short time; return after how many seconds to go on, None for never."""
        requeued, restriction = self._source.requeued, tracker.current_restriction()
        at, clock = restriction.start, estimator.get_estimator_state()
        size, end = 0, time.monotonic() + READ_SECONDS
        append, idle, ours = clock.append, False, True
        while at < restriction.stop and size < READ_BYTES and time.monotonic() < end:
            trusted = trusted_until(now_ms(), self._stream.plans.registry())
            if trusted < append:
                raise AggregationError(
                    f"{name} has been read up to {minute(append)}, but by this machine's clock no "
                    f"record can be from after {minute(trusted)}: set the clock"
                )
            block = held.poll(at, restriction.stop, append, trusted)
            idle = block is None
            if block is None:
                break
            held.warn_of_the_future(block)
            # Another worker reads the records that cannot be claimed here.
            if not (ours := tracker.try_claim(block.end - 1)):
                break
            first = now_ms() if requeued else int(block.append[0]) if len(block.append) else append
            of = MessageBlock(name, block, requeued)
            yield TimestampedValue(of, moment(max(first, clock.watermark)))
            size += len(block.buffer)
            at, append = block.end, block.clock
            # If a runner splits off the rest, the worker that takes it goes on with this clock.
            estimator.advance(clock._replace(append=append))
        if at != restriction.start:
            held.moved = time.monotonic()
        watermark = max(clock.watermark, append)
        if requeued:
            watermark = max(watermark, now_ms())
        elif idle and held.idle_for(self._stream.idle, at):
            watermark = max(watermark, now_ms() - self._stream.idle)
        estimator.advance(Clock(append, watermark))
        if at >= restriction.stop or not ours:
            return None
        return IDLE_SECONDS if idle else 0


def resident_bytes() -> int:
    """Return the memory of this process, bytes; 0 on systems without ``/proc``."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


@beam.typehints.with_output_types(tuple[str, int, int])
class ListRanges(beam.DoFn):
    """Yields the range of each partition that a source has now, for any element."""

    def __init__(self, source: ReportSource) -> None:
        self._source = source

    def process(self, element: bytes) -> Iterator[tuple[str, int, int]]:
        for name in self._source.names():
            with closing(self._source.partition(name)) as partition:
                first, end = partition.bounds()
            yield name, first, max(first, end)


@beam.typehints.with_input_types(tuple[str, int, int])
@beam.typehints.with_output_types(MessageBlock)
class ReadRanges(beam.DoFn):
    """Reads ranges of partitions, given the name, the first position and the one after the last."""

    def __init__(self, source: ReportSource, plans: PlanSource) -> None:
        self._source, self._plans = source, plans

    def process(self, element: tuple[str, int, int]) -> Iterator[MessageBlock]:
        name, start, end = element
        trusted = trusted_until(now_ms(), self._plans.registry())
        with closing(self._source.partition(name)) as partition:
            for block in partition.blocks(start, end, EARLIEST, trusted):
                yield MessageBlock(name, block, self._source.requeued)
