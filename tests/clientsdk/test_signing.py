"""Signed messages: whose they are, that they are sent again as they were, and what is kept."""

from __future__ import annotations

import sys

import pytest
from device_plans import START, metric, plan

from clientsdk import Outcome
from clientsdk.store import device_secrets
from clientsdk.testing import FakeClock, SeededClient

EVERY = metric("colour", "every", 3)


def device(*metrics, state=None, clock=None, signed=True, **changes):
    # A plan without signatures has no such field.
    signs = {"authentication": "required"} if signed else {}
    compiled = plan(*metrics or (EVERY,), **signs, **changes)
    return SeededClient(compiled, seed=1, state=state, clock=clock or FakeClock(START))


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
