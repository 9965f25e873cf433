"""Signed messages: whose they are, that they are sent again as they were, and what is kept."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from device_plans import START, WEEK, metric, plan

from clientsdk import MemoryPublisher, Outcome
from clientsdk.store import device_secrets
from clientsdk.testing import FakeClock, SeededClient
from sotto.plan.registry import Registry
from sotto.wire.decode import decode

EVERY = metric("colour", "every", 3)


def device(*metrics, state=None, seed=1, clock=None, publisher=None, **changes):
    changes = {"authentication": "required", **changes}
    if changes["authentication"] == "none":
        # A plan without signatures has no such field.
        del changes["authentication"]
    return SeededClient(
        plan(*metrics or (EVERY,), **changes),
        seed=seed,
        state=state,
        clock=clock or FakeClock(START),
        publisher=publisher or MemoryPublisher(),
    )


def sent_by(client):
    return [body for _, body in client.publisher.messages]


def rejects(messages, *plans, append=START + 2 * WEEK):
    """The messages that an aggregator does not accept, if all came at one time."""
    lengths = np.array([len(message) for message in messages])
    decoded = decode(
        b"".join(messages),
        np.cumsum(lengths) - lengths,
        lengths,
        np.full(len(messages), append),
        Registry(plans),
    )
    return decoded.rejects


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
    assert device(state=path, authentication="none").record("colour", "a") is Outcome.ACCEPTED


def test_chains_to_be_signed_wait_where_the_package_is_missing(path, monkeypatch, not_installed):
    clock = FakeClock(START)
    with device(state=path, clock=clock, plan="closed") as client:
        client.record("colour", "a")
    with monkeypatch.context():
        not_installed()
        with device(state=path, clock=clock, plan="open", authentication="none") as client:
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
    assert rejects(sent_by(client), client.plan) == []
