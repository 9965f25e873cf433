"""The outcome of a value: consent, time, counts, budget, types."""

from __future__ import annotations

import os

import pytest
from device_plans import HOUR, START, VAST, metric, plan, threadless

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome, draws
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PlanError, StoreError


def test_events_are_truncated_and_due_after_a_step_with_jitter():
    clock = FakeClock(START + 5 * HOUR + 123)
    client = SeededClient(plan(metric("colour", "every", 200), ceilings=VAST), seed=1, clock=clock)
    for _ in range(200):
        client.record("colour", "a")
    chains = client.ledger().pending
    assert {chain.event for chain in chains} == {START + 5 * HOUR}
    jitters = [chain.due - (START + 5 * HOUR) - HOUR for chain in chains]
    assert 0 <= min(jitters) < HOUR / 20
    assert HOUR * 19 / 20 < max(jitters) < HOUR


def test_a_plan_may_come_as_object_bytes_or_file(tmp_path):
    compiled = plan()
    path = tmp_path / "plan.json"
    path.write_bytes(compiled.to_json())
    for given in (compiled, compiled.to_json(), path, str(path)):
        with Client(given, state=NO_LIFETIME_BOUND, publisher=MemoryPublisher()) as client:
            assert client.plan == compiled
    with pytest.raises(PlanError, match="read"):
        Client(tmp_path / "none.json", state=NO_LIFETIME_BOUND, publisher=MemoryPublisher())


def test_a_closed_client_refuses_and_says_so(caplog):
    client = SeededClient(plan(), seed=1, clock=FakeClock(START))
    client.close()
    client.close()
    for _ in range(2):
        assert client.record("colour", "a") is Outcome.CLOSED
    said = [each.getMessage() for each in caplog.records]
    assert said == ["values are being dropped: the client is closed: make another one"]
    for call in (client.flush, client.ledger, client.next_due, client.give_consent):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_what_a_recording_asks_of_the_file_and_of_the_system(monkeypatch, tmp_path):
    """Five statements in one transaction, and random bits once: what it takes follows from that."""
    asked, seen = [], []
    system = os.urandom
    for module in (draws, os):
        monkeypatch.setattr(module, "urandom", lambda size: asked.append(size) or system(size))
    document = plan(metric("colour", "every", 9), ceilings=VAST)
    client = threadless(document, state=tmp_path / "device.db")
    client.give_consent()
    assert client.record("colour", "a") is Outcome.ACCEPTED
    client._store.database.connection.set_trace_callback(lambda text: seen.append(text.split()[:3]))
    asked.clear()
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert seen == [
        ["BEGIN", "IMMEDIATE"],
        ["PRAGMA", "data_version"],
        ["INSERT", "INTO", "chain"],
        ["INSERT", "INTO", "ledger"],
        ["COMMIT"],
    ]
    assert asked == [96]


def test_the_sdk_randomizes_a_value_that_a_reservoir_does_not_keep(monkeypatch):
    """The same draws either way, so that the time taken tells little."""
    client = SeededClient(plan(metric("colour", "reservoir")), seed=3, clock=FakeClock(START))
    mechanism = client.plan.metric("colour").mechanism
    drawn = []
    draw = type(mechanism).draw
    monkeypatch.setattr(
        type(mechanism), "draw", lambda *given: drawn.append(given[2]) or draw(*given)
    )
    for _ in range(30):
        client.record("colour", "a")
    assert len(set(drawn)) == 30
