"""Data without further use is erased: files kept aside, chains of expired plans, old tallies."""

from __future__ import annotations

import os

from device_plans import START, metric, plan, string

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
