"""Top items: counted in memory, charged before they are, drawn once when the period is over."""

from __future__ import annotations

import sqlite3
import struct
import subprocess
import threading
from contextlib import closing

import pytest
from device_plans import (
    DAY,
    HOUR,
    START,
    VAST,
    WEEK,
    counted,
    failing,
    items,
    metric,
    plan,
    reports,
)
from scripts import FORK, run

from clientsdk import Outcome
from clientsdk.ledger import read_file
from clientsdk.store.database import TransactionAccess
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import StoreError
from sotto.plan.compiled import Ceilings


def device(*metrics, seed=1, **options):
    options.setdefault("clock", FakeClock(START))
    changes = {"ceilings": VAST, **options.pop("plan", {})}
    return SeededClient(plan(*metrics or (items(),), **changes), seed=seed, **options)


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


def raw(path, *without):
    files = sorted(set(path.parent.glob(path.name + "*")) - set(without))
    return subprocess.run(["cat", *files], check=True, capture_output=True).stdout


def cost(client, name="app"):
    return client.plan.metric(name).cost


def claims_of(client):
    with client._store.transaction(TransactionAccess.READ) as connection:
        return connection.execute("SELECT period, cost FROM counting ORDER BY period").fetchall()


# A period of it.


def test_what_was_counted_is_drawn_from_once_when_the_period_is_over(drawn):
    client = device()
    for item in ("a", "b", "b", "elsewhere", "b"):
        assert client.record("app", item) is Outcome.ACCEPTED
        client.clock.advance(hours=7)
    assert drawn == []
    assert client.ledger().pending == ()
    client.clock.now = START + WEEK
    (chain,) = client.ledger().pending
    assert drawn == [(1, 3, 0, 1)]
    for _ in range(3):
        client.clock.advance(days=1)
        assert client.flush().error is None
        client.ledger()
    assert len(drawn) == 1
    assert [report.level for report in reports(client.publisher.messages)] == [0, 1]
    assert {report.chain.hex() for report in reports(client.publisher.messages)} == {chain.chain}
    assert client.next_due() is None


def test_the_whole_cost_is_reserved_with_the_first_item_and_never_given_back():
    client = device()
    client.record("app", "a")
    before = client.ledger()
    (period,) = before.periods
    assert (period.reserved, period.spent) == (cost(client), 0)
    assert period.recordings == {"trial/app": 1}
    for _ in range(5):
        client.record("app", "b")
    assert client.ledger() == before
    client.clock.advance(days=9)
    client.flush()
    (period,) = client.ledger().periods
    assert period.reserved == period.spent == cost(client)
    assert counted(reports(client.publisher.messages), [client.plan]) == {
        report.pseudonym: cost(client) for report in reports(client.publisher.messages)
    }


def test_the_event_is_the_last_step_of_the_period_and_the_pseudonym_that_period_s():
    client = device(items(), metric("colour"))
    client.clock.now = START + DAY
    client.record("colour", "a")
    client.record("app", "a")
    named = client.ledger().periods[0].pseudonym
    client.clock.now = START + WEEK + 3 * HOUR
    client.record("colour", "a")
    client.flush()
    (chain,) = [each for each in client.ledger().pending if each.metric == "trial/app"]
    assert (chain.period, chain.event) == (2900, START + WEEK - HOUR)
    client.clock.advance(days=1)
    client.flush()
    assert client.ledger().period == 2901
    sent = [each for each in reports(client.publisher.messages) if each.metric == 0]
    assert {(each.pseudonym.hex(), each.event) for each in sent} == {(named, START + WEEK - HOUR)}


def test_when_to_wake_is_known_while_items_are_counted():
    dues = set()
    for seed in range(40):
        client = device(seed=seed)
        assert client.next_due() is None
        client.record("app", "a")
        due = client.next_due()
        assert START + WEEK <= due < START + WEEK + HOUR
        client.clock.now = due - 1
        assert client.flush().sent == 0
        assert client.next_due() == due
        client.clock.now = due
        assert client.flush().sent == 1
        dues.add(due)
    assert len(dues) == 40


OPPORTUNITIES = {
    "the same metric": lambda client: client.record("app", "c"),
    "another metric": lambda client: client.record("colour", "a"),
    "flush": lambda client: client.flush(),
    "next_due": lambda client: client.next_due(),
    "ledger": lambda client: client.ledger(),
    "close": lambda client: client.close(),
}


@pytest.mark.parametrize("what", OPPORTUNITIES)
def test_every_use_after_the_period_notices_that_it_is_over(path, drawn, what):
    client = device(items(), metric("colour"), state=path)
    client.record("app", "b")
    client.clock.now = START + WEEK
    OPPORTUNITIES[what](client)
    assert drawn == [(0, 1, 0, 0)]
    assert "trial/app" in [chain.metric for chain in read_file(path).pending]


def test_every_period_has_a_count_of_its_own(drawn):
    client = device()
    for item, times in (("a", 3), ("b", 2), ("c", 1)):
        for _ in range(times):
            assert client.record("app", item) is Outcome.ACCEPTED
        client.clock.advance(days=7)
        client.flush()
    assert drawn == [(3, 0, 0, 0), (0, 2, 0, 0), (0, 0, 1, 0)]
    assert [period.reserved for period in client.ledger().periods] == [cost(client)] * 3
    assert claims_of(client) == []


def test_counts_are_clipped_and_metrics_do_not_meet(drawn):
    client = device(items(clip=3), items("page", domain=["x", "y", "z"]))
    for _ in range(10):
        assert client.record("app", "a") is Outcome.ACCEPTED
    client.record("app", "c")
    client.record("page", "y")
    client.record("page", "y")
    client.clock.advance(days=7)
    client.flush()
    assert sorted(drawn) == [(0, 2, 0, 0), (3, 0, 1, 0)]


# What no file, outcome or error may tell.


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


def test_nothing_but_the_payload_depends_on_the_items():
    def life(named):
        client = device(metric("colour"), items(), seed=5)
        told = []
        for each in named:
            told.append((client.record("app", each), client.next_due(), client.ledger()))
            client.clock.advance(hours=9)
        client.clock.now = START + WEEK + 2 * DAY
        told.append((client.flush(), client.next_due(), client.ledger()))
        sent = [report._replace(payload=b"") for report in reports(client.publisher.messages)]
        return told, sent

    assert life("aaaaaaaaaa") == life("abcabcabcz")


def test_a_count_tells_nothing_of_itself():
    client = device()
    for _ in range(1234):
        client.record("app", "b")
    (count,) = client._recorder.counter.begun
    assert "1234" not in f"{count!r} {client._recorder.counter!r} {client!r}"


# Refusals.


def test_over_budget_counts_nothing(drawn):
    client = device(metric("colour"), items(), ceilings=Ceilings(3_000_000, 10**8))
    client.record("colour", "a")
    assert [client.record("app", "a") for _ in range(3)] == [Outcome.OVER_BUDGET] * 3
    client.clock.advance(days=7)
    assert client.record("app", "b") is Outcome.ACCEPTED
    client.clock.advance(days=7)
    client.flush()
    assert drawn == [(0, 1, 0, 0)]


@pytest.mark.parametrize("noticed", [True, False])
def test_after_expiry_nothing_is_released(drawn, noticed):
    client = device(plan={"expires": START + 5 * DAY})
    client.record("app", "a")
    if noticed:
        client.clock.now = START + 5 * DAY
        assert client.record("app", "a") is Outcome.EXPIRED
    client.clock.now = START + WEEK
    assert client.flush().sent == 0
    assert (drawn, client.ledger().pending, client.next_due()) == ([], (), None)
    assert client.ledger().reserved == cost(client)


def test_a_count_that_would_come_too_late_is_dropped(drawn):
    client = device()
    client.record("app", "a")
    horizon = client.plan.metrics[0].horizon
    client.clock.now = START + WEEK - HOUR + horizon + 1
    assert client.flush().sent == 0
    assert (drawn, client.next_due(), claims_of(client)) == ([], None, [])
    client.record("app", "a")
    client.clock.now += horizon - DAY
    assert client.flush().sent == 1
    assert len(drawn) == 1


def test_a_clock_that_leaps_and_comes_back(drawn):
    client = device()
    client.record("app", "a")
    client.clock.now = START + WEEK + DAY
    client.record("app", "b")
    client.clock.now = START
    assert client.record("app", "c") is Outcome.ACCEPTED
    assert drawn == [(1, 0, 0, 0)]
    client.clock.now = START + 2 * WEEK
    client.flush()
    assert drawn == [(1, 0, 0, 0), (0, 1, 1, 0)]
    assert [period.number for period in client.ledger().periods] == [2900, 2901]


# Withdrawal.


def test_a_withdrawal_forgets_the_count_at_once(path, drawn):
    client = device(state=path)
    client.record("app", "a")
    assert client.withdraw_consent()
    assert not client._recorder.counter
    assert client.record("app", "a") is Outcome.NO_CONSENT
    client.give_consent(again=True)
    assert client.record("app", "b") is Outcome.ACCEPTED
    assert client.ledger().reserved == 2 * cost(client)
    client.clock.advance(days=7)
    client.flush()
    assert drawn == [(0, 1, 0, 0)]
    assert client.ledger().spent <= cost(client)


def test_a_withdrawal_that_cannot_be_written_forgets_it_too(path, drawn):
    client = device(state=path)
    client.record("app", "a")
    client._store.database.connection.execute("PRAGMA query_only = ON")
    assert not client.withdraw_consent()
    client._store.database.connection.execute("PRAGMA query_only = OFF")
    assert not client._recorder.counter
    assert client.record("app", "a") is Outcome.NO_CONSENT
    client.clock.advance(days=7)
    client.flush()
    assert drawn == []


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


def test_a_withdrawal_in_another_client_ends_the_count_here(path, drawn):
    here = device(state=path)
    there = device(state=path, seed=2)
    here.record("app", "a")
    there.withdraw_consent()
    there.give_consent(again=True)
    # Consent was away: what was counted before is gone, and counting costs again.
    assert here.record("app", "b") is Outcome.ACCEPTED
    assert here.ledger().reserved == 2 * cost(here)
    here.clock.advance(days=7)
    here.flush()
    assert drawn == [(0, 1, 0, 0)]


@pytest.mark.parametrize("given_again", [False, True])
def test_a_withdrawal_elsewhere_is_noticed(path, drawn, given_again):
    """At the next item, or when the period is over."""
    here, there = device(state=path), device(state=path, seed=2)
    here.record("app", "a")
    there.withdraw_consent()
    if given_again:
        there.give_consent(again=True)
        here.clock.advance(days=7)
        here.flush()
        assert (drawn, here.ledger().pending) == ([], ())
    else:
        assert here.record("app", "b") is Outcome.NO_CONSENT
        assert not here._recorder.counter


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


def test_one_client_counts_a_period(path, drawn):
    one, two = device(state=path), device(state=path, seed=2)
    assert one.record("app", "a") is Outcome.ACCEPTED
    assert two.record("app", "b") is Outcome.PERIOD_FULL
    assert one.record("app", "a") is Outcome.ACCEPTED
    for client in (two, one):
        client.clock.now = START + WEEK + DAY
        client.flush()
    assert drawn == [(2, 0, 0, 0)]
    assert two.record("app", "b") is Outcome.ACCEPTED
    assert one.record("app", "a") is Outcome.PERIOD_FULL
    assert sum(len(client.publisher.messages) for client in (one, two)) == 1


def test_a_period_that_another_client_has_begun_to_send_in_is_drawn_all_the_same(path, drawn):
    one, two = device(state=path), device(state=path, seed=2)
    one.record("app", "a")
    two.clock.now = START + WEEK + DAY
    assert two.record("app", "b") is Outcome.ACCEPTED
    one.clock.now = START + WEEK + 2 * DAY
    one.flush()
    assert drawn == [(1, 0, 0, 0)]


def test_what_is_lost_at_exit_stays_reserved_and_another_client_may_count_on(path, drawn):
    one = device(state=path)
    one.record("app", "a")
    one.close()
    two = device(state=path, seed=2)
    assert two.ledger().reserved == cost(two)
    assert two.record("app", "b") is Outcome.ACCEPTED
    assert two.ledger().reserved == cost(two)
    two.clock.advance(days=7)
    two.flush()
    assert drawn == [(0, 1, 0, 0)]


def test_a_client_that_died_takes_the_period_with_it(path, drawn):
    one = device(state=path)
    one.record("app", "a")
    one._store.database.disconnect()
    two = device(state=path, seed=2)
    assert two.record("app", "b") is Outcome.PERIOD_FULL
    two.clock.advance(days=7)
    assert two.flush().sent == 0
    assert (two.ledger().reserved, two.ledger().spent) == (cost(two), 0)
    assert two.record("app", "b") is Outcome.ACCEPTED
    assert drawn == []
    assert [period for period, _ in claims_of(two)] == [2900, 2901]
    # Nobody can use it any more when a report would come too late.
    two.clock.advance(days=28)
    two.flush()
    assert claims_of(two) == []


def test_another_version_takes_over_what_is_reserved_and_pays_the_difference(path, drawn):
    strong = items(ladder=[(500_000, 0), (3_000_000, DAY)])
    with device(state=path) as weak:
        weak.record("app", "a")
    client = device(strong, state=path, plan={"version": 2})
    client.record("app", "b")
    assert client.ledger().reserved == cost(client) > cost(weak)
    client.close()
    back = device(state=path, seed=3)
    assert back.record("app", "c") is Outcome.ACCEPTED
    assert back.ledger().reserved == cost(client)
    back.clock.advance(days=9)
    back.flush()
    assert drawn == [(0, 0, 1, 0)]
    assert back.ledger().spent == cost(back)


def test_a_period_that_another_version_has_used_otherwise_is_full(path):
    with device(metric("app"), state=path) as first:
        first.record("app", "a")
    second = device(state=path, plan={"version": 2})
    assert second.record("app", "a") is Outcome.PERIOD_FULL
    third = device(metric("app"), state=path, plan={"version": 3})
    assert third.record("app", "a") is Outcome.PERIOD_FULL


def test_threads_count_together(path, drawn):
    client = device(items(clip=60_000), state=path)
    outcomes = []

    def work(item):
        for _ in range(300):
            outcomes.append(client.record("app", item))

    threads = [threading.Thread(target=work, args=(item,)) for item in "abca"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


@pytest.mark.real_randomness
def test_a_child_that_begins_to_count_keeps_its_parent_from_it(path):
    code = """
client = device(items())
ready, go = os.pipe(), os.pipe()
def work():
    assert client.record("app", "c") is Outcome.ACCEPTED
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    client.clock.advance(days=8)
    assert client.flush().sent == 1
pid = child(work)
os.read(ready[0], 1)
assert client.record("app", "a") is Outcome.PERIOD_FULL
os.write(go[1], b"x")
wait(pid)
client.clock.advance(days=9)
assert client.flush().sent == 1
(report,) = reports(client.publisher.messages)
assert report.level == 1
"""
    run(code, path)


# Stores that fail.


STATEMENTS = ["BEGIN", "DELETE FROM counting", "INSERT INTO pseudonym", "INSERT INTO chain"]


@pytest.mark.parametrize(
    ("prefix", "after"), [*((each, False) for each in (*STATEMENTS, "COMMIT")), ("COMMIT", True)]
)
def test_what_was_drawn_and_could_not_be_stored_is_stored_later(path, drawn, prefix, after):
    """Or was, by a commit that came through without saying so: no second chain is drawn."""
    client = device(state=path)
    client.record("app", "b")
    client.clock.now = START + WEEK
    client._store.keep_up(2901 * WEEK)
    with failing(client, prefix, after=after), pytest.raises(StoreError):
        client._recorder.counter.settle(client.clock.now)
    (count,) = client._recorder.counter.begun
    first = count.chain
    assert first is None or count._counts == []
    client.clock.advance(days=2)
    assert client.flush().sent == 1
    assert (drawn, client._recorder.counter.begun) == ([(0, 1, 0, 0)], [])
    (report,) = reports(client.publisher.messages)
    assert first is None or report.payload in first.payloads


def test_a_clock_set_back_behind_a_draw_that_could_not_be_stored(path, drawn):
    client = device(state=path)
    client.record("app", "b")
    client.clock.now = START + WEEK
    with failing(client, "COMMIT"):
        assert client.record("app", "a") is Outcome.STORE_FULL
    client.clock.now = START
    assert client.record("app", "c") is Outcome.ACCEPTED
    client.clock.now = START + 8 * DAY
    assert client.flush().sent == 1
    assert drawn == [(0, 1, 0, 0)]
    assert client.ledger().reserved == cost(client)


@pytest.mark.parametrize(
    "prefix", ["BEGIN IMM", "INSERT OR REPLACE", "INSERT INTO ledger", "COMMIT"]
)
@pytest.mark.parametrize("after", [False, True])
def test_an_item_that_could_not_be_charged_is_not_counted(path, drawn, prefix, after):
    client = device(state=path)
    with failing(client, prefix, after=after):
        assert client.record("app", "a") is Outcome.STORE_FULL
    came_through = prefix == "COMMIT" and after
    assert client.ledger().reserved == (cost(client) if came_through else 0)
    assert client.record("app", "b") is Outcome.ACCEPTED
    assert client.ledger().reserved == cost(client)
    client.clock.advance(days=7)
    client.flush()
    assert drawn == [(1, 1, 0, 0) if came_through else (0, 1, 0, 0)]


def test_a_store_that_fails_while_the_period_ends_does_not_stop_other_metrics(path, drawn):
    client = device(items(), metric("colour"), state=path)
    client.record("app", "a")
    client.clock.now = START + WEEK
    with failing(client, "INSERT INTO pseudonym"):
        assert client.record("colour", "a") is Outcome.STORE_FULL
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert len(client.ledger().pending) == 2
    assert drawn == [(1, 0, 0, 0)]


def test_a_copy_of_the_file_has_no_count(path, tmp_path, drawn):
    client = device(state=path)
    client.record("app", "a")
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    restored = device(state=copy, seed=2)
    restored.clock.now = client.clock.now = START + WEEK + DAY
    assert restored.flush().sent == 0
    assert client.flush().sent == 1
    assert len(drawn) == 1
