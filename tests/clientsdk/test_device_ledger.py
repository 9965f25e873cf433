"""The ledger as people read it: from the client, and from the file beside a running app."""

from __future__ import annotations

import pytest
from scripts import run

from clientsdk.ledger import read_file


@pytest.mark.real_randomness
def test_a_file_that_was_left_by_a_crash_says_the_same_before_and_after(path):
    run("client = device(metric('colour')); client.record('colour', 'a'); os._exit(0)", path)
    assert path.with_name("device.db-wal").exists()
    ledger = read_file(path)
    assert len(ledger.pending) == 1
    assert read_file(path) == ledger
