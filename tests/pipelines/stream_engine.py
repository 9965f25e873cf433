"""An engine in one thread that runs the stages of a streaming pipeline, and does as it likes.

Elements of one sender and key stay in order; else any comes first. Processing-time timers fire
early or late, watermarks move in steps of any size, bundles end half-way, state goes back to a
checkpoint, and keys move to other processes, with what these have in memory. Output that went to
the outside is never taken back.
"""

from __future__ import annotations

import inspect
import random
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from pipelines.aggregation import quarantine
from pipelines.beam import counting, decoding, documents, plans, reading
from pipelines.beam.stream import Stream
from pipelines.results.documents import Document, parse
from pipelines.sources.base import ReportSource
from sotto.wire.decode import Reject

STAGES = {
    "count": counting.CountByState,
    "windows": documents.PublishByState,
    "periods": documents.PublishByState,
    "health": documents.PublishByState,
}
SUBJECTS = {
    "windows": documents.WindowEstimates,
    "periods": documents.PeriodAudit,
    "health": documents.JobHealth,
}
#: The stages that outputs go to, by their tag; None is the main one.
ROUTES = {None: "windows", counting.AUDITS: "periods", decoding.NOTES: "health"}

Address = tuple[str, object]

#: A time after all periods of the tests' logs.
AT_LAST = 1_800_000_000_000


class CrashError(Exception):
    """A bundle that does not come to its end."""


class Process:
    """The memory of one process."""

    def __init__(self, stream: Stream, sources: Sequence[ReportSource]) -> None:
        self.live = counting.LiveStates(stream.cache)
        self.plans: dict[str, Any] = {}
        self.stages: dict[str, Any] = {"count": counting.CountByState(stream)}
        self.stages |= {
            name: documents.PublishByState(subject(stream)) for name, subject in SUBJECTS.items()
        }
        self.decode = decoding.Decode(stream.plans)
        self.discover = [reading.DiscoverPartitions(source) for source in sources]
        self.read = [reading.ReadPartitions(stream, source) for source in sources]
        for reader in self.read:
            reader.setup()


class Keyed:
    """State and timers of a key: values, lists and times by name."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.timers: dict[str, int] = {}

    def copy(self) -> Keyed:
        made = Keyed()
        made.content = {k: v[:] if isinstance(v, list) else v for k, v in self.content.items()}
        made.timers = dict(self.timers)
        return made


class _Cell:
    def __init__(self, keyed: Keyed, name: str, bag: bool) -> None:
        self._content, self._name, self._bag = keyed.content, name, bag

    def read(self) -> Any:
        found = self._content.get(self._name)
        return list(found or ()) if self._bag else found

    def write(self, value: bytes) -> None:
        assert isinstance(value, bytes)
        self._content[self._name] = value

    def add(self, value: bytes) -> None:
        assert isinstance(value, bytes)
        self._content.setdefault(self._name, []).append(value)

    def clear(self) -> None:
        self._content.pop(self._name, None)


class _Timer:
    def __init__(self, keyed: Keyed, name: str) -> None:
        self._timers, self._name = keyed.timers, name

    def set(self, at: Timestamp) -> None:
        self._timers[self._name] = at.micros

    def clear(self) -> None:
        self._timers.pop(self._name, None)


class _Tracker:
    """A restriction's tracker; the engine splits it after ``claims`` claims unless that is None."""

    def __init__(self, tracker: Any, estimator: Any, claims: int | None) -> None:
        self.inner, self.deferred = tracker, False
        self.current_restriction = tracker.current_restriction
        self.left: Part | None = None
        self._estimator, self._claims = estimator, claims

    def try_claim(self, position: Any) -> bool:
        if self._claims == 0:
            self.split()
        if self._claims is not None:
            self._claims -= 1
        return bool(self.inner.try_claim(position))

    def split(self) -> None:
        _, residual = self.inner.try_split(0)
        self.left = Part(residual, self._estimator.get_estimator_state())

    def defer_remainder(self, _: object = None) -> None:
        self.deferred = True


class Part(NamedTuple):
    """A splittable element: what is left of it, and its estimator's state."""

    restriction: Any
    clock: Any


class Checkpoint(NamedTuple):
    keyed: dict[Address, Keyed]
    parts: dict[tuple[int, object], Part]
    told: int


class Engine:
    """A pipeline over some sources; to be used in a ``with``.

    Parameters
    ----------
    stream : Stream
    sources : sequence of Source
    source : random.Random
    """

    def __init__(
        self,
        stream: Stream,
        sources: Sequence[ReportSource],
        source: random.Random,
        now: int = AT_LAST,
    ) -> None:
        self.stream, self.sources, self.random = stream, sources, source
        self.now = now
        self.keyed: dict[Address, Keyed] = {}
        self.parts: dict[tuple[int, object], Part] = {}
        self.channels: dict[tuple[object, str, object], deque[tuple[bytes, Timestamp]]] = {}
        self.watermark = MIN_TIMESTAMP
        self.documents: dict[bytes, Document] = {}
        self.told: list[bytes] = []
        # Keys of documents made in what was rolled back, and not again since.
        self.phantoms: set[bytes] = set()
        self.panes: list[Document] = []
        self.rejects: list[Reject] = []
        self.processes = [Process(stream, sources)]
        self.spread, self.salt = 1, 0
        self.checkpoints = [Checkpoint({}, {}, 0)]
        self._patch = pytest.MonkeyPatch()
        self._process = self.processes[0]
        self._until_crash: int | None = None

    def __enter__(self) -> Engine:
        for module in (counting, decoding, documents, reading):
            self._patch.setattr(module, "now_ms", lambda: self.now)
        clock = SimpleNamespace(monotonic=lambda: self.now / 1000)
        self._patch.setattr(reading, "time", clock)
        self._patch.setattr(plans, "time", clock)
        self._patch.setattr(plans, "_held", {})
        self._patch.setattr(counting, "_live", lambda job, limit: self._process.live)
        self._patch.setattr(reading, "READ_BYTES", 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    # Events of the engine.

    def discover(self) -> None:
        for number in range(len(self.sources)):
            for name in self._split(number, None):
                self.parts.setdefault((number, name.value), Part(None, None))

    def read(self, most: int = 500) -> bool:
        """Let a partition read, and say whether it has come further."""
        parts = self._partitions()
        if self.random.random() < 0.5:
            parts = parts[:1]
        # Now and then the runner splits off what is left while a call reads.
        claims = None if self.random.random() < 0.7 else self.random.randrange(3)
        return bool(parts) and self.read_from(self.random.choice(parts), most, claims)

    def read_from(self, part: tuple[int, object], most: int, claims: int | None = None) -> bool:
        number, name = part
        reading.READ_BYTES = self.random.randint(1, most)
        before = self.parts[part].restriction
        for output in self._split(number, name, claims):
            self._route((number, name), output)
        after = self.parts.get(part)
        return before is None or (after is not None and after.restriction.start > before.start)

    def deliver(self, number: int | None = None) -> None:
        """Deliver elements, all if no number is given."""
        while self.channels and (number is None or number > 0):
            channel = self.random.choice(list(self.channels))
            queue = self.channels[channel]
            value, at = queue.popleft()
            if not queue:
                del self.channels[channel]
            _, stage, key = channel
            self._call(stage, key, "process", at, element=(key, value))
            number = None if number is None else number - 1

    def tick(self, after: int) -> None:
        """Let time pass. Most of the timers that are due fire, and few others."""
        self.now += after
        for address, name, at in self._pending(beam.TimeDomain.REAL_TIME):
            due = at <= self.now * 1000
            if self.random.random() < (0.8 if due else 0.05):
                self._fire(address, name)

    def advance(self) -> None:
        """Let watermarks move on: at once, or as slowly as can be."""
        self.deliver()
        clocks = [part.clock for part in self.parts.values()]
        if not clocks or any(clock is None for clock in clocks):
            return
        until = max(min(reading.moment(clock.watermark) for clock in clocks), self.watermark)
        slowly = self.random.random() < 0.5
        while True:
            pending = self._pending(beam.TimeDomain.WATERMARK)
            first = min((at for _, _, at in pending), default=until.micros)
            self.watermark = Timestamp(micros=first) if slowly and first < until.micros else until
            self._fire_until(self.watermark)
            if self.watermark == until:
                return

    def checkpoint(self, _: int = 0) -> None:
        """Let everything that is under way arrive, and remember the moment."""
        self.deliver()
        self.checkpoints.append(self._snapshot())

    def roll_back(self, back: int = 1) -> None:
        """Return to a checkpoint; what processes have in memory stays."""
        del self.checkpoints[max(len(self.checkpoints) - back + 1, 1) :]
        keyed, parts, told = self.checkpoints[-1]
        self.phantoms.update(self.told[told:])
        self.keyed = {address: each.copy() for address, each in keyed.items()}
        self.parts = dict(parts)
        self.channels.clear()
        self.watermark = MIN_TIMESTAMP
        self.now += 1

    def crash(self, calls: int) -> None:
        """Fail in the middle of one of the next calls, and go back."""
        self._until_crash = calls
        try:
            self.read()
            self.deliver()
            self.tick(self.stream.linger)
            self.advance()
        except CrashError:
            pass
        finally:
            self._until_crash = None
        self.roll_back()

    def restart(self, at: int) -> None:
        """Lose what a process has in memory; go back to the last checkpoint."""
        self.processes[at % len(self.processes)] = Process(self.stream, self.sources)
        self.roll_back()

    def rescale(self, number: int) -> None:
        """Spread keys over so many processes from a savepoint on; idle ones stay alive."""
        self.checkpoint()
        while len(self.processes) < number:
            self.processes.append(Process(self.stream, self.sources))
        self.spread, self.salt = number, self.salt + 1
        self.roll_back()

    def finish(self) -> None:
        """Read all that there is, until every period is over."""
        self.read_all()
        self.now = max(self.now, AT_LAST)
        for after in (self.stream.idle + 1_000, 1_000):
            self.now += after
            for part in self._partitions():
                self.read_from(part, 1)
            self.discover()
            self.advance()
        for _ in range(3):
            self.settle(2 * self.stream.every + self.stream.linger)

    def read_all(self) -> None:
        self.discover()
        while any(self.read_from(part, 500) for part in self._partitions()):
            self.deliver(10)
            if self.random.random() < 0.3:
                self.advance()
        self.deliver()

    def settle(self, after: int) -> None:
        """Let time pass; all timers that are due fire."""
        self.now += after
        for address, name, at in self._pending(beam.TimeDomain.REAL_TIME):
            if at <= self.now * 1000:
                self._fire(address, name)
        self.deliver()

    # How it is done

    def _partitions(self) -> list[tuple[int, object]]:
        """Return what can be read, what is furthest behind in time first."""
        parts = [(part.clock or reading.Clock(), key) for key, part in self.parts.items()]
        return [key for _, key in sorted(parts, key=_watermark) if key[1] is not None]

    def _snapshot(self) -> Checkpoint:
        keyed = {address: each.copy() for address, each in self.keyed.items()}
        return Checkpoint(keyed, dict(self.parts), len(self.told))

    def _enter(self, *address: object) -> Process:
        """Return the process of an address, and let its memory be that of all modules."""
        place = zlib.crc32(repr((self.salt, address)).encode()) % self.spread
        self._process = self.processes[place]
        plans._held = self._process.plans
        return self._process

    def _taken(self, outputs: Iterator[Any] | None) -> list[Any]:
        """Return what a call yields, unless it crashes."""
        taken = []
        for output in outputs or ():
            taken.append(output)
            self._count_down()
        self._count_down()
        return taken

    def _count_down(self) -> None:
        if self._until_crash is not None:
            self._until_crash -= 1
            if self._until_crash < 0:
                raise CrashError

    def _split(self, number: int, name: object, claims: int | None = None) -> list[Any]:
        """Run a splittable DoFn on what is left of its element."""
        process = self._enter("read", number, name)
        dofn = process.discover[number] if name is None else process.read[number]
        defaults = inspect.signature(dofn.process).parameters
        provider = defaults["tracker"].default.restriction_provider or dofn
        estimators = defaults["estimator"].default.watermark_estimator_provider
        part = self.parts.get((number, name), Part(None, None))
        restriction = part.restriction
        if restriction is None:
            restriction = provider.initial_restriction(name)
        clock = part.clock or estimators.initial_estimator_state(name, restriction)
        estimator = estimators.create_watermark_estimator(clock)
        tracker = _Tracker(provider.create_tracker(restriction), estimator, claims)
        outputs = self._taken(dofn.process(name, tracker=tracker, estimator=estimator))
        if name is not None:
            outputs = self._decoded(process.decode, outputs)
        if tracker.left is None and not tracker.deferred:
            tracker.inner.check_done()
            del self.parts[number, name]
            return outputs
        if tracker.left is None:
            tracker.split()
        assert tracker.left is not None
        self.parts[number, name] = tracker.left
        return outputs

    def _decoded(self, decode: decoding.Decode, blocks: Sequence[Any]) -> list[Any]:
        """Return what a bundle of blocks is decoded to, some of it before the bundle ends."""
        decode.start_bundle()
        outputs = [
            output for each in blocks for output in decode.process(each.value, at=each.timestamp)
        ]
        return outputs + self._taken(decode.finish_bundle())

    def _call(self, stage: str, key: object, method: str, at: Timestamp, **more: Any) -> None:
        dofn = self._enter(stage, key).stages[stage]
        keyed = self.keyed.setdefault((stage, key), Keyed())
        outputs = self._taken(_bound(getattr(dofn, method), keyed, key, at)(**more))
        for output in outputs:
            self._route((stage, key), output)

    def _route(self, sender: object, output: Any) -> None:
        tag, value = None, output
        if isinstance(value, beam.pvalue.TaggedOutput):
            tag, value = value.tag, value.value
        at = self.watermark
        if isinstance(value, TimestampedValue | WindowedValue):
            value, at = value.value, value.timestamp
        of_reader = isinstance(sender, tuple) and isinstance(sender[0], int)
        if tag == decoding.REJECTED:
            self.rejects += quarantine.unpack(value)
        elif tag is None and not of_reader and sender[0] != "count":  # type: ignore[index]
            self._publish(*value)
        else:
            stage = "count" if of_reader and tag is None else ROUTES[tag]
            key, content = value
            channel = (sender, stage, key)
            self.channels.setdefault(channel, deque()).append((content, at))

    def _publish(self, name: bytes, body: bytes) -> None:
        document = parse(name, body)
        self.panes.append(document)
        self.told.append(name)
        self.phantoms.discard(name)
        held = self.documents.get(name)
        if held is None or document.revision > held.revision:
            self.documents[name] = document

    def _pending(self, domain: str) -> list[tuple[Address, str, int]]:
        found = [
            (address, name, at)
            for address, keyed in self.keyed.items()
            for name, at in keyed.timers.items()
            if _timer(STAGES[address[0]], name).time_domain == domain
        ]
        self.random.shuffle(found)
        return found

    def _fire(self, address: Address, name: str) -> None:
        at = self.keyed[address].timers.pop(name, None)
        if at is not None:
            callback = _timer(STAGES[address[0]], name)._attached_callback
            self._call(*address, callback.__name__, Timestamp(micros=at))

    def _fire_until(self, watermark: Timestamp) -> None:
        """Fire timers up to a watermark, those of the first stage first."""
        for counts in (True, False):
            while due := [
                (at, address, name)
                for address, name, at in self._pending(beam.TimeDomain.WATERMARK)
                if at <= watermark.micros < MAX_TIMESTAMP.micros
                and (address[0] == "count") == counts
            ]:
                _, address, _ = due[0]
                # The earliest timer of a key comes first.
                _, name = min((at, name) for at, of, name in due if of == address)
                self._fire(address, name)
            self.deliver()


def _watermark(part: tuple[reading.Clock, object]) -> int:
    return part[0].watermark


def _timer(kind: type, name: str) -> Any:
    (found,) = (
        spec
        for spec in vars(kind).values()
        if isinstance(spec, beam.transforms.userstate.TimerSpec) and spec.name == name
    )
    return found


def _bound(method: Callable[..., Any], keyed: Keyed, key: object, at: Timestamp) -> Any:
    """Return a method that is given what its parameters declare."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        declared = parameter.default
        if declared is beam.DoFn.TimestampParam:
            given[name] = at
        elif declared is beam.DoFn.KeyParam:
            given[name] = key
        elif isinstance(declared, beam.DoFn.StateParam):
            spec = declared.state_spec
            given[name] = _Cell(keyed, spec.name, isinstance(spec, BagStateSpec))
        elif isinstance(declared, beam.DoFn.TimerParam):
            given[name] = _Timer(keyed, declared.timer_spec.name)
    return lambda **more: method(**given, **more)
