"""Charge, then publish, then mark as delivered; what is sent again is the same."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from device_plans import VAST, metric, plan, seeded

from clientsdk import MemoryPublisher
from clientsdk.store import rollback_guard
from sotto.errors import PublishError


class Buffering(MemoryPublisher):
    """Loses what it holds, or has a bug, when told to."""

    def __init__(self, *fates):
        super().__init__()
        self.fates = list(fates)
        self.held = []

    def publish(self, shard, message):
        self.held.append((shard, message))

    def sync(self):
        held, self.held = self.held, []
        if self.fates:
            raise self.fates.pop(0)
        self.messages += held


def device(*metrics, **options):
    return seeded(plan(*metrics, ceilings=VAST), **options)


def test_a_buffering_publisher_is_believed_only_once_it_has_synced():
    client = device(publisher=Buffering(PublishError("lost"), RuntimeError("a bug")))
    client.record("colour", "a")
    client.clock.advance(hours=3)
    for said in ("lost", "the publisher raised RuntimeError"):
        result = client.flush()
        assert (result.sent, result.remaining) == (0, 1)
        assert str(result.error) == said
        assert result.error.__context__ is result.error.__traceback__ is None
    assert client.flush().sent == 1
    assert len(client.publisher.messages) == 1


class Interrupted(Buffering):
    """While it takes a message the person withdraws consent."""

    def publish(self, shard, message):
        super().publish(shard, message)
        self.withdraw()


class Dropping(Interrupted):
    def discard(self):
        self.held.clear()


FAILURES = (False, SimpleNamespace(status_code=500), SimpleNamespace(status=302))


async def _later(shard, message):
    raise AssertionError("nothing waits for this")


@pytest.mark.filterwarnings("ignore:coroutine '_later' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("publish", [_later, *(Mock(return_value=each) for each in FAILURES)])
def test_a_publisher_that_is_async_or_returns_a_failure_has_taken_nothing(publish):
    client = device()
    client.publisher.publish = publish
    client.record("colour", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, result.remaining) == (0, 1)
    assert "one returned False or a response of failure, or is async" in str(result.error)


class Task:
    """An object that a queue returns for a message that it has taken."""

    @property
    def status(self):
        raise NotImplementedError("there is no backend of results")


TAKEN = (Task(), Mock(), SimpleNamespace(status_code=204), SimpleNamespace(status="500"))


@pytest.mark.parametrize("answer", [*TAKEN, SimpleNamespace(status=1_790_000_000)])
def test_anything_else_that_a_publisher_returns_is_no_failure(answer):
    client = device()
    client.publisher.publish = Mock(return_value=answer)
    client.record("colour", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, result.remaining, result.error) == (1, 0, None)


@pytest.mark.parametrize("state", ["device.db", None])
@pytest.mark.parametrize("publisher", [Interrupted, Dropping])
@pytest.mark.parametrize("noted", [True, False])
def test_what_is_buffered_when_consent_is_withdrawn_is_not_synced(
    tmp_path, monkeypatch, state, publisher, noted
):
    """Neither by this client, nor, where the publisher can drop it, later by another."""
    monkeypatch.setattr("clientsdk.sending.sender.MAX_MESSAGE", 100)
    client = device(
        metric("colour", "every", 3), publisher=publisher(), state=state and tmp_path / state
    )
    held = client.publisher.held
    if noted and state:
        path = str(tmp_path / state)
        client.publisher.withdraw = lambda: rollback_guard.note_withdrawal(path)
    else:
        client.publisher.withdraw = client._store.stop
    for _ in range(3):
        client.record("colour", "a")
    client.clock.advance(hours=3)
    result = client.flush()
    assert (result.sent, client.publisher.messages) == (0, [])
    assert client.publisher.held is held
    # Only the first of three was handed over.
    assert len(held) == (1 if publisher is Interrupted else 0)
    client.withdraw_consent()
    assert client.ledger().pending == ()
