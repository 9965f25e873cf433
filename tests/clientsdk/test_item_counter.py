"""Top items: counted in memory, charged before they are, drawn once when the period is over."""

from __future__ import annotations

import struct

import pytest
from device_plans import HOUR, START, VAST, WEEK, items, plan, raw, reports, seeded
from scripts import FORK, run
from waiting import at_once

from clientsdk import Outcome


def device(*metrics, **options):
    return seeded(plan(*metrics or (items(),), ceilings=VAST), **options)


@pytest.fixture
def drawn(monkeypatch):
    """The counts that chains are drawn from, in order."""
    mechanism = type(device().plan.metrics[0].mechanism)
    seen = []
    draw = mechanism.draw

    def spy(self, symbol, *given):
        seen.append(symbol)
        return draw(self, symbol, *given)

    monkeypatch.setattr(mechanism, "draw", spy)
    return seen


def cost(client, name="app"):
    return client.plan.metric(name).cost


# Counts, which no file, outcome, time or error may tell.


def test_nothing_but_the_payload_depends_on_the_items():
    def life(named, seed):
        client, told = device(seed=seed), []
        for each in named:
            told.append((client.record("app", each), client.next_due(), client.ledger()))
            client.clock.advance(hours=9)
        due = client.clock.now = client.next_due()
        told.append((client.flush(), client.next_due(), client.ledger()))
        sent = [report._replace(payload=b"") for report in reports(client.publisher.messages)]
        return due, told, sent

    lives = [life("aaaaaaaaaa", seed) for seed in range(8)]
    assert lives == [life("abcabcabcz", seed) for seed in range(8)]
    assert len({due // 60_000 for due, *_ in lives}) == 8
    for due, _, sent in lives:
        assert START + WEEK <= due < START + WEEK + HOUR
        assert [each.event for each in sent] == [START + WEEK - HOUR]


def test_no_byte_of_any_file_changes_while_items_are_counted(path):
    client = device(items(clip=60_000), state=path)
    client.record("app", "c")
    # In the index of the log SQLite notes who reads.
    index = path.with_name(path.name + "-shm")
    before = raw(path, index)
    for _ in range(20_002):
        client.record("app", "c")
    assert client._recorder.counter.begun[0]._counts == [0, 0, 20_003, 0]
    assert raw(path, index) == before
    client.clock.now = START + WEEK
    client.flush()
    for form in ("<i", ">i", "<q", ">q", "<d", ">d"):
        assert struct.pack(form, 20_003) not in raw(path)
    assert b"20003" not in raw(path)


def test_a_count_tells_nothing_of_itself():
    client = device()
    for _ in range(1234):
        client.record("app", "b")
    (count,) = client._recorder.counter.begun
    assert "1234" not in f"{count!r} {client._recorder.counter!r} {client!r}"


# Withdrawal.


def test_an_item_that_another_thread_counts_during_a_withdrawal_goes_too(monkeypatch):
    client = device()
    client.record("app", "a")
    counts = client._recorder.counter
    (count,) = counts.begun
    agree = client._store.set_consent
    late = lambda *given: (counts.hold(count), agree(*given))  # noqa: E731
    monkeypatch.setattr(client._store, "set_consent", late)
    client.withdraw_consent()
    assert not counts


def test_consent_given_by_another_thread_meanwhile_keeps_its_count(path, drawn, monkeypatch):
    client = device(state=path)
    client.record("app", "a")
    with monkeypatch.context() as late:
        late.setattr(client._recorder.decisions, "refused", lambda now: Outcome.NO_CONSENT)
        assert client.record("app", "b") is Outcome.NO_CONSENT
    assert client.record("app", "c") is Outcome.ACCEPTED
    client.clock.advance(days=8)
    assert client.flush().sent == 1
    assert drawn == [(1, 0, 1, 0)]


# Several clients.


def test_threads_count_together(path, drawn):
    client = device(items(clip=60_000), state=path)
    outcomes = []

    def work(item):
        for _ in range(300):
            outcomes.append(client.record("app", item))

    at_once(work, "abca")
    assert set(outcomes) == {Outcome.ACCEPTED}
    client.clock.advance(days=7)
    client.flush()
    assert drawn == [(600, 300, 300, 0)]
    assert client.ledger().reserved == cost(client)


@pytest.mark.real_randomness
@pytest.mark.parametrize("kind", ["hooks", "no hooks"])
def test_a_forked_child_has_no_count(path, kind):
    code = """
client = device(items())
for item in "aab":
    assert client.record("app", item) is Outcome.ACCEPTED
def work():
    assert not client._recorder.counter
    assert client.record("app", "c") is Outcome.PERIOD_FULL
    client.clock.advance(days=8)
    result = client.flush()
    assert (result.sent, result.error, client.next_due()) == (0, None, None)
    assert client.record("app", "c") is Outcome.ACCEPTED
    assert client._recorder.counter.begun[0]._counts == [0, 0, 1, 0]
    client.clock.advance(days=6, hours=3)
    assert client.flush().sent == 1
wait(fork(work))
client.clock.advance(days=14, hours=3)
assert client.record("app", "a") is Outcome.ACCEPTED
"""
    checks = """
ledger = client.ledger()
assert {chain.period for chain in ledger.pending} == {2900, 2901}
assert [period.number for period in ledger.periods] == [2900, 2901, 2902]
assert len({chain.chain for chain in ledger.pending}) == 2
"""
    run(FORK + code + checks, path, kind)
