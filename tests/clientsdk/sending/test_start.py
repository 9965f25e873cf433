"""A client with consent and something that waits starts its sender when it is made."""

from __future__ import annotations

import threading

import pytest
from device_plans import DAY, HOUR, START, metric, plan
from waiting import wait_until

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Settings
from clientsdk.sending.worker import NAME
from clientsdk.testing import FakeClock

PLAN = plan(metric("colour"))


def opened(path, publisher, clock, **options):
    return Client(PLAN, state=path, publisher=publisher, clock=clock, **options)


def senders():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def recorded(path):
    """The file of a device whose second level is still to come."""
    clock, publisher = FakeClock(START), MemoryPublisher()
    with opened(path, publisher, clock, background=False) as client:
        client.give_consent()
        client.record("colour", "a")
        clock.advance(hours=3)
        assert client.flush().sent == 1
    return path


def test_what_waits_is_sent_without_another_recording(recorded, monkeypatch):
    monkeypatch.setattr("clientsdk.sending.worker.SETTLING", 0.01)
    clock, publisher = FakeClock(START + DAY + 3 * HOUR), MemoryPublisher()
    with opened(recorded, publisher, clock):
        wait_until(lambda: publisher.messages)
        assert len(publisher.messages) == 1
    assert not senders()


def test_no_thread_starts_without_a_reason(recorded, tmp_path):
    clock, publisher = FakeClock(START + 3 * HOUR), MemoryPublisher()
    with opened(recorded, publisher, clock, background=False) as client:
        client.record("colour", "a")
        assert not senders()
    with opened(recorded, publisher, clock, settings=Settings(disabled=True)):
        assert not senders()
    for state in (tmp_path / "new.db", NO_LIFETIME_BOUND):
        with opened(state, publisher, clock) as client:
            client.record("colour", "a")
            client.give_consent()
            assert not senders()
    with opened(recorded, publisher, clock, background=False) as client:
        client.withdraw_consent()
    with opened(recorded, publisher, clock):
        assert not senders()
    assert publisher.messages == []


def test_nothing_is_published_before_it_is_due(recorded, monkeypatch):
    monkeypatch.setattr("clientsdk.sending.worker.SETTLING", 0.01)
    clock, publisher = FakeClock(START + 4 * HOUR), MemoryPublisher()
    with opened(recorded, publisher, clock) as client:
        wait_until(lambda: client._worker._asleep_until >= START)
        assert client._worker._asleep_until > START + DAY
    assert publisher.messages == []
