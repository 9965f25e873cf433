"""Values that a store is pinned to, and stores that cannot be used."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing

import pytest
from device_plans import VAST, metric, plan, seeded, tables

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome
from sotto.plan.compiled import Ceilings


def device(path, compiled=None, **options):
    return seeded(compiled, state=path, **options)


def test_the_ledger_refuses_to_spend_what_was_not_reserved(path):
    device(path).close()
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO ledger VALUES (1, 5, 6, '{}')")


# Pins.


def test_ceilings_are_epsilons_and_round_down(path):
    with device(path, ceilings=(0.3000019, 300)) as client:
        assert client.ledger().ceilings == Ceilings(300_001, 300_000_000)


# Stores that cannot be used.


def test_the_tables_are_those_of_the_schema_s_version(path):
    """Another definition needs another version: change both together."""
    device(path).close()
    assert tables(path) == (8, "3eacdfa544080873")


def limit_pages(client, spare):
    """Let the file grow by so many pages and no further."""
    connection = client._store.database.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + spare}")


def test_a_full_disk_refuses_new_values_keeps_the_ledger_and_says_so(path, caplog):
    client = device(path, plan(metric("colour", "every", 100_000), ceilings=VAST))
    limit_pages(client, 1)
    outcomes = [client.record("colour", "a") for _ in range(500)]
    taken = outcomes.count(Outcome.ACCEPTED)
    assert set(outcomes) == {Outcome.ACCEPTED, Outcome.STORE_FULL}
    assert 0 < taken < 500
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.name for record in warnings] == ["clientsdk"]
    assert "full" in warnings[0].getMessage()
    ledger = client.ledger()
    assert len(ledger.pending) == taken
    assert ledger.periods[0].recordings == {"trial/colour": taken}
    assert ledger.reserved == taken * client.plan.metric("colour").mechanism.certified(2)
    # Once there is a little room again, what is there is sent, which makes more room.
    client.clock.advance(days=8)
    limit_pages(client, 2)
    assert client.flush().sent == taken
    assert {client.record("colour", "a") for _ in range(taken)} == {Outcome.ACCEPTED}


def test_recording_from_within_a_recording_neither_deadlocks_nor_counts(path):
    """As a finalizer or a signal handler might."""
    client = device(path, plan(metric("colour", "every", 9), ceilings=VAST))
    source = client._recorder._source
    inner = []
    bits = source.bits

    def interrupted(n):
        if not inner:
            inner.append(client.record("colour", "a"))
        return bits(n)

    source.bits = interrupted
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert inner == [Outcome.STORE_FULL]
    assert client.ledger().periods[0].recordings == {"trial/colour": 1}


def test_default_clock_and_publisher_that_is_not_closed():
    publisher = MemoryPublisher()
    publisher.close = lambda: pytest.fail("the publisher belongs to the app")
    with Client(plan(expires=4 * 10**12), state=NO_LIFETIME_BOUND, publisher=publisher) as client:
        client.give_consent()
        assert client.record("colour", "a") is Outcome.ACCEPTED
