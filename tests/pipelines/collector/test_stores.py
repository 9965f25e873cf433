"""Stores of messages: what has been acknowledged is there, whatever fails."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from pipelines.collector.stores import KafkaStore, LogStore
from sotto.errors import PublishError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic
from sotto.log import writer
from sotto.log.reader import LogReader, LogRecord, partitions
from sotto.log.writer import LogWriter


def records(folder: Path) -> list[LogRecord]:
    (path,) = partitions(folder)
    return [each for each in LogReader(path).records() if isinstance(each, LogRecord)]


def stored(folder: Path) -> list[bytes]:
    return [each.body for each in records(folder)]


def test_what_follows_a_failure_to_force_to_disk_is_safe_from_it(tmp_path, monkeypatch) -> None:
    """The kernel may have dropped what it could not write: zeros are in the file some day."""
    store = LogStore(tmp_path, clock=lambda: 5000)
    store.write([(0, b"first")])
    (segment,) = tmp_path.rglob("*.seg")
    sound = segment.stat().st_size
    real, failures = writer.force, [True, True]

    def force(descriptor: int) -> None:
        if failures and failures.pop():
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(writer, "force", force)
    for _ in range(2):
        # The second time, the new segment cannot be begun either.
        with pytest.raises(PublishError, match="Input/output error"):
            store.write([(0, b"doubtful")])
    store.write([(0, b"later")])
    store.write([(0, b"last")])
    with segment.open("r+b") as file:
        file.seek(sound)
        file.write(bytes(segment.stat().st_size - sound))
    assert stored(tmp_path) == [b"first", b"later", b"last"]
    store.close()
    # Nor is a segment begun anew without need.
    store = LogStore(tmp_path, clock=lambda: 5000)
    store.write([(0, b"again")])
    store.close()
    assert stored(tmp_path)[-1] == b"again"
    assert len(list(tmp_path.rglob("*.seg"))) == 2


@pytest.mark.parametrize("dies", [False, True])
def test_a_disk_that_is_full_at_any_instant_loses_nothing(tmp_path, monkeypatch, dies) -> None:
    """Groups are cut at every byte; the process goes on, or dies there."""
    real_write, real_cut = os.pwrite, os.ftruncate
    room = [1 << 20]

    def write_at(descriptor: int, data: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real_write(descriptor, bytes(data)[: room[0]], offset)
        room[0] -= written
        return written

    def cut(descriptor: int, size: int) -> None:
        if dies and not room[0]:
            raise OSError(5, "Input/output error")
        real_cut(descriptor, size)

    monkeypatch.setattr(writer, "write_at", write_at)
    monkeypatch.setattr(writer.os, "ftruncate", cut)
    taken: list[bytes] = []
    store = LogStore(tmp_path, clock=lambda: 5000)
    for left in range(70):
        room[0] = left
        group = [(0, b"%d, %d" % (left, each)) for each in range(3)]
        with suppress(PublishError):
            store.write(group)
            taken += [body for _, body in group]
        room[0] = 1 << 20
        if dies:
            store.close()
            store = LogStore(tmp_path, clock=lambda: 5000)
        store.write([(0, b"sound %d" % left)])
        taken.append(b"sound %d" % left)
    store.close()
    found = list(LogReader(partitions(tmp_path)[0]).records())
    assert all(isinstance(each, LogRecord) for each in found)
    assert set(taken) <= {each.body for each in found}
    assert 70 < len(taken) < 140


class Producer:
    """One of Kafka's, which fails in a way that nobody expects."""

    def __init__(self) -> None:
        self.closed = False

    def send(self, *_: object, **__: object) -> None:
        raise RuntimeError("the thread that sends is gone")


def test_a_producer_that_fails_in_any_way_is_not_used_again(monkeypatch) -> None:
    pytest.importorskip("kafka")
    made: list[Producer] = []
    ended: list[object] = []
    store = KafkaStore(Broker("localhost:9092"), ReportTopic("reports", 1, 8))

    def connect() -> Producer:
        made.append(Producer())
        return made[-1]

    monkeypatch.setattr(store, "_connect", connect)
    monkeypatch.setattr("sotto.kafka.producers.end_producer", ended.append)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            store.write([(3, b"message")])
    assert len(made) == 2
    assert ended == made


YEAR = 366 * 86_400_000


class Clocks:
    """A wall clock that can be set, and a steady one."""

    def __init__(self, wall: int) -> None:
        self.wall, self.steady = wall, 77

    def go(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms

    def store(self, folder: Path, warned: list[str]) -> LogStore:
        return LogStore(
            folder, clock=lambda: self.wall, steady=lambda: self.steady, warn=warned.append
        )


@pytest.mark.parametrize("leap", [9 * YEAR, 3_600_000, -3_600_000])
def test_nothing_is_written_while_the_clock_has_leapt(tmp_path, leap):
    clocks = Clocks(20 * YEAR)
    store = clocks.store(tmp_path, [])
    store.write([(0, b"a")])
    # A machine that sleeps, and one whose clock is set a little.
    clocks.go(5_000_000)
    clocks.wall += 60_000
    store.write([(0, b"b")])
    clocks.wall += leap
    for _ in range(2):
        with pytest.raises(PublishError, match="leapt"):
            store.write([(0, b"c")])
        clocks.go(5_000_000)
    clocks.wall -= leap
    store.write([(0, b"d")])
    store.close()
    times = [each.append - 20 * YEAR for each in records(tmp_path)]
    assert times == [0, 5_060_000, 15_060_000]


def test_a_clock_that_leapt_while_nothing_ran_is_known_by_the_last_record(tmp_path):
    clocks = Clocks(20 * YEAR)
    store = clocks.store(tmp_path, [])
    store.write([(0, b"a")])
    store.close()
    clocks.wall += 9 * YEAR
    store = clocks.store(tmp_path, [])
    with pytest.raises(PublishError, match="year"):
        store.write([(0, b"b")])
    clocks.wall -= 9 * YEAR
    store.write([(0, b"c")])
    store.close()
    assert stored(tmp_path) == [b"a", b"c"]


def test_a_last_record_from_the_future_is_named_and_stops_nothing(tmp_path):
    """Its reader rejects it; to wait for its time would end collection for years."""
    with LogWriter(tmp_path, "collector") as writer:
        writer.append(b"a", 30 * YEAR)
    warned: list[str] = []
    store = Clocks(20 * YEAR).store(tmp_path, warned)
    store.write([(0, b"b")])
    store.close()
    assert [each.split(" bears")[0] for each in warned] == [
        "the last record of partition 'collector'"
    ]
    (path,) = partitions(tmp_path)
    (block, *rest) = LogReader(path).blocks(trusted=21 * YEAR)
    found = [*block.append, *(time for each in rest for time in each.append)]
    assert found == [20 * YEAR]
