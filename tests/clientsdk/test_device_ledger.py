"""The ledger as people read it: from the client, and from the file beside a running app."""

from __future__ import annotations

import pytest
from device_plans import HOUR, START, WEEK, plan
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
