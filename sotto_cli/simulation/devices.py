"""Plays recordings back: one device after another, each with the real SDK and a simulated clock.

A device lives through its own rows in time order. Between them it wakes to send, once in each
slot of ``send_every``, whenever something is due, and after its last row its clock runs on until
every level is delivered. A row is a use of the app and a wake is none, so that what a device
measures follows from its rows.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, fields
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from clientsdk import NO_LIFETIME_BOUND, Client, Settings
from clientsdk.testing import FakeClock
from mechanisms.digests import sha256
from mechanisms.randomness import Source, SystemSource, uniform_below
from mechanisms.testing import SeededSource
from sotto.log.writer import LogWriter
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import GROUP, HEADER, ROW
from sotto_cli.simulation.cells import Cell, feeds
from sotto_cli.simulation.device import Device
from sotto_cli.simulation.table import Recordings

DAY = 86_400_000
EMPTY_CELL = "empty cell"
BUFFER_BYTES = 64 << 20
#: The cost of a buffered message beside its bytes: a tuple, an integer and an object header.
_OVERHEAD = 160
#: Settings of every device, whatever the environment says but for the three variables about
#: privacy.
SETTINGS = Settings(background=False)


@dataclass(frozen=True)
class Schedule:
    """When devices answer and send."""

    #: Milliseconds. In each slot of this length a device wakes at most once, at a moment drawn anew
    #: for each slot, so that times of arrival do not distinguish devices.
    send_every: int = DAY
    #: Nothing happens from this time (ms) on; None: until everything is delivered.
    until: int | None = None
    #: Whether devices answer in every period, whatever the plan's panels.
    every_period: bool = False


@dataclass(frozen=True)
class AuditLine:
    """One device's ledger for one budget period, in micro-epsilon."""

    device: int
    period: int
    #: Hexadecimal, as seen in what was sent; empty if nothing was.
    pseudonym: str
    spent: int
    reserved: int


@dataclass
class Played:
    """The result of a fleet, or of a part of it; parts add up with :meth:`merge`."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    audit: list[AuditLine] = field(default_factory=list)
    unsent: int = 0
    messages: int = 0
    written: int = 0

    def merge(self, other: Played) -> None:
        """Add another part."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def lines(self, plan: CompiledPlan, recordings: Recordings) -> list[str]:
        """Return what was played back, in lines."""
        skipped = sum(recordings.skipped.values())
        lines = [
            f"{recordings.rows:,} rows, {recordings.devices:,} devices, {skipped:,} rows skipped",
            *(f"  {count:>11,}  {reason}" for reason, count in recordings.skipped.most_common()),
        ]
        heads = sorted({outcome for _, outcome in self.outcomes})
        if heads:
            names = list(dict.fromkeys(feed.name for feed in feeds(plan)))
            width = max(map(len, names))
            lines.append("recorded" + " " * (width - 6) + "".join(f"{head:>14}" for head in heads))
            for name in names:
                counts = "".join(f"{self.outcomes[name, head]:>14,}" for head in heads)
                lines.append(f"  {name:<{width}}{counts}")
        if self.skipped:
            lines.append(f"{sum(self.skipped.values()):,} cells skipped")
            lines += [
                f"  {count:>11,}  {metric}: {reason}"
                for (metric, reason), count in self.skipped.most_common()
            ]
        spent = sum(line.spent for line in self.audit)
        reserved = sum(line.reserved for line in self.audit)
        lines += [
            f"{self.messages:,} messages, {self.written / 1e6:,.1f} MB; "
            f"{self.unsent:,} values not sent at all levels",
            f"devices reserved epsilon {reserved / 1e6:,.3f} and spent {spent / 1e6:,.3f}",
        ]
        return lines


class SortedLog:
    """Messages that come in any order, as partitions of a log that are each sorted by append time.

    A full buffer, of so many bytes of memory, becomes a partition of its own, ``<prefix>-0000`` and
    so on; the reader merges partitions by append time.

    Examples
    --------
    >>> import tempfile
    >>> from sotto.log.reader import LogReader, partitions
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with SortedLog(Path(directory), "devices") as log:
    ...         log.add(9, b"later")
    ...         log.add(5, b"sooner")
    ...     reader = LogReader(partitions(directory)[0])
    ...     print([(r.append, r.body) for r in reader.records(0, reader.end())])
    [(5, b'sooner'), (9, b'later')]
    """

    def __init__(self, directory: Path, prefix: str, buffer_bytes: int = BUFFER_BYTES) -> None:
        #: Messages taken, and their bytes.
        self.messages = self.written = 0
        self._directory, self._prefix, self._limit = directory, prefix, buffer_bytes
        self._buffer: list[tuple[int, bytes]] = []
        self._held = self._partitions = 0

    def add(self, append: int, message: bytes) -> None:
        """Take one message with its append time in milliseconds."""
        self._buffer.append((append, message))
        self._held += len(message) + _OVERHEAD
        self.messages += 1
        self.written += len(message)
        if self._held > self._limit:
            self.spill()

    def spill(self) -> None:
        """Write the buffered messages as a partition; raises PublishError if the log takes none."""
        if not self._buffer:
            return
        self._buffer.sort(key=itemgetter(0))
        name = f"{self._prefix}-{self._partitions:04d}"
        with LogWriter(self._directory, name) as writer:
            for append, message in self._buffer:
                writer.append(message, append)
        self._partitions += 1
        self._held = 0
        self._buffer.clear()

    def __enter__(self) -> SortedLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.spill()


class DevicePublisher:
    """A device's publisher, which puts messages into the log."""

    def __init__(self, clock: FakeClock, log: SortedLog, period: int) -> None:
        self._clock, self.log, self.period = clock, log, period
        #: By budget period, hexadecimal, as seen in what was sent.
        self.pseudonyms: dict[int, str] = {}

    def publish(self, shard: int, message: bytes) -> None:
        """Send one message at the time of the device's clock."""
        _, pseudonym, _, event = ROW.unpack_from(message, HEADER.size + GROUP.size)
        self.pseudonyms[event // self.period] = pseudonym.hex()
        self.send(self._clock.now, message)

    def send(self, now: int, message: bytes) -> None:
        """Put a message into the log at a time, ms."""
        self.log.add(now, message)

    def close(self) -> None:
        """Nothing to close: the log is the fleet's."""


class Fleet:
    """Plays devices back, one after another, into a log.

    With a ``seed`` what devices draw, and when they send, follows from that and from their numbers.
    """

    #: The client of each device.
    device: ClassVar[type[Device]] = Device

    def __init__(
        self,
        plan: CompiledPlan,
        recordings: Recordings,
        schedule: Schedule,
        log: SortedLog,
        seed: int | None = None,
    ) -> None:
        self._plan, self._recordings, self._schedule = plan, recordings, schedule
        self._log, self._seed = log, seed
        #: When devices send, where that follows from a seed.
        self._jitter: random.Random | None = None
        #: The source of the next device's draws.
        self.source: Source = SystemSource()
        self._times = recordings.time.tolist()
        #: Each call of the client, and what the rows hold for it.
        self._columns = [(each, recordings.values[each.values].tolist()) for each in feeds(plan)]
        self.played = Played()

    def publisher(self, number: int, clock: FakeClock) -> DevicePublisher:
        """Return the publisher of the device of a number."""
        return DevicePublisher(clock, self._log, self._plan.period)

    def play(self, device: int, number: int) -> None:
        """Play back the rows of ``device``, known to the audit as ``number``."""
        start, end = self._recordings.starts[device : device + 2].tolist()
        clock = FakeClock(self._times[start])
        publisher = self.publisher(number, clock)
        self._begin_draws(number)
        with self.device(
            self._plan,
            state=NO_LIFETIME_BOUND,
            publisher=publisher,
            clock=clock,
            settings=SETTINGS,
            source=self.source,
        ) as client:
            if self._schedule.every_period:
                client.ignore_panels()
            self._set_segments(client, start)
            client.give_consent()
            for entry in range(start, end):
                now = self._times[entry]
                if self._schedule.until is not None and now >= self._schedule.until:
                    break
                self._send(client, clock, now)
                clock.now = now
                self._set_segments(client, entry)
                client.use()
                self.record(client, entry)
                client.rest()
            self._send(client, clock, self._schedule.until)
            ledger = client.ledger()
        self.played.unsent += len(ledger.pending)
        self.played.audit += [
            AuditLine(
                number,
                period.number,
                publisher.pseudonyms.get(period.number, ""),
                period.spent,
                period.reserved,
            )
            for period in ledger.periods
        ]

    def _begin_draws(self, number: int) -> None:
        if self._seed is not None:
            # Each device has its own, so that it does not matter which process plays it.
            seed = f"{self._seed}/{number}".encode()
            self.source = SeededSource(int.from_bytes(sha256(seed), "little"))
            self._jitter = random.Random(seed)

    def record(self, client: Client, entry: int) -> None:
        """Record the values of one row."""
        played = self.played
        for feed, values in self._columns:
            value, [metric, *_] = values[entry], feed.metrics
            if isinstance(value, Cell):
                played.skipped[feed.name, value.value] += 1
                continue
            if value is None and (metric.measure or not metric.missing):
                played.skipped[feed.name, EMPTY_CELL] += 1
                continue
            played.outcomes[feed.name, getattr(client, feed.method)(feed.name, value)] += 1

    def _set_segments(self, client: Client, entry: int) -> None:
        if segments := self._recordings.segments:
            client.set_segments({name: said[entry] for name, said in segments.items()})

    def _send(self, client: Client, clock: FakeClock, until: int | None) -> None:
        """Wake and send whatever falls due before ``until``."""
        while (due := client.next_due()) is not None:
            wake = self._wake(max(due, clock.now))
            if until is not None and wake >= until:
                return
            clock.now = wake
            result = client.flush()
            if result.error is not None:
                raise result.error

    def _wake(self, due: int) -> int:
        """Return a random moment of the first slot in which something is due, not before it."""
        every = self._schedule.send_every
        end = due - due % every + every
        if self._jitter is None:
            return due + uniform_below(end - due, self.source)
        return self._jitter.randrange(due, end)
