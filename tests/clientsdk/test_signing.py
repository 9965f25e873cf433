"""Signed messages: whose they are, that they are sent again as they were, and what is kept."""

from __future__ import annotations

import sys

import pytest
from device_invariants import refused
from device_plans import START, WEEK, metric, plan

from clientsdk import Outcome
from clientsdk.store import device_secrets
from clientsdk.testing import FakeClock, SeededClient

EVERY = metric("colour", "every", 3)


def device(*metrics, state=None, clock=None, signed=True, **changes):
    # A plan without signatures has no such field.
    signs = {"authentication": "required"} if signed else {}
    compiled = plan(*metrics or (EVERY,), **signs, **changes)
    return SeededClient(compiled, seed=1, state=state, clock=clock or FakeClock(START))


def sent_by(client):
    return [body for _, body in client.publisher.messages]


def test_an_identity_shows_neither_its_pseudonym_nor_its_seed():
    found = device_secrets.identity("fleet.example", -3, bytes(range(32)), signed=True)
    assert found.seed.hex() not in repr(found)
    assert found.pseudonym.hex() not in repr(found)


@pytest.fixture
def not_installed(monkeypatch):
    def hide():
        for name in list(sys.modules):
            if name.partition(".")[0] == "cryptography":
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "cryptography", None)

    return hide


def test_without_the_package_there_is_no_client(path, not_installed):
    not_installed()
    with pytest.raises(ModuleNotFoundError, match="sottovoce-tools"):
        device(state=path)
    assert not path.exists()
    assert device(state=path, signed=False).record("colour", "a") is Outcome.ACCEPTED


def test_chains_to_be_signed_wait_where_the_package_is_missing(path, monkeypatch, not_installed):
    clock = FakeClock(START)
    with device(state=path, clock=clock, plan="closed") as client:
        client.record("colour", "a")
    with monkeypatch.context():
        not_installed()
        with device(state=path, clock=clock, plan="open", signed=False) as client:
            client.record("colour", "a")
            clock.advance(hours=3)
            result = client.flush()
            assert (result.sent, result.remaining) == (1, 1)
            assert "sottovoce-tools[signatures]" in str(result.error)
    monkeypatch.undo()
    with device(state=path, clock=clock, plan="closed") as client:
        assert client.flush().sent == 1


def test_a_message_and_its_signature_are_no_longer_than_allowed(monkeypatch):
    monkeypatch.setattr("clientsdk.sending.sender.MAX_MESSAGE", 400)
    client = device(metric("colour", "every", 20), ceilings={"period": 10**8, "lifetime": 10**9})
    for _ in range(20):
        client.record("colour", "a")
    client.clock.advance(hours=3)
    assert client.flush().sent == 20
    sizes = [len(message) for message in sent_by(client)]
    assert max(sizes) <= 400 < min(sizes[:-1]) + 42 + 8
    assert not any(refused(each, client.plan, START + 2 * WEEK) for each in sent_by(client))
