"""Publishers: the contract that each passes, and what the embedded log's adds."""

from __future__ import annotations

import pytest
from device_plans import START, counted, metric, plan, reports

from clientsdk import EmbeddedLogPublisher, MemoryPublisher, Publisher
from clientsdk.publishers import Buffered
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PublishError
from sotto.log import LogReader, LogWriter, lanes


def records(directory):
    return [
        record
        for lane in lanes(directory)
        for reader in (LogReader(lane),)
        for record in reader.records(0, reader.end())
    ]


@pytest.fixture(params=["memory", "batch", "always", "never"])
def made(request, tmp_path):
    """A publisher, and how to read what it took."""
    if request.param == "memory":
        publisher = MemoryPublisher()
        return publisher, lambda: [body for _, body in publisher.messages]
    publisher = EmbeddedLogPublisher(tmp_path / "log", fsync=request.param)
    return publisher, lambda: [record.body for record in records(tmp_path / "log")]


def test_the_contract(made):
    publisher, taken = made
    checked: Publisher = publisher
    for number in range(20):
        checked.publish(number % 8, bytes([number + 1]) * 40)
    checked.close()
    checked.close()
    assert sorted(taken()) == sorted(bytes([number + 1]) * 40 for number in range(20))


def test_what_is_buffered_has_a_sync():
    assert not isinstance(MemoryPublisher(), Buffered)
    assert isinstance(EmbeddedLogPublisher("nowhere"), Buffered)


def test_nothing_is_made_before_the_first_message(tmp_path):
    publisher = EmbeddedLogPublisher(tmp_path / "log")
    publisher.sync()
    publisher.close()
    assert not (tmp_path / "log").exists()


def test_append_times_are_the_clocks(tmp_path):
    publisher = EmbeddedLogPublisher(tmp_path, lane="one", clock=FakeClock(77))
    publisher.publish(0, b"x")
    publisher.close()
    assert [(record.append, record.body) for record in records(tmp_path)] == [(77, b"x")]
    assert [lane.name for lane in lanes(tmp_path)] == ["one"]


def test_two_publishers_have_two_lanes(tmp_path):
    for _ in range(2):
        publisher = EmbeddedLogPublisher(tmp_path)
        publisher.publish(0, b"x")
    assert len(lanes(tmp_path)) == 2


def test_a_lane_that_another_holds_is_an_error_of_publishing(tmp_path):
    with LogWriter(tmp_path, "one"):
        client = SeededClient(
            plan(metric("colour")),
            seed=1,
            clock=FakeClock(START),
            publisher=EmbeddedLogPublisher(tmp_path, lane="one"),
            leaks_values=True,
        )
        client.record("colour", "a")
        client.clock.advance(hours=3)
        result = client.flush()
        assert (result.sent, result.remaining) == (0, 1)
        assert isinstance(result.error, PublishError)
    assert client.flush().sent == 1
    client.publisher.close()


def test_a_failed_sync_delivers_nothing_and_a_new_lane_is_opened(tmp_path, monkeypatch):
    publisher = EmbeddedLogPublisher(tmp_path, lane="one")
    client = SeededClient(
        plan(metric("colour")),
        seed=1,
        clock=FakeClock(START),
        publisher=publisher,
        leaks_values=True,
    )
    client.record("colour", "a")
    client.clock.advance(hours=3)
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.os.fsync", _broken)
        # Opening the lane forces its directory to disk: that fails first.
        assert isinstance(client.flush().error, PublishError)
    publisher.publish(0, b"opened before the disk breaks")
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.os.fsync", _broken)
        result = client.flush()
        assert (result.sent, result.remaining) == (0, 1)
        assert isinstance(result.error, PublishError)
    assert client.flush().sent == 1
    publisher.close()
    assert len(lanes(tmp_path)) == 2
    bodies = [record.body for record in records(tmp_path) if record.body[:2] == b"SO"]
    assert len(bodies) == 2
    assert len(set(bodies)) == 1


@pytest.mark.parametrize(
    ("fsync", "calls"), [("always", ["fsync"]), ("batch", ["pwrite", "ftruncate"])]
)
def test_after_a_fault_in_publishing_a_new_lane_takes_everything(
    tmp_path, monkeypatch, fsync, calls
):
    publisher = EmbeddedLogPublisher(tmp_path, lane="one", fsync=fsync)
    publisher.publish(0, b"before")
    with monkeypatch.context() as patch:
        for call in calls:
            patch.setattr(f"sotto.log.os.{call}", _broken)
        with pytest.raises(PublishError, match="not written"):
            publisher.publish(0, b"lost")
    # What was taken before the fault is not vouched for, so it comes again.
    with pytest.raises(PublishError, match="before a fault"):
        publisher.sync()
    publisher.publish(0, b"before")
    publisher.sync()
    publisher.close()
    assert len(lanes(tmp_path)) == 2
    assert [r.body for r in records(tmp_path) if hasattr(r, "body")].count(b"before") == 2


def test_a_full_disk_keeps_the_lane(tmp_path, monkeypatch):
    publisher = EmbeddedLogPublisher(tmp_path, lane="one")
    publisher.publish(0, b"first")
    with monkeypatch.context() as patch:
        patch.setattr("sotto.log.os.pwrite", _broken)
        with pytest.raises(PublishError, match="not written"):
            publisher.publish(0, b"second")
    publisher.sync()
    publisher.publish(0, b"second")
    publisher.close()
    assert [record.body for record in records(tmp_path)] == [b"first", b"second"]
    assert len(lanes(tmp_path)) == 1


def _broken(*_):
    raise OSError(5, "Input/output error")


def test_a_device_reports_through_the_log(tmp_path):
    publisher = EmbeddedLogPublisher(tmp_path, fsync="never", clock=FakeClock(START))
    client = SeededClient(
        plan(metric("colour")),
        seed=1,
        clock=FakeClock(START),
        publisher=publisher,
        leaks_values=True,
    )
    client.record("colour", "a")
    for _ in range(9):
        client.clock.advance(days=1)
        client.flush()
    publisher.close()
    sent = reports([(0, record.body) for record in records(tmp_path)])
    assert sum(counted(sent, [client.plan]).values()) == client.ledger().spent
