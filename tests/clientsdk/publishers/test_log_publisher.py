"""Publishers: the contract that each passes, and what the embedded log's adds."""

from __future__ import annotations

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from device_plans import DAY, START, WEEK, metric, plan, reporter, seeded
from messages import message, pseudonym
from scripts import logged, start
from waiting import wait_until

from clientsdk import EmbeddedLogPublisher, MemoryPublisher
from clientsdk.publishers import Buffered, log
from clientsdk.publishers.log import LIMIT
from clientsdk.testing import FakeClock
from sotto.errors import PublishError
from sotto.log.reader import LogReader, partitions
from sotto.wire.format import decode_message


def test_what_is_buffered_has_a_sync():
    assert not isinstance(MemoryPublisher(), Buffered)
    assert isinstance(EmbeddedLogPublisher("nowhere"), Buffered)


def test_a_repeated_sync_forces_nothing_again(tmp_path, monkeypatch):
    publisher, forced = EmbeddedLogPublisher(tmp_path), []
    publisher.publish(0, message())
    monkeypatch.setattr("sotto.log.writer.os.fsync", forced.append)
    for _ in range(2):
        publisher.sync()
    assert len(forced) == 1
    publisher.close()


def test_append_times_are_the_clocks(tmp_path):
    publisher = EmbeddedLogPublisher(tmp_path, clock=FakeClock(77))
    publisher.publish(0, message())
    publisher.close()
    assert [(record.append, record.body) for record in logged(tmp_path)] == [(77, message())]


def test_a_failed_sync_delivers_nothing_and_a_new_partition_is_opened(tmp_path, monkeypatch):
    publisher = EmbeddedLogPublisher(tmp_path)
    client = reporter(publisher)
    client.clock.advance(hours=3)
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.writer.os.fsync", _broken)
        # Opening the partition forces its directory to disk: that fails first, and leaves nothing.
        assert isinstance(client.flush().error, PublishError)
    assert partitions(tmp_path) == ()
    assert client.flush().sent == 1
    client.clock.advance(days=1)
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.writer.os.fsync", _broken)
        result = client.flush()
        assert (result.sent, result.remaining) == (0, 1)
        assert isinstance(result.error, PublishError)
    assert client.flush().sent == 1
    publisher.close()
    assert len(partitions(tmp_path)) == 2
    bodies = [record.body for record in logged(tmp_path)]
    assert len(bodies) == 3
    assert len(set(bodies)) == 2


@pytest.mark.parametrize(
    ("fsync", "calls"), [("always", ["fsync"]), ("batch", ["pwrite", "ftruncate"])]
)
def test_after_a_fault_in_publishing_a_new_partition_takes_everything(
    tmp_path, monkeypatch, fsync, calls
):
    publisher = EmbeddedLogPublisher(tmp_path, fsync=fsync)
    publisher.publish(0, message(b"before"))
    with monkeypatch.context() as patch:
        for call in calls:
            patch.setattr(f"sotto.log.writer.os.{call}", _broken)
        with pytest.raises(PublishError, match="not written"):
            publisher.publish(0, message(b"lost"))
    # Messages from before the fault may not be on disk, so they come again.
    with pytest.raises(PublishError, match="before a fault"):
        publisher.sync()
    publisher.publish(0, message(b"before"))
    publisher.sync()
    publisher.close()
    assert len(partitions(tmp_path)) == 2
    assert [r.body for r in logged(tmp_path) if hasattr(r, "body")].count(message(b"before")) == 2


@pytest.fixture
def other():
    """A thread other than the test's, as an executor."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def breaking(publisher, name):
    """An fsync that fails for the open partition of a pseudonym."""
    real, broken = os.fsync, os.fstat(publisher._open[name]._segment).st_ino

    def fsync(descriptor):
        return _broken() if os.fstat(descriptor).st_ino == broken else real(descriptor)

    return fsync


@pytest.mark.parametrize("how", ["sync", "room", "publish", "close"])
@pytest.mark.parametrize("shared", [False, True])
def test_who_published_to_a_partition_that_failed_learns_it(
    tmp_path, monkeypatch, other, how, shared
):
    """Whoever does what makes it fail."""
    monkeypatch.setattr(log, "LIMIT", 2)
    publisher = EmbeddedLogPublisher(tmp_path, fsync="always" if how == "publish" else "batch")
    first, second, third = (message(pseudonym=pseudonym(each)) for each in range(3))
    other.submit(publisher.publish, 0, first).result()
    if shared:
        publisher.publish(0, first)
    publisher.publish(0, second)
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.writer.os.fsync", breaking(publisher, pseudonym(0)))
        if how == "room":
            publisher.publish(0, third)
        elif how == "publish":
            with pytest.raises(PublishError, match="not written"):
                publisher.publish(0, first)
        last = publisher.close if how == "close" else publisher.sync
        with pytest.raises(PublishError, match="before a fault") if shared else nullcontext():
            last()
    with pytest.raises(PublishError, match="before a fault"):
        other.submit(publisher.sync).result()
    publisher.sync()
    other.submit(publisher.sync).result()
    publisher.close()


def test_a_full_disk_keeps_the_partition(tmp_path, monkeypatch):
    publisher = EmbeddedLogPublisher(tmp_path)
    publisher.publish(0, message(b"first"))
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.writer.os.pwrite", _broken)
        with pytest.raises(PublishError, match="not written"):
            publisher.publish(0, message(b"second"))
    publisher.sync()
    publisher.publish(0, message(b"second"))
    publisher.close()
    assert [record.body for record in logged(tmp_path)] == [message(b"first"), message(b"second")]
    assert len(partitions(tmp_path)) == 1


def _broken(*_):
    raise OSError(5, "Input/output error")


def held(directory):
    """Lane to the pseudonyms of its messages."""
    return {
        lane.name: {
            row.pseudonym
            for record in LogReader(lane).records()
            for run in decode_message(record.body).groups
            for row in run.rows
        }
        for lane in partitions(directory)
    }


def test_no_partition_and_no_name_joins_two_pseudonyms_of_a_device(tmp_path):
    publisher = EmbeddedLogPublisher(tmp_path, fsync="never", clock=FakeClock(START))
    client = seeded(
        plan(metric("colour", "every", 30), ceilings={"period": 10**9, "lifetime": 10**9}),
        publisher=publisher,
        leaks_values=True,
    )
    for _ in range(3):
        client.record("colour", "a")
        client.clock.advance(days=7)
        client.flush()
    # After an outage, the reports of several pseudonyms in one flush.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sotto.log.writer.os.pwrite", _broken)
        for _ in range(3):
            client.record("colour", "a")
            client.clock.advance(ms=WEEK - DAY)
            assert client.flush().error is not None
            client.clock.advance(days=1)
    assert client.flush().sent == 2
    publisher.close()
    found = held(tmp_path)
    assert all(len(pseudonyms) == 1 for pseudonyms in found.values())
    assert len(set().union(*found.values())) >= 5
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in found)
    assert all(path.suffix == ".seg" for lane in partitions(tmp_path) for path in lane.iterdir())


def times_of(directory):
    """When the directory and what is in each partition were changed, by the file system."""
    paths = [Path(directory), *partitions(directory)]
    paths += [path for lane in partitions(directory) for path in lane.iterdir()]
    return {path: (path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths}


@pytest.mark.parametrize("fsync", ["batch", "always", "never"])
def test_closing_changes_no_time_in_the_log(tmp_path, fsync):
    log = tmp_path / "log"
    publisher = EmbeddedLogPublisher(log, fsync=fsync)
    for each in range(3):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    before = times_of(log)
    wait_for_a_later_time_than(before, tmp_path / "probe")
    publisher.close()
    assert times_of(log) == before
    assert len(before) == 1 + 3 * 2


def wait_for_a_later_time_than(times, probe):
    """Wait until the file system's clock, which may be a coarse one, has moved on."""
    latest = max(max(each) for each in times.values())

    def moved_on():
        probe.write_bytes(b"")
        return probe.stat().st_mtime_ns > latest

    wait_until(moved_on)


@pytest.mark.real_randomness
def test_a_process_that_is_killed_leaves_nothing_but_segments(tmp_path):
    code = """
import signal
publisher = EmbeddedLogPublisher(path)
for each in (b"a", b"b"):
    publisher.publish(0, message(pseudonym=each * 16))
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, tmp_path)
    process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    found = partitions(tmp_path)
    assert [[path.suffix for path in lane.iterdir()] for lane in found] == [[".seg"]] * 2


def test_a_pseudonym_keeps_its_partition_however_many_others_there_are(tmp_path):
    publisher = EmbeddedLogPublisher(tmp_path, fsync="never")
    for _ in range(3):
        for each in range(LIMIT + 1):
            publisher.publish(0, message(pseudonym=pseudonym(each)))
            assert len(publisher._open) <= LIMIT
        publisher.sync()
    publisher.close()
    publisher.publish(0, message(pseudonym=pseudonym(0)))
    publisher.close()
    found = held(tmp_path)
    assert sorted(min(each) for each in found.values()) == sorted(map(pseudonym, range(LIMIT + 1)))
    assert len(logged(tmp_path)) == 3 * (LIMIT + 1) + 1


def test_of_the_partitions_that_were_closed_the_last_ones_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LIMIT", 1)
    monkeypatch.setattr(log, "REMEMBERED", 2)
    publisher = EmbeddedLogPublisher(tmp_path, fsync="never")
    for each in (0, 1, 2, 3, 2, 0):
        publisher.publish(0, message(pseudonym=pseudonym(each)))
    publisher.close()
    assert sorted(map(min, held(tmp_path).values())) == sorted(map(pseudonym, (0, 0, 1, 2, 3)))
    assert len(logged(tmp_path)) == 6


def test_a_partition_that_was_removed_is_not_begun_again(tmp_path, monkeypatch):
    """An aggregator knows it by its name, and up to where it has read."""
    monkeypatch.setattr(log, "LIMIT", 1)
    publisher = EmbeddedLogPublisher(tmp_path)
    publisher.publish(0, message(pseudonym=pseudonym(0)))
    (removed,) = partitions(tmp_path)
    publisher.publish(0, message(pseudonym=pseudonym(1)))
    shutil.rmtree(removed)
    publisher.publish(0, message(pseudonym=pseudonym(0)))
    publisher.close()
    assert sorted(map(min, held(tmp_path).values())) == sorted(map(pseudonym, (0, 1)))
    assert removed not in partitions(tmp_path)


def test_a_full_disk_leaves_no_empty_partitions(tmp_path, monkeypatch):
    publisher = EmbeddedLogPublisher(tmp_path)
    real = os.pwrite

    def full_after_the_header(descriptor, data, offset):
        return real(descriptor, data, offset) if offset == 0 else _broken()

    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.writer.os.pwrite", full_after_the_header)
        for each in range(LIMIT + 3):
            with pytest.raises(PublishError, match="not written"):
                publisher.publish(0, message(pseudonym=pseudonym(each)))
    publisher.publish(0, message(pseudonym=pseudonym(0)))
    publisher.close()
    assert len(partitions(tmp_path)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.writer.os.pwrite", _broken)
        with pytest.raises(PublishError, match="opened"):
            publisher.publish(0, message())
    assert len(partitions(tmp_path)) == 1
