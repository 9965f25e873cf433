"""Clocks that are wrong: what is impossible is refused, and a clock that leapt is followed back."""

from __future__ import annotations

from unittest.mock import Mock

from device_plans import START, WEEK, metric, plan, seeded

from clientsdk import Outcome
from clientsdk.testing import FakeClock

YEAR = 52 * WEEK
#: Nine years after the beginning, before the plan expires.
AHEAD = START + 9 * YEAR
CEILINGS = {"period": 14_000_000, "lifetime": 400_000_000}


def device(*metrics, **options):
    return seeded(plan(*metrics, ceilings=CEILINGS), **options)


def numbers(client):
    return [period.number - START // WEEK for period in client.ledger().periods]


def test_a_process_that_was_stopped_does_not_take_the_others_back(path, monkeypatch):
    """Its reading was right when it was made: the clock is read again first."""
    one, other = (device(metric("many", "every", 3), state=path, seed=seed) for seed in (1, 2))
    other.clock.now = START + 3 * WEEK
    assert other.record("many", "a") is Outcome.ACCEPTED
    readings = [START]
    monkeypatch.setattr(one, "_now", lambda: readings.pop() if readings else START + 3 * WEEK)
    one.clock.now = START + 3 * WEEK
    assert one.record("many", "a") is Outcome.ACCEPTED
    assert numbers(one) == [3]
    assert len(one.ledger().pending) == 2


def test_a_clock_set_within_a_recording_joins_no_two_periods(path, monkeypatch):
    """The second reading decides; the first may be of a period with another pseudonym."""
    client = device(metric("many", "every", 3), state=path, clock=FakeClock(AHEAD))
    client.record("many", "a")
    monkeypatch.setattr(client, "_now", lambda: START + 5 * WEEK)
    client.clock.now = START + 2 * WEEK
    assert client.record("many", "a") is Outcome.ACCEPTED
    (chain,) = client.ledger().pending
    assert (chain.period, chain.event) == (START // WEEK + 2, START + 2 * WEEK)


def test_the_sender_outlives_a_clock_that_raises(path, monkeypatch, caplog):
    client = device(metric("many", "every", 3), state=path, background=True)

    worker = client._worker
    monkeypatch.setattr(client._outgoing, "_now", Mock(side_effect=RuntimeError("Qzx7")))
    assert worker._step().seconds > 0
    assert not worker._due()
    assert caplog.messages == ["reports are kept, to be sent later: a flush raised RuntimeError"]
    monkeypatch.undo()
    assert worker._step().seconds > 0
    client.close()
