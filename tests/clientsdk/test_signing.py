"""Signed messages: whose they are, that they are sent again as they were, and what is kept."""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest
from device_plans import (
    CONSTANT,
    START,
    WEEK,
    counted,
    items,
    metric,
    plan,
    reports,
    run_out,
    string,
)

from clientsdk import MemoryPublisher, Outcome
from clientsdk.store import device_secrets
from clientsdk.testing import FakeClock, SeededClient, reported
from sotto.errors import PublishError
from sotto.plan.registry import Registry
from sotto.wire.decode import decode
from sotto.wire.format import TRAILER, decode_message
from sotto.wire.reasons import Reason
from sotto.wire.signatures import Signer, needs_signature, signed_pseudonym

EVERY = metric("colour", "every", 3)


def device(*metrics, state=None, seed=1, clock=None, publisher=None, **changes):
    changes = {"authentication": "required", **changes}
    if changes["authentication"] == "none":
        # What a plan does not say is not written.
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
    """What an aggregator does not accept, of messages that all came at one time."""
    lengths = np.array([len(message) for message in messages])
    decoded = decode(
        b"".join(messages),
        np.cumsum(lengths) - lengths,
        lengths,
        np.full(len(messages), append),
        Registry(plans),
    )
    return decoded.rejects


def key_of(message):
    return message[-TRAILER:-64]


def names_of(message):
    return {row.pseudonym for run in decode_message(message).groups for row in run.rows}


def seeds(path):
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT period, seed FROM signing").fetchall())


def test_the_derivation_is_the_agreed_one():
    secret = bytes(range(32))
    number = (-3).to_bytes(8, "little", signed=True)
    seed = hashlib.sha256(b"sotto.signature\0fleet.example\0" + number + secret).digest()
    found = device_secrets.identity("fleet.example", -3, secret, signed=True)
    assert found.seed == seed
    key = Signer(seed).public_key
    committed = b"sotto.pseudonym.signed\0fleet.example\0" + number + key
    assert found.pseudonym == b"\xed\x25\x19" + hashlib.sha256(committed).digest()[:13]
    assert found.pseudonym == signed_pseudonym("fleet.example", -3, key)
    assert seed.hex() not in repr(found)
    assert found.pseudonym.hex() not in repr(found)


def test_an_unsigned_pseudonym_never_has_the_tag(monkeypatch):
    monkeypatch.setattr(device_secrets, "sha256", lambda data: b"\xed\x25\x19" + bytes(29))
    assert device_secrets.pseudonym("fleet.example", 0, bytes(32)) == b"\xec\x25\x19" + bytes(13)


def test_every_message_is_accepted_by_an_aggregator():
    client = device(
        metric("colour"),
        string("word"),
        metric("kept", "reservoir"),
        metric("model", "constant", ladder=CONSTANT),
        items(),
    )
    for week in range(2):
        client.clock.now = START + week * WEEK
        for name, value in (("colour", "a"), ("word", "w"), ("kept", "b"), ("model", "c")):
            assert client.record(name, value) is Outcome.ACCEPTED
        assert client.record("app", "a") is Outcome.ACCEPTED
        client.clock.advance(days=6)
    run_out(client)
    messages = sent_by(client)
    assert {report.metric for report in reports(client.publisher.messages)} == set(range(5))
    assert rejects(messages, client.plan, append=START + 2 * WEEK) == []
    assert all(message[2] == 2 and len(names_of(message)) == 1 for message in messages)
    totals = counted(reports(client.publisher.messages), [client.plan])
    ledger = client.ledger()
    assert sorted(totals.values()) == sorted(period.spent for period in ledger.periods)


def test_periods_share_neither_key_nor_pseudonym():
    client = device()
    by_period = {}
    for week in range(4):
        client.clock.now = START + week * WEEK
        client.record("colour", "a")
        client.clock.advance(hours=3)
        client.flush()
    run_out(client)
    for message in sent_by(client):
        (name,) = names_of(message)
        event = decode_message(message).groups[0].rows[0].event
        by_period.setdefault(event // WEEK, set()).add((name, key_of(message)))
    assert sorted(map(len, by_period.values())) == [1, 1, 1, 1]
    parts = [part for pairs in by_period.values() for pair in pairs for part in pair]
    assert len(set(parts)) == 8
    messages = sent_by(client)
    for part in parts:
        periods = {
            decode_message(message).groups[0].rows[0].event // WEEK
            for message in messages
            if part in message
        }
        assert len(periods) == 1


class Refusing(MemoryPublisher):
    """Takes messages and says that it has not."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    def publish(self, shard, message):
        super().publish(shard, message)
        if self.times:
            self.times -= 1
            raise PublishError("not now")


def test_a_message_that_has_more_rows_when_it_is_sent_again():
    """Rows are the same bytes; the message is another, and as valid."""
    client = device(publisher=Refusing(1))
    client.record("colour", "a")
    client.clock.advance(hours=3)
    client.flush()
    client.record("colour", "b")
    client.clock.advance(hours=3)
    client.flush()
    first, second = sent_by(client)
    (row,) = decode_message(first).groups[0].rows
    assert row in decode_message(second).groups[0].rows
    assert rejects([first, second], client.plan) == []


def test_the_file_has_no_key_but_those_of_chains_and_of_its_period(path):
    """What a thief can sign for: see docs/start/privacy.md."""
    client = device(state=path)
    messages = []
    for week in range(3):
        client.clock.now = START + week * WEEK
        client.record("colour", "a")
        client.clock.advance(hours=3)
        client.flush()
        messages = sent_by(client)
    client.clock.advance(days=30)
    client.flush()
    client.close()
    with closing(sqlite3.connect(path)) as connection:
        ((secret,),) = connection.execute("SELECT value FROM secret").fetchall()
        period = connection.execute("SELECT period FROM device").fetchone()[0]
    mine = Signer(
        device_secrets.identity("fleet.example", period, secret, signed=True).seed
    ).public_key
    assert seeds(path) == {}
    assert mine not in {key_of(message) for message in messages}


def test_plans_with_and_without_signatures_in_one_file(path):
    clock, publisher = FakeClock(START), MemoryPublisher()
    spent = {}
    for authentication, name in (("required", "closed"), ("none", "open")):
        with device(
            state=path, clock=clock, publisher=publisher, authentication=authentication, plan=name
        ) as client:
            assert client.record("colour", "a") is Outcome.ACCEPTED
            spent[name] = client.plan
    with device(state=path, clock=clock, publisher=publisher, plan="closed") as client:
        clock.now = START + 3 * 3_600_000
        assert client.flush().sent == 2
        (period,) = client.ledger().periods
    assert {message[2] for message in sent_by(client)} == {1, 2}
    signed, unsigned = bytes.fromhex(period.signed_pseudonym), bytes.fromhex(period.pseudonym)
    assert (needs_signature(signed), needs_signature(unsigned)) == (True, False)
    for message in sent_by(client):
        assert names_of(message) == ({signed} if message[2] == 2 else {unsigned})
    assert rejects(sent_by(client), *spent.values()) == []
    for name in (period.pseudonym, period.signed_pseudonym):
        assert name not in repr(period)


def test_the_preview_is_what_is_sent():
    client = device()
    for _ in range(3):
        client.record("colour", "a")
    shown = client.preview()
    run_out(client)
    assert [each.data for each in shown.messages] == sent_by(client)
    assert reported(client).of("colour").newest.exactly(3)


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


def test_what_another_key_signs_is_not_accepted():
    """The two halves of a message of two devices do not make one."""
    one, other = device(seed=1), device(seed=2)
    for client in (one, other):
        client.record("colour", "a")
        client.clock.advance(hours=3)
        client.flush()
    (first,), (second,) = sent_by(one), sent_by(other)
    assert names_of(first) != names_of(second)
    for forged in (first[:-TRAILER] + second[-TRAILER:], first[:-64] + second[-64:]):
        (reject,) = rejects([forged], one.plan)
        assert reject.reason is Reason.UNAUTHENTICATED
