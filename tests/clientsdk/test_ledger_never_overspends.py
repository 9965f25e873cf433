"""Any sequence of recordings, sendings, crashes, clocks, plans, consents: the ledger holds."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from unittest import mock

import hypothesis.strategies as st
import pytest
from device_plans import CONSTANT, DAY, HOUR, START, WEEK, counted, items, metric, plan, reports
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from clientsdk import Consent, MemoryPublisher, Outcome, client
from clientsdk.store import database, store
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PublishError
from sotto.plan.compiled import Ceilings

SOONER = [(500_000, 0), (1_000_000, DAY), (1_500_000, 3 * DAY)]


def _plans():
    tight = {"period": 5_000_000, "lifetime": 30_000_000}
    wide = {"period": 12_000_000, "lifetime": 60_000_000}
    colour, many = metric("colour"), metric("many", "every", 2, ladder=SOONER)
    kept = metric("kept", "reservoir")
    strong = metric("kept", "reservoir", ladder=[(1_000_000, WEEK), (2_500_000, 2 * WEEK)])
    small = metric("colour", ladder=[(250_000, HOUR)])
    model, app = metric("model", "constant", ladder=CONSTANT), items(ladder=SOONER[:2])
    other = metric("model", "constant", ladder=[*CONSTANT[:2], (1_500_000, DAY)])
    return [
        plan(colour, many, kept, model, app, ceilings=wide),
        plan(colour, many, strong, other, app, ceilings=wide, version=2),
        plan(small, kept, model, ceilings=tight, version=3),
        plan(many, model, app, plan="other", ceilings=wide, expires=START + 6 * WEEK),
    ]


YEAR = 52 * WEEK
PLANS = _plans()
#: Thousands of durable commits are quick there.
MEMORY = Path("/dev/shm")
#: Of a clock, wrong ones included.
STEPS = [HOUR, DAY, 3 * DAY, WEEK, 3 * WEEK, -HOUR, -DAY, -WEEK, -3 * WEEK]
LEAPS = [YEAR, 10 * YEAR, 80 * YEAR, -YEAR, -10 * YEAR, -80 * YEAR]
AMOUNTS = st.integers(500_000, 12_000_000)


def in_doubt(ledger):
    """Whether a report has left of which nobody knows whether it arrived."""
    return any(chain.charged > chain.delivered for chain in ledger.pending)


def booked(ledger):
    """What is reserved in all, and in each period."""
    return ledger.reserved, {period.number: period.reserved for period in ledger.periods}


class Publisher(MemoryPublisher):
    """Takes a message, or fails before or after taking it."""

    fate = "take"

    def publish(self, shard, message):
        if self.fate != "refuse":
            super().publish(shard, message)
        if self.fate == "crash":
            raise KeyboardInterrupt
        if self.fate != "take":
            raise PublishError("no broker")


class Device(RuleBasedStateMachine):
    """One device's file through its life; what an aggregator counts is kept beside it."""

    def __init__(self):
        super().__init__()
        self.patches = ExitStack()
        # Refusals are remembered for a twentieth of a second: here until the next look.
        for module in (client, store, database):
            self.patches.enter_context(mock.patch.object(module, "monotonic", count().__next__))
        self.directory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.clock = FakeClock(START)
        self.publisher = Publisher()
        self.pinned = None
        self.seed = 0
        self.doubt = False
        self.before = {}
        self.open(0, None)
        self.client.give_consent()
        #: After the last step.
        self.ledger = self.client.ledger()

    def open(self, number, ceilings):
        self.seed += 1
        self.plan = PLANS[number]
        wanted = self.plan.ceilings
        for other in (ceilings, self.pinned):
            if other is not None:
                wanted = Ceilings(
                    min(wanted.period, other.period), min(wanted.lifetime, other.lifetime)
                )
        self.client = SeededClient(
            self.plan,
            seed=self.seed,
            state=Path(self.directory.name) / "device.db",
            clock=self.clock,
            publisher=self.publisher,
            ceilings=ceilings,
            consent=False,
        )
        self.pinned = wanted
        assert self.client.ledger().ceilings == wanted

    @rule(name=st.sampled_from(["colour", "many", "kept", "model", "app"]), times=st.integers(1, 3))
    def record(self, name, times):
        self.record_each([name] * times)

    @rule()
    def record_everything(self):
        self.record_each(["colour", "many", "kept", "model", "app"])

    def record_each(self, names):
        known = {each.name for each in self.plan.metrics}
        before = self.client.ledger()
        for name in filter(known.__contains__, names):
            outcome = self.client.record(name, "a")
            after = self.client.ledger()
            if outcome is not Outcome.ACCEPTED:
                assert booked(after) == booked(before)
            if booked(after) != booked(before):
                (period,) = (each for each in after.periods if each.number == after.period)
                assert period.reserved <= min(self.pinned.period, self.plan.ceilings.period)
                assert after.reserved <= min(self.pinned.lifetime, self.plan.ceilings.lifetime)
            if outcome is Outcome.ACCEPTED:
                assert after.consent is Consent.GIVEN
                assert self.clock.now < self.plan.expires
            before = after

    @rule(fate=st.sampled_from(["take", "take", "take", "refuse", "lose the answer", "crash"]))
    def flush(self, fate):
        self.publisher.fate = fate
        before = self.client.ledger()
        try:
            result = self.client.flush()
        except KeyboardInterrupt:
            return
        finally:
            self.publisher.fate = "take"
        after = self.client.ledger()
        self.doubt |= in_doubt(before) and result.lapsed > 0
        assert result.remaining == 0 or fate != "take"
        if before.consent is not Consent.GIVEN:
            assert (result.sent, after.spent) == (0, before.spent)
        if after.spent > before.spent:
            assert after.spent <= self.pinned.lifetime
            was = {period.number: period.spent for period in before.periods}
            for period in after.periods:
                assert period.spent in (was[period.number], min(period.spent, self.pinned.period))

    @rule(step=st.sampled_from(STEPS))
    def move_the_clock(self, step):
        self.clock.now += step

    @rule(leap=st.sampled_from(LEAPS), uses=st.integers(0, 2))
    def leap_and_come_back(self, leap, uses):
        now = self.clock.now
        self.clock.now = now + leap
        for _ in range(uses):
            self.record_everything()
            self.flush("take")
        self.clock.now = now

    @rule()
    def wait_for_the_next_rung(self):
        due = self.client.next_due()
        if due is not None:
            self.clock.now = max(self.clock.now, due)

    @rule(number=st.integers(0, len(PLANS) - 1), ceilings=st.none() | AMOUNTS, clean=st.booleans())
    def start_again(self, number, ceilings, clean):
        if clean:
            self.client.close()
        else:
            # The connection goes without the tidying of a close.
            self.client._store.database.disconnect()
        self.open(number, None if ceilings is None else Ceilings(ceilings, 5 * ceilings))

    @rule()
    def agree(self):
        self.client.give_consent(again=True)

    @precondition(lambda self: self.pinned.period < 4_000_000)
    @rule(amount=AMOUNTS)
    def agree_to_more(self, amount):
        self.pinned = Ceilings(amount, 5 * amount)
        self.client.renew_consent(self.pinned, again=True)

    @precondition(lambda self: self.ledger.pending)
    @rule()
    def opt_out(self):
        before = self.ledger
        self.doubt |= in_doubt(before)
        self.client.withdraw_consent()
        after = self.client.ledger()
        assert after.pending == ()
        assert (after.reserved, after.spent) == (before.reserved, before.spent)

    @invariant()
    def the_ledger_holds(self):
        ledger = self.client.ledger()
        aggregator = self.counted_by_period()
        promised = {}
        for chain in ledger.pending:
            assert 0 <= chain.delivered <= chain.charged <= chain.levels
            promised[chain.period] = promised.get(chain.period, 0) + chain.reserved
        after = {period.number: period for period in ledger.periods}
        for number, period in after.items():
            assert aggregator.pop(number, 0) <= period.spent <= period.reserved
            assert promised.pop(number, 0) <= period.reserved
            old = self.before.get(number)
            assert old is None or (old.reserved <= period.reserved and old.spent <= period.spent)
        assert not aggregator
        assert not promised
        assert self.before.keys() <= after.keys()
        accounts = self.client._store.accounts
        assert ledger.reserved == accounts.lifetime_reserved
        assert ledger.spent == accounts.lifetime_spent
        assert ledger.spent <= ledger.reserved
        self.before, self.ledger = after, ledger

    def counted_by_period(self):
        sent = reports(self.publisher.messages)
        periods = {report.pseudonym: report.event // WEEK for report in sent}
        assert len(periods) == len(set(periods.values()))
        return {periods[name]: cost for name, cost in counted(sent, PLANS).items()}

    def teardown(self):
        """Once everything is delivered, the aggregator counts what was spent."""
        while (due := self.client.next_due()) is not None:
            self.clock.now = max(self.clock.now, due)
            doubtful = in_doubt(self.client.ledger())
            counting = bool(self.client._recorder.counter)
            result = self.client.flush()
            # A count may be dropped, as where the plan expires before the period ends.
            assert result.sent + result.lapsed > 0 or counting
            self.doubt |= doubtful and result.lapsed > 0
        assert self.client.ledger().pending == ()
        spent = {p.number: p.spent for p in self.client.ledger().periods if p.spent}
        aggregator = self.counted_by_period()
        assert aggregator == spent or (self.doubt and aggregator.keys() <= spent.keys())
        self.client.close()
        self.directory.cleanup()
        self.patches.close()


def lives(number):
    """So many lives of a device, the same in every run."""
    return settings(
        max_examples=number,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


class TestFewLives(Device.TestCase):
    settings = lives(12)


@pytest.mark.slow
class TestManyLives(Device.TestCase):
    settings = lives(120)
