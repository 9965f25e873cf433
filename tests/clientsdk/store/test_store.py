"""What a store is pinned to, and what a store does that cannot be used."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing

import pytest
from device_plans import START, VAST, WEEK, alter, failing, metric, plan, reports, tables

from clientsdk import NO_LIFETIME_BOUND, Client, Consent, MemoryPublisher, Outcome, diagnostics
from clientsdk.ledger import read_file
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings


def device(path, compiled=None, seed=1, **options):
    options.setdefault("clock", FakeClock(START))
    return SeededClient(compiled or plan(), seed=seed, state=path, **options)


def with_ceilings(period, lifetime, **changes):
    return plan(ceilings={"period": period, "lifetime": lifetime}, **changes)


def test_the_ledger_refuses_to_spend_what_was_not_reserved(path):
    device(path).close()
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO ledger VALUES (1, 5, 6, '{}')")


# Pins.


def test_another_collector_or_period_is_refused_and_nothing_changes(path):
    device(path).close()
    content = path.read_bytes()
    with pytest.raises(PlanError, match=r"collector 'other.example'.*pinned to 'fleet.example'"):
        device(path, plan(collector="other.example"))
    with pytest.raises(PlanError, match=rf"period {2 * WEEK}.*pinned to {WEEK}"):
        device(path, plan(period=2 * WEEK))
    assert path.read_bytes() == content


def test_a_raised_ceiling_admits_nothing_until_consent_is_renewed(path):
    ladder = [(3_000_000, 0)]
    low = plan(ceilings={"period": 3_000_000, "lifetime": 30_000_000})
    high = plan(
        metric("colour", ladder=ladder),
        metric("size", ladder=ladder),
        ceilings={"period": 6_000_000, "lifetime": 60_000_000},
        version=2,
    )
    device(path, low).close()
    client = device(path, high)
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client.record("size", "a") is Outcome.OVER_BUDGET
    client.renew_consent(high.ceilings)
    assert client.record("size", "a") is Outcome.ACCEPTED
    assert client.ledger().ceilings == high.ceilings


def test_ceilings_from_the_app_lower_the_plans_and_cannot_raise_them(path):
    with device(path, ceilings=Ceilings(2_500_000, 10**12)) as client:
        assert client.ledger().ceilings == Ceilings(2_500_000, 640_000_000)
    with device(path) as client:
        assert client.ledger().ceilings == Ceilings(2_500_000, 640_000_000)
        client.renew_consent()
        assert client.ledger().ceilings == client.plan.ceilings


def test_ceilings_are_epsilons_and_round_down(path):
    with device(path, ceilings=(0.3000019, 300)) as client:
        assert client.ledger().ceilings == Ceilings(300_001, 300_000_000)


def test_ceilings_under_which_nothing_fits_are_logged(path, caplog, monkeypatch):
    monkeypatch.setattr(diagnostics, "_last_logged", {})
    with device(path, ceilings=(2, 2)):
        pass
    assert not caplog.records
    with device(path, ceilings=(1.9, 60)) as client:
        (told,) = caplog.records
        assert "nothing can be recorded: one value costs 2000000" in told.getMessage()
        assert client.ledger().ceilings == Ceilings(1_900_000, 2_000_000)
        client.give_consent()
        assert client.record("colour", "a") is Outcome.OVER_BUDGET


# Stores that cannot be used.


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE theirs (x)", "another application"),
        ("PRAGMA user_version = 99", "schema 99; this version reads 7"),
    ],
)
def test_a_database_of_another_application_or_of_a_later_version(path, statement, message):
    if "user_version" in statement:
        device(path).close()
    alter(path, statement)
    for use in (device, read_file):
        with pytest.raises(StoreError, match=message):
            use(path)


@pytest.mark.parametrize(
    "content", [None, b"this is not a database" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_file_that_is_no_database_or_has_no_place(tmp_path, content):
    path = tmp_path / "device.db" if content else tmp_path / "none" / "device.db"
    if content:
        path.write_bytes(content)
    with pytest.raises(StoreError):
        device(path)
    assert content is None or path.read_bytes() == content


def test_the_tables_are_those_of_the_schema_s_version(path):
    """Another definition needs another version: change both together."""
    device(path).close()
    assert tables(path) == (7, "57efe7e4ef87d352")


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


@pytest.mark.parametrize(
    "prefix", ["BEGIN", "PRAGMA data_version", "INSERT INTO chain", "INSERT INTO ledger", "COMMIT"]
)
@pytest.mark.parametrize("message", ["database or disk is full", "disk I/O error"])
def test_a_record_that_fails_anywhere_leaves_nothing(path, prefix, message):
    client = device(path, plan(metric("colour", "every", 9), ceilings=VAST))
    client.record("colour", "a")
    before = client.ledger()
    with failing(client, prefix, message):
        assert client.record("colour", "a") is Outcome.STORE_FULL
        assert client.record("colour", "a") is Outcome.STORE_FULL
    assert client.ledger() == before
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client.ledger().periods[0].recordings == {"trial/colour": 2}


@pytest.mark.parametrize("prefix", ["UPDATE ledger", "UPDATE chain SET charged", "COMMIT"])
def test_what_cannot_be_charged_is_not_sent(path, prefix):
    client = device(path)
    client.record("colour", "a")
    client.clock.advance(hours=3)
    with failing(client, prefix, "database or disk is full"):
        if prefix == "COMMIT":
            with pytest.raises(StoreError, match="full"):
                client.flush()
        else:
            result = client.flush()
            assert (result.sent, result.remaining) == (0, 1)
            assert isinstance(result.error, StoreError)
    assert client.publisher.messages == []
    assert client.flush().sent == 1


def test_what_cannot_be_marked_as_delivered_is_sent_again(path):
    client = device(path)
    client.record("colour", "a")
    client.clock.advance(hours=3)
    with failing(client, "UPDATE chain SET due", "database or disk is full"):
        result = client.flush()
    assert (result.sent, result.remaining) == (0, 1)
    assert client.flush().sent == 1
    one, two = client.publisher.messages
    assert one == two
    assert len({report.payload for report in reports([one, two])}) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM device",
        "DELETE FROM secret",
        "UPDATE secret SET value = 'x'",
        "UPDATE device SET consent = 'perhaps'",
        "UPDATE device SET period = 'x'",
        "UPDATE ledger SET reserved = 'x'",
        "UPDATE ledger SET tallies = '{'",
        "UPDATE ledger SET tallies = '[1]'",
        """UPDATE ledger SET tallies = '{"trial/model": "x"}'""",
        "UPDATE permanent SET response = 'x'",
        "UPDATE permanent SET response = 7",
    ],
)
def test_a_damaged_file_refuses_and_no_error_leads_to_a_value(path, damage):
    compiled = plan(metric("model", "constant", ladder=[(500_000, 0), (2_000_000, 0)]))
    client = device(path, compiled)
    client.record("model", "a")
    client.clock.advance(days=7)
    client._store.keep_up(2901 * WEEK)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO ledger VALUES (2901, 0, 0, '{}')")
        connection.execute(damage)
    assert client.record("model", "b") is Outcome.STORE_FULL
    if "permanent" not in damage:
        for use in (client.flush, client.ledger):
            with pytest.raises(StoreError):
                use()
        assert not client.withdraw_consent()
        with device(path, compiled, consent=False) as again:
            assert again.ledger().damaged == 1
            assert again.consent is Consent.WITHDRAWN
            assert again.record("model", "b") is Outcome.NO_CONSENT


def test_a_store_that_is_locked_for_long_refuses(path, monkeypatch):
    monkeypatch.setattr("clientsdk.store.schema.PATIENCE", 0.05)
    client = device(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert client.record("colour", "a") is Outcome.STORE_FULL
        other.execute("ROLLBACK")
    assert client.record("colour", "a") is Outcome.ACCEPTED


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
