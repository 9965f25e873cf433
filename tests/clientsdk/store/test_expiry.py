"""Data without further use is erased: files kept aside, chains of expired plans, old tallies."""

from __future__ import annotations

import os

from device_plans import START, WEEK, metric, plan, raw, string

from clientsdk import Lapses
from clientsdk.ledger import ALL_METRICS, read_file
from clientsdk.store.database import TransactionAccess
from clientsdk.testing import FakeClock, SeededClient

VAST = {"period": 10**9, "lifetime": 10**10}
COLOUR, WORD = metric("colour", "every", 9), string("word", kind="every", limit=9)
HORIZON = plan(COLOUR, WORD, ceilings=VAST).horizon


def device(path, *metrics, now=START, seed=1, **options):
    compiled = plan(*metrics or (COLOUR, WORD), ceilings=VAST, **options)
    return SeededClient(compiled, seed=seed, state=path, clock=FakeClock(now))


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


def test_what_an_older_version_kept_aside_goes_too(path):
    """It has the time of its last change, by the clock of the system."""
    kept = damaged(path)
    os.utime(kept, (START / 1000 - 1, START / 1000 - 1))
    device(path, now=START + HORIZON, seed=3).close()
    assert not kept.exists()


# Tallies by metric, in the ledger.


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
