"""Erased values and secrets are gone from every byte of every file."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from contextlib import closing
from unittest.mock import Mock

import pytest
from device_plans import START, VAST, WEEK, Calling, metric, plan, raw, seeded

from clientsdk import Client, Consent, MemoryPublisher, Outcome
from clientsdk.store import outbox
from clientsdk.store.database import READ, WRITE
from sotto.errors import PublishError, StoreError


def device(path, *metrics, **options):
    return seeded(plan(*metrics, ceilings=VAST), state=path, **options)


def ids(client):
    return {bytes.fromhex(chain.chain) for chain in client.ledger().pending}


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
    with one._store.transaction(WRITE) as connection:
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


def test_what_a_client_hands_out_leads_to_no_payload_and_no_whole_chain_id(path):
    refuse = Mock(side_effect=PublishError("no broker"))
    client = device(path, metric("colour"), publisher=Calling(before=refuse))
    client.record("colour", "a")
    with client._store.transaction(READ) as connection:
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
