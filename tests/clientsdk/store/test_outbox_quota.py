"""A bounded outbox: what is refused, what is erased, and that neither depends on a value."""

from __future__ import annotations

import logging

import pytest
from device_plans import VAST, plan, seeded, string

from clientsdk import Outcome, Quota
from clientsdk.settings import SMALLEST_QUOTA


@pytest.fixture(params=["file", "memory"])
def state(request, tmp_path):
    return tmp_path / "device.db" if request.param == "file" else None


def test_a_full_outbox_refuses_and_drops_nothing(state, caplog):
    client = seeded(
        plan(string("word", kind="every", limit=100_000), ceilings=VAST),
        state=state,
        quota=Quota(bytes=SMALLEST_QUOTA),
    )
    outcomes = [client.record("word", "dark") for _ in range(3000)]
    taken = outcomes.count(Outcome.ACCEPTED)
    assert 300 < taken < 3000
    assert set(outcomes[taken:]) == {Outcome.STORE_FULL}
    ledger = client.ledger()
    assert len(ledger.pending) == taken
    assert ledger.reserved == taken * client.plan.metrics[0].mechanism.certified(2)
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert told.getMessage() == "values are being dropped: the quota is used up"
    if state is not None:
        assert state.stat().st_size <= SMALLEST_QUOTA + 8192
    # Reports that are sent make room again.
    client.clock.advance(days=8)
    assert client.flush().sent == taken
    assert client.record("word", "dark") is Outcome.ACCEPTED
