"""A store in memory: what is recorded is noted, and written before anything else looks."""

from __future__ import annotations

import pytest
from device_plans import START, VAST, counted, metric, plan, reports

from clientsdk import Outcome
from clientsdk.store.store import BUFFERED
from clientsdk.testing import FakeClock, SeededClient

COST = 2_000_000


@pytest.fixture
def client():
    return device()


def device(limit=10_000, **options):
    compiled = plan(metric("one", "every", limit), metric("two", "every", limit), ceilings=VAST)
    return SeededClient(compiled, seed=1, clock=FakeClock(START), **options)


def record(client, number):
    for turn in range(number):
        assert client.record(("one", "two")[turn % 2], "a") is Outcome.ACCEPTED


def chains(client):
    return client._store.database.connection.execute("SELECT count(*) FROM chain").fetchone()[0]


def test_a_recording_executes_no_statement_but_the_first_of_a_period_and_of_many(client):
    record(client, 1)
    seen = []
    client._store.database.connection.set_trace_callback(seen.append)
    record(client, BUFFERED)
    assert seen == []
    assert (chains(client), len(client._store.buffer)) == (1, BUFFERED)
    record(client, 1)
    assert (len(client._store.buffer), chains(client)) == (0, BUFFERED + 2)
    client.clock.advance(days=7)
    seen.clear()
    record(client, 1)
    assert seen
    assert client._store.buffer == []


@pytest.mark.parametrize("number", [2, 9, BUFFERED + 1, 2 * BUFFERED + 7])
def test_everything_sees_all_of_it(client, number):
    record(client, number)
    ledger = client.ledger()
    assert (ledger.reserved, len(ledger.pending)) == (COST * number, number)
    assert sum(ledger.periods[0].recordings.values()) == number
    record(client, 3)
    assert client.stats().outbox_chains == number + 3
    record(client, 3)
    assert len(client.preview().reports) == 3 * (number + 6)
    record(client, 3)
    assert client.next_due() == min(each.due for each in client.ledger().pending)
    record(client, 3)
    client.clock.advance(days=14)
    assert client.flush().sent == number + 12
    spent = counted(reports(client.publisher.messages), [client.plan])
    assert sum(spent.values()) == client.ledger().spent == client.ledger().reserved


class Uncleared(list):
    """Notes that an interrupt leaves where they are, when they have been written."""

    def clear(self):
        raise KeyboardInterrupt


def test_what_an_interrupt_leaves_noted_is_not_written_twice(client):
    record(client, 9)
    client._store.buffer = Uncleared(client._store.buffer)
    with pytest.raises(KeyboardInterrupt):
        client.ledger()
    client._store.buffer = list(client._store.buffer)
    # The first one looks again, and what follows is noted beside what is written already.
    record(client, 3)
    ledger = client.ledger()
    assert (ledger.reserved, len(ledger.pending)) == (12 * COST, 12)
    assert sum(ledger.periods[0].recordings.values()) == 12
