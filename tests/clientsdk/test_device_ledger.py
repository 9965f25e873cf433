"""The ledger as people read it: from the client, and from the file beside a running app."""

from __future__ import annotations

import pytest
from device_plans import HOUR, START, WEEK, alter, plan
from scripts import run

from clientsdk import Consent
from clientsdk.ledger import read_file
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import StoreError
from sotto.plan.compiled import Ceilings


def device(path, **options):
    return SeededClient(plan(), seed=1, state=path, clock=FakeClock(START), **options)


def test_what_the_ledger_says(path):
    client = device(path)
    certified = client.plan.metric("colour").mechanism.certified
    client.record("colour", "a")
    client.record("colour", "a")
    client.clock.advance(hours=2)
    client.flush()
    ledger = client.ledger()
    assert (ledger.collector, ledger.period) == ("fleet.example", 2900)
    assert ledger.consent is Consent.GIVEN
    assert ledger.ceilings == Ceilings(12_000_000, 640_000_000)
    (period,) = ledger.periods
    assert (period.number, period.start, period.end) == (2900, START, START + WEEK)
    assert (period.reserved, period.spent) == (certified(2), certified(0))
    assert (ledger.reserved, ledger.spent) == (certified(2), certified(0))
    assert period.recordings == {"trial/colour": 1}
    assert len(period.pseudonym) == 32
    (chain,) = ledger.pending
    assert (chain.metric, chain.event) == ("trial/colour", START)
    assert (chain.charged, chain.delivered, chain.levels) == (1, 1, 3)
    assert (chain.spent, chain.reserved) == (certified(0), certified(2))
    assert START + 25 * HOUR <= chain.due < START + 26 * HOUR


def test_the_file_says_the_same_while_it_is_in_use_and_after(path):
    client = device(path)
    client.record("colour", "a")
    assert read_file(path) == client.ledger()
    ledger = client.ledger()
    client.close()
    content = path.read_bytes()
    assert read_file(path) == ledger
    assert path.read_bytes() == content
    assert {file.name for file in path.parent.iterdir()} == {path.name, path.name + "-mark"}


def test_what_is_no_device_s_file(path):
    with pytest.raises(StoreError, match="read"):
        read_file(path)
    assert not path.exists()
    path.write_bytes(b"x" * 10_000)
    with pytest.raises(StoreError, match="read"):
        read_file(path)


@pytest.mark.real_randomness
def test_a_file_that_was_left_by_a_crash_says_the_same_before_and_after(path):
    run("client = device(metric('colour')); client.record('colour', 'a'); os._exit(0)", path)
    assert path.with_name("device.db-wal").exists()
    ledger = read_file(path)
    assert len(ledger.pending) == 1
    assert read_file(path) == ledger


def test_a_file_of_before_there_were_measures_has_none(path):
    device(path).close()
    for change in ("DROP TABLE measure", "PRAGMA user_version = 7"):
        alter(path, change)
    assert read_file(path).measured == ()


OTHER = plan(version=7).to_json().hex()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM device", "damaged"),
        ("UPDATE device SET consent = 'perhaps'", "damaged"),
        ("UPDATE ledger SET tallies = '{'", "damaged"),
        ("UPDATE chain SET due = 'x', charged = 'x'", "damaged"),
        ("UPDATE chain SET metric = 9", "fit"),
        ("UPDATE chain SET metric = 0, charged = 4", "fit"),
        ("UPDATE chain SET charged = -1", "fit"),
        ("DELETE FROM plan", "not in"),
        ("UPDATE plan SET body = x'7b7d'", "plan in the device's store 'device.db' cannot be read"),
        (f"UPDATE plan SET body = x'{OTHER}'", "not the one"),
    ],
)
def test_a_damaged_file_cannot_be_read(path, damage, message):
    with device(path) as client:
        client.record("colour", "a")
    alter(path, damage)
    with pytest.raises(StoreError, match=message):
        read_file(path)
