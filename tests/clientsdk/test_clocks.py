"""Clocks that are wrong: what is impossible is refused, and a clock that leapt is followed back."""

from __future__ import annotations

import random

import pytest
from device_plans import CONSTANT, DAY, START, WEEK, counted, items, metric, plan, reports

from clientsdk import Outcome
from clientsdk.testing import FakeClock, SeededClient
from sotto.clocks import EARLIEST, LATEST
from sotto.plan.compiled import Ceilings

YEAR = 52 * WEEK
#: Nine years after the beginning, before the plan expires.
AHEAD = START + 9 * YEAR
METRICS = (
    metric("colour"),
    metric("many", "every", 3),
    metric("kept", "reservoir"),
    metric("model", "constant", ladder=CONSTANT),
    items(),
)
NAMES = [each["name"] for each in METRICS]
CEILINGS = {"period": 14_000_000, "lifetime": 400_000_000}


def device(*metrics, state=None, **options):
    compiled = plan(*metrics, ceilings=CEILINGS)
    options = {"seed": 1, "clock": FakeClock(START), **options}
    return SeededClient(compiled, state=state, **options)


def numbers(client):
    return [period.number - START // WEEK for period in client.ledger().periods]


@pytest.mark.parametrize("now", [EARLIEST, LATEST - 1])
def test_at_the_bounds_it_can_be(now):
    client = device(clock=FakeClock(now))
    assert client.record("colour", "a") is (Outcome.ACCEPTED if now < START else Outcome.EXPIRED)


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

    def broken():
        raise RuntimeError("Qzx7")

    worker = client._worker
    monkeypatch.setattr(client._outgoing, "_now", broken)
    assert worker._step().seconds > 0
    assert not worker._due()
    assert caplog.messages == ["reports are kept, to be sent later: a flush raised RuntimeError"]
    monkeypatch.undo()
    assert worker._step().seconds > 0
    client.close()


class Walk:
    """A device whose clock walks at random, with what an aggregator would know of it."""

    def __init__(self, path, seed, value):
        self.random = random.Random(seed)
        self.value = value
        self.client = device(
            *METRICS, state=path, seed=seed, ceilings=Ceilings(8_000_000, 300_000_000)
        )
        self.outcomes = []
        self.sent_at = []
        self.before = {}

    def step(self):
        client, draw = self.client, self.random
        kind = draw.randrange(8)
        now = client.clock.now
        if kind < 3:
            client.clock.now = now + draw.randrange(2 * DAY)
        elif kind == 3:
            client.clock.now = now + draw.randrange(-2 * WEEK, 3 * WEEK)
        elif kind == 4:
            client.clock.now = START + draw.choice([-1, 1]) * draw.randrange(12 * YEAR)
        elif kind == 5:
            client.clock.now = START + draw.randrange(4) * WEEK
        for name in draw.choices(NAMES, k=4):
            self.outcomes.append(client.record(name, self.value))
            client._store.refusals.clear()
        if draw.randrange(3):
            self.outcomes.append(client.flush().sent)
            self.sent_at += [client.clock.now] * (
                len(client.publisher.messages) - len(self.sent_at)
            )

    def check(self):
        client = self.client
        sent = reports(client.publisher.messages)
        periods = {report.pseudonym: report.event // WEEK for report in sent}
        # Each period has one pseudonym for good, whose audit is therefore that of the period.
        assert len(periods) == len(set(periods.values()))
        audit = counted(sent, [client.plan])
        ledger = client.ledger()
        after = {period.number: period for period in ledger.periods}
        for pseudonym, cost in audit.items():
            assert cost <= after[periods[pseudonym]].spent
        for number, period in after.items():
            assert period.spent <= period.reserved <= 8_000_000
            old = self.before.get(number)
            assert old is None or (old.reserved <= period.reserved and old.spent <= period.spent)
        assert self.before.keys() <= after.keys()
        assert ledger.spent <= ledger.reserved <= 300_000_000
        events = [max(each.event for each in reports([one])) for one in client.publisher.messages]
        assert all(event < at for event, at in zip(events, self.sent_at, strict=True))
        self.before = after


def walk(folder, seed, value, steps=120):
    walked = Walk(folder / f"{seed}-{value}.db", seed, value)
    for number in range(steps):
        walked.step()
        if number % 10 == 9:
            walked.check()
    return walked


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_however_a_clock_walks_no_budget_is_spent_twice_and_outcomes_show_no_value(tmp_path, seed):
    one, other = (walk(tmp_path, seed, value) for value in "ab")
    assert one.outcomes == other.outcomes
    assert [p.reserved for p in one.before.values()] == [p.reserved for p in other.before.values()]
    # With the clock right again, it records again while its lifetime lasts.
    client = one.client
    now = START + 20 * WEEK
    for _ in range(12):
        client.clock.now = now = now + WEEK
        outcome = client.record("colour", "a")
        assert outcome in (Outcome.ACCEPTED, Outcome.OVER_BUDGET, Outcome.PERIOD_FULL)
        left = 300_000_000 - client.ledger().reserved
        free = now // WEEK not in one.before
        assert outcome is Outcome.ACCEPTED or left < 2_000_000 or not free
        client._store.refusals.clear()
