"""Erased values and secrets are gone from every byte of every file."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from contextlib import closing

import pytest
from device_plans import START, VAST, WEEK, Calling, metric, number, plan, raw

from clientsdk import Client, Consent, MemoryPublisher, Outcome
from clientsdk.ledger import ALL_METRICS
from clientsdk.store import outbox
from clientsdk.store.database import TransactionAccess
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PublishError, StoreError
from sotto.plan.compiled import Ceilings


def device(path, *metrics, seed=1, **options):
    options.setdefault("clock", FakeClock(START))
    return SeededClient(plan(*metrics, ceilings=VAST), seed=seed, state=path, **options)


def ids(client):
    return {bytes.fromhex(chain.chain) for chain in client.ledger().pending}


@pytest.mark.parametrize("sent", [False, True])
def test_withdrawal_wipes_at_once_and_keeps_what_was_reserved(path, sent):
    client = device(path, metric("colour", "every", 900), metric("kept", "reservoir"))
    for week in range(2):
        client.clock.now = START + week * WEEK
        for _ in range(400):
            client.record("colour", "a")
        client.record("kept", "b")
    if sent:
        client.clock.advance(days=1, hours=3)
        client.flush()
    before = client.ledger()
    chains = ids(client)
    names = {bytes.fromhex(period.pseudonym) for period in before.periods}
    assert len(chains) > 400
    assert client.withdraw_consent()
    content = raw(path)
    assert not any(chain in content for chain in chains)
    assert not any(name in content for name in names)
    after = client.ledger()
    assert after.consent is Consent.WITHDRAWN
    assert after.pending == ()
    assert [(p.number, p.reserved, p.spent) for p in after.periods] == [
        (p.number, p.reserved, p.spent) for p in before.periods
    ]
    # The period that is over keeps only the number of all its values.
    recordings = [p.recordings for p in after.periods]
    assert recordings == [{ALL_METRICS: 401}, {"trial/colour": 400, "trial/kept": 1}]
    assert client.record("colour", "a") is Outcome.NO_CONSENT
    client.clock.advance(days=2)
    messages = len(client.publisher.messages)
    assert client.flush().sent == 0
    assert len(client.publisher.messages) == messages


def test_a_crash_in_the_middle_of_wiping_is_made_good_at_the_next_start(path, monkeypatch):
    client = device(path, metric("colour", "every", 900))
    for _ in range(400):
        client.record("colour", "a")
    chains = ids(client)
    with monkeypatch.context() as patch:
        patch.setattr(type(client._store.erasure), "scrub", lambda erasure, compact: False)
        assert not client.withdraw_consent()
    assert any(chain in raw(path) for chain in chains)
    # No close, as after a crash; the connection is let go by hand, to free the file.
    client._store.database.disconnect()
    with device(path, consent=False, seed=2) as again:
        assert again.ledger().consent is Consent.WITHDRAWN
        content = raw(path)
        assert not any(chain in content for chain in chains)
        assert not again._store.erasure.pending


def test_a_reader_in_the_way_delays_erasure_and_flush_makes_it_good(path):
    client = device(path)
    client.record("colour", "a")
    chains = ids(client)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chain").fetchone()
        assert not client.withdraw_consent()
        assert client.record("colour", "a") is Outcome.NO_CONSENT
        reader.execute("COMMIT")
    client.flush()
    assert not any(chain in raw(path) for chain in chains)


def test_a_flush_beside_a_withdrawal_does_not_withdraw_what_was_given_again(path):
    client = device(path)
    store, agree = client._store, client._store.set_consent
    flushing = threading.Thread(target=client.flush)

    def slow(connection, consent):
        if consent is Consent.WITHDRAWN and flushing.ident is None:
            flushing.start()
            time.sleep(0.1)
        return agree(connection, consent)

    store.set_consent = slow
    client.withdraw_consent()
    client.give_consent(again=True)
    flushing.join()
    assert client.ledger().consent is Consent.GIVEN
    assert client.record("colour", "a") is Outcome.ACCEPTED


def test_what_another_comes_to_owe_while_one_erases_stays_owed(path):
    one = device(path, metric("colour", "every", 50))
    two = device(path, metric("colour", "every", 50), seed=2, consent=False)
    for _ in range(20):
        two.record("colour", "a")
    chains = ids(two)
    with one._store.transaction(TransactionAccess.WRITE) as connection:
        one._store.erasure.schedule(connection)
    scrub = one._store.erasure.scrub
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:

        def racing(*, compact):
            done = scrub(compact=compact)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM chain").fetchone()
            assert not two.withdraw_consent()
            return done

        one._store.erasure.scrub = racing
        assert not one._store.finish_erasure()
        reader.execute("COMMIT")
    one._store.erasure.scrub = scrub
    two.flush()
    assert not any(chain in raw(path) for chain in chains)
    assert not two._store.erasure.pending


def test_a_settlement_that_cannot_be_noted_is_no_error(path, monkeypatch):
    monkeypatch.setattr("clientsdk.store.schema.PATIENCE", 0.05)
    client = device(path)
    client.record("colour", "a")
    scrub = client._store.erasure.scrub
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:

        def then_locked(*, compact):
            done = scrub(compact=compact)
            if not writer.in_transaction:
                writer.execute("BEGIN IMMEDIATE")
            return done

        client._store.erasure.scrub = then_locked
        assert not client.withdraw_consent()
        client.close()
        assert client._store.database.connection is None
        writer.execute("ROLLBACK")


def test_displaced_chains_are_gone_at_once(path):
    client = device(path, metric("colour", "reservoir"), number("size", kind="reservoir"))
    seen = set()
    for _ in range(60):
        client.record("colour", "a")
        client.record("size", 3.0)
        seen |= ids(client)
    content = raw(path)
    displaced = seen - ids(client)
    assert len(displaced) > 2
    assert not any(chain in content for chain in displaced)
    client.flush()
    assert not client._store.erasure.pending


@pytest.mark.parametrize("kind", ["lapsed", "sent"])
def test_a_reader_in_the_way_of_a_flush_delays_erasure_only(path, kind):
    client = device(path, metric("colour", "every", 50, ladder=[(500_000, 0)]))
    for _ in range(5):
        client.record("colour", "a")
    chains = ids(client)
    client.clock.advance(hours=3)
    if kind == "lapsed":
        low = plan(ceilings=VAST, version=2)
        client = SeededClient(
            low, seed=2, state=path, clock=client.clock, ceilings=Ceilings(400_000, 400_000)
        )
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chain").fetchone()
        result = client.flush()
        assert (result.sent, result.lapsed) == ((0, 5) if kind == "lapsed" else (5, 0))
        assert client._store.erasure.pending
        reader.execute("COMMIT")
    client.clock.advance(hours=1)
    client.flush()
    assert not any(chain in raw(path) for chain in chains)


def test_what_a_client_hands_out_leads_to_no_payload_and_no_whole_chain_id(path):
    def refuse():
        raise PublishError("no broker")

    client = device(path, metric("colour"), publisher=Calling(before=refuse))
    client.record("colour", "a")
    with client._store.transaction(TransactionAccess.READ) as connection:
        (chain,) = outbox.due(connection, START + WEEK, 9)
    assert repr(chain.payloads) not in repr(chain)
    assert chain.id.hex() not in repr(chain)
    client.clock.advance(hours=3)
    error = client.flush().error
    assert isinstance(error, PublishError)
    assert error.__traceback__ is error.__context__ is error.__cause__ is None


def test_files_are_readable_by_their_owner_alone(path):
    client = device(path)
    client.record("colour", "a")
    files = list(path.parent.glob(path.name + "*"))
    assert len(files) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    client.close()
    path.chmod(0o644)
    with device(path, seed=2):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_grows_with_what_was_delivered(path):
    client = device(path, metric("colour", "every", 50))
    sizes = []
    for _ in range(12):
        for _ in range(50):
            client.record("colour", "a")
        client.clock.advance(days=7)
        client.flush()
        client.clock.advance(days=1)
        sizes.append(path.stat().st_size)
    assert max(sizes[6:]) <= max(sizes[:6])


def test_what_is_no_regular_file_is_refused_and_keeps_its_permissions(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    with pytest.raises(StoreError, match="no regular file"):
        Client(plan(), state=pipe, publisher=MemoryPublisher())
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o666
