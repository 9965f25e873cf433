"""What nobody needs any more is erased: files kept aside, chains of expired plans, old tallies."""

from __future__ import annotations

import os
import sqlite3

import pytest
from device_plans import CONSTANT, DAY, HOUR, LATE, START, WEEK, metric, plan, raw, string

from clientsdk import Lapses, Outcome
from clientsdk.ledger import ALL_METRICS, read_file
from clientsdk.store.database import TransactionAccess
from clientsdk.testing import FakeClock, SeededClient

VAST = {"period": 10**9, "lifetime": 10**10}
COLOUR, WORD = metric("colour", "every", 9), string("word", kind="every", limit=9)
EXPIRES = START + 2 * DAY
HORIZON = plan(COLOUR, WORD, ceilings=VAST).horizon


def device(path, *metrics, now=START, seed=1, **options):
    compiled = plan(*metrics or (COLOUR, WORD), ceilings=VAST, **options)
    return SeededClient(compiled, seed=seed, state=path, clock=FakeClock(now))


def other(path, now, **options):
    """A client under another plan of the same collector."""
    return device(path, metric("size"), now=now, plan="other", seed=9, **options)


def chains_of(client):
    return {bytes.fromhex(chain.chain) for chain in client.ledger().pending}


# Chains of a plan that has expired.


def loaded(path):
    client = device(path, expires=EXPIRES)
    for _ in range(3):
        assert client.record("colour", "a") is Outcome.ACCEPTED
    return client, chains_of(client)


def _open(path, now):
    other(path, now).close()


def _record(path, now):
    client = other(path, START)
    client.clock.now = now
    assert client.record("size", "a") is Outcome.ACCEPTED


def _flush(path, now):
    client = other(path, START)
    client.clock.now = now
    assert client.flush().lapses == Lapses(expired=3)
    assert client.flush().lapses == Lapses()


def _look(path, now):
    client = other(path, START)
    client.clock.now = now
    assert client.ledger().pending == ()
    assert client.flush().lapses == Lapses(expired=3)


def _refused(path, now):
    """Under the expired plan itself, long before anything is due again."""
    client = device(path, seed=3, expires=EXPIRES)
    client.clock.now = now
    assert client.record("colour", "a") is Outcome.EXPIRED


@pytest.mark.parametrize("touch", [_open, _record, _flush, _look, _refused])
@pytest.mark.parametrize("late", [0, 300 * WEEK])
def test_whatever_touches_the_store_erases_the_chains_of_an_expired_plan(path, touch, late):
    client, chains = loaded(path)
    client.close()
    assert all(chain in raw(path) for chain in chains)
    touch(path, EXPIRES + late)
    assert not any(chain in raw(path) for chain in chains)
    ledger = read_file(path)
    assert not [each for each in ledger.pending if each.metric.startswith("trial/")]
    # What they had reserved stays so.
    assert ledger.periods[0].reserved >= 6_000_000


@pytest.mark.parametrize("state", [True, False])
def test_a_clock_that_leapt_beyond_the_expiry_and_was_set_back_does_not_keep_them(path, state):
    """Within one period, which the leap would otherwise end for good; none of them is due yet."""
    late = metric("colour", "every", 9, ladder=LATE)
    client = device(path if state else None, late, expires=EXPIRES)
    client.record("colour", "a")
    client.clock.now = EXPIRES + HOUR
    assert client.flush().lapses == Lapses(expired=1)
    client.clock.now = START + HOUR
    assert [client.record("colour", "a") for _ in range(2)] == [Outcome.ACCEPTED] * 2
    client.clock.now = EXPIRES
    assert client.flush().lapses == Lapses(expired=2)
    assert client.ledger().pending == ()


def test_until_then_they_are_kept_and_those_of_other_plans_beyond(path):
    _, chains = loaded(path)
    theirs = other(path, START)
    theirs.record("size", "a")
    theirs.clock.now = EXPIRES - 1
    theirs.flush()
    assert chains <= chains_of(theirs)
    theirs.clock.now = EXPIRES
    assert theirs.flush().lapses == Lapses(expired=3)
    (left,) = theirs.ledger().pending
    assert left.metric == "other/size"


def test_a_commit_that_fails_is_made_up_for(path, monkeypatch):
    _, chains = loaded(path)
    theirs = other(path, START)
    theirs.clock.now = EXPIRES
    with monkeypatch.context() as patched:
        patched.setattr(type(theirs._store.erasure), "schedule", _fail)
        assert theirs.record("size", "a") is Outcome.STORE_FULL
    assert chains <= {bytes.fromhex(each.chain) for each in read_file(path).pending}
    assert theirs.record("size", "a") is Outcome.ACCEPTED
    theirs.flush()
    assert not any(chain in raw(path) for chain in chains)


def _fail(store, connection):
    raise sqlite3.OperationalError("database or disk is full")


def test_permanent_responses_outlive_a_version_of_their_plan(path):
    """Another version goes on with them; a second response would cost a second time."""
    model = metric("model", "constant", ladder=CONSTANT)
    with device(path, model, expires=EXPIRES) as client:
        client.record("model", "a")
        (before,) = client.ledger().permanent
    with device(path, model, now=EXPIRES + WEEK, version=2, seed=2) as client:
        assert client.record("model", "b") is Outcome.ACCEPTED
        assert client.ledger().permanent == (before,)


# Files that were kept aside.


def damaged(path, now=START):
    """Damage the file; return what was kept aside, chains and all."""
    with device(path, now=now) as client:
        client.record("colour", "a")
    content = bytearray(path.read_bytes())
    content[:64] = bytes([0xA5]) * 64
    path.write_bytes(content)
    device(path, now=now, seed=2).close()
    (kept,) = path.parent.glob("*-damaged-*[0-9]")
    return kept


def test_what_was_kept_aside_goes_after_the_longest_horizon(path):
    kept = damaged(path)
    content = kept.read_bytes()
    device(path, now=START + HORIZON, seed=3).close()
    assert kept.read_bytes() == content
    with open(kept, "rb") as open_before:
        device(path, now=START + HORIZON + 1, seed=3).close()
        assert not kept.exists()
        # It was overwritten before its name went.
        assert not open_before.read().strip(b"\0")


def test_a_plan_with_a_longer_horizon_keeps_it_longer(path):
    kept = damaged(path)
    long = plan(metric("size"), plan="other", grace=60 * DAY, ceilings=VAST)
    now = START + HORIZON + DAY
    assert long.horizon > now - START
    SeededClient(long, seed=4, state=path, clock=FakeClock(START)).close()
    device(path, now=now, seed=3).close()
    assert kept.exists()
    device(path, now=START + long.horizon + 1, seed=3).close()
    assert not kept.exists()


def test_a_running_client_erases_it_when_a_period_begins(path):
    kept = damaged(path)
    client = device(path, now=START, seed=3)
    while client.clock.now <= START + HORIZON:
        assert kept.exists()
        client.clock.advance(days=7)
        client.record("colour", "a")
    assert not kept.exists()


def test_a_clock_that_was_set_back_neither_keeps_it_for_ever_nor_erases_it_at_once(path):
    kept = damaged(path, now=START + 100 * WEEK)
    for now in (START, START + HORIZON):
        device(path, now=now, seed=3).close()
        assert kept.exists()
    device(path, now=START + HORIZON + 1, seed=3).close()
    assert not kept.exists()


def test_what_an_older_version_kept_aside_goes_too(path):
    """It has the time of its last change, by the clock of the system."""
    kept = damaged(path)
    os.utime(kept, (START / 1000 - 1, START / 1000 - 1))
    device(path, now=START + HORIZON, seed=3).close()
    assert not kept.exists()


# Tallies by metric, in the ledger.


def test_periods_that_are_through_do_not_say_which_metric_was_recorded(path):
    client = device(path)
    for name, number in (("colour", 2), ("word", 3)):
        for _ in range(number):
            assert client.record(name, "a") is Outcome.ACCEPTED
    assert client.ledger().periods[0].recordings == {"trial/colour": 2, "trial/word": 3}
    client.clock.advance(hours=3)
    client.flush()
    client.clock.now = START + WEEK
    client.record("colour", "a")
    # There are levels to come.
    assert client.ledger().periods[0].recordings == {"trial/colour": 2, "trial/word": 3}
    before = client.ledger()
    client.clock.now = START + WEEK + 2 * HOUR
    client.flush()
    after = client.ledger()
    first, second = after.periods
    assert first.recordings == {ALL_METRICS: 5}
    assert second.recordings == {"trial/colour": 1}
    assert (first.reserved, after.reserved) == (before.periods[0].reserved, before.reserved)
    assert "5 values recorded" in str(after)
    assert b'"trial/word"' not in raw(path).replace(client.plan.to_json(), b"")


def test_a_file_from_before_is_folded_when_it_is_opened(path):
    with device(path) as client:
        client.record("word", "a")
    with device(path, now=START + 9 * WEEK, seed=2) as client:
        assert client.flush().lapses == Lapses(late=1)
        store = client._store
        with store.transaction(TransactionAccess.WRITE) as connection:
            connection.execute("""UPDATE ledger SET tallies = '{"trial/word":1}'""")
    device(path, now=START + 9 * WEEK, seed=3).close()
    assert read_file(path).periods[0].recordings == {ALL_METRICS: 1}
    assert b'"trial/word":1' not in raw(path)
