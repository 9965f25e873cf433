"""Random lives: any sequence of steps, by hypothesis; what fails is printed as a scenario."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from device_machine import DeviceMachine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from scenario_plans import epsilon

from clientsdk import Outcome
from sotto.plan.compiled import Ceilings

WIDE, SOONER = "ceilings 12 60", "ladder 0.5 1@1d 1.5@3d"
PLANS = {
    "first": f"colour, many every 2 {SOONER}, kept reservoir, model constant,"
    f" app items ladder 0.5 1@1d, {WIDE}",
    "second": f"colour, many every 2 {SOONER}, kept reservoir ladder 1@1w 2.5@2w,"
    f" model constant ladder 0.5 1@1d 1.5@1d, app items ladder 0.5 1@1d, {WIDE}, version 2",
    "tight": "colour ladder 0.25@1h, kept reservoir, model constant, ceilings 5 30, version 3",
    "other": f"many every 2 {SOONER}, model constant, app items ladder 0.5 1@1d, {WIDE},"
    " plan other, expires 6w",
}
#: Thousands of durable commits are quick there.
MEMORY = Path("/dev/shm")
#: Steps of a clock, wrong ones included.
WAITS = ["1h", "1d", "3d", "1w", "3w", "-1h", "-1d", "-1w", "-3w"]
LEAPS = ["1y", "10y", "80y", "-1y", "-10y", "-80y"]
AMOUNTS = st.integers(500_000, 12_000_000)
NAMES = ["colour", "many", "kept", "model", "app"]


class RandomLife(RuleBasedStateMachine):
    """One device's file through its life, whose clients remember no refusal for a moment."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.machine = DeviceMachine(Path(self.folder.name, "device.db"))
        self.begin()

    @property
    def client(self):
        return self.machine.clients["a"]

    def step(self, text):
        self.machine.moment += 1
        return self.machine.run(text)

    @rule(wait=st.sampled_from(WAITS))
    def wait(self, wait):
        self.step(f"wait {wait}")

    @rule()
    def agree(self):
        self.step("agree again")

    def teardown(self):
        try:
            self.end()
        finally:
            self.machine.end()
            self.folder.cleanup()

    def end(self):
        """Look once more at the whole."""


class SoundFiles(RandomLife):
    """Recordings, sendings, crashes, clocks, plans, consents: the ledger holds to the penny."""

    def begin(self):
        for name, text in PLANS.items():
            self.step(f"plan {name}: {text}")
        self.pinned = None
        #: Whether a report may have left of which nobody knows whether it arrived, and never will.
        self.doubt = False
        self.start("first", None, clean=True)

    @rule(plan=st.sampled_from([*PLANS]), ceilings=st.none() | AMOUNTS, clean=st.booleans())
    def start(self, plan, ceilings, clean):
        consent = "without consent"
        if "a" in self.machine.clients:
            self.step("close" if clean else "die")
        else:
            consent = ""
        given = f"ceilings {epsilon(ceilings)} {epsilon(5 * ceilings)}" if ceilings else ""
        self.step(f"start plan {plan} {consent} {given}")
        known = [self.client.plan.ceilings, self.pinned]
        known.append(Ceilings(ceilings, 5 * ceilings) if ceilings else None)
        known = [each for each in known if each is not None]
        self.pinned = Ceilings(
            min(each.period for each in known), min(each.lifetime for each in known)
        )
        assert self.client.ledger().ceilings == self.pinned

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
    def record(self, names):
        known = {each.name for each in self.client.plan.metrics}
        if names := [name for name in names if name in known]:
            self.step(f"record {' '.join(names)} -> anything")

    @rule(fate=st.sampled_from(["takes", "takes", "takes", "refuses", "loses answers", "crashes"]))
    def flush(self, fate):
        before = self.client.ledger()
        self.step(f"receiver {fate}")
        lapsed = self.machine.tallies[self.client].lapsed
        came = self.step("flush -> anything")
        self.doubt |= in_doubt(before) and self.machine.tallies[self.client].lapsed > lapsed
        assert fate != "takes" or "remaining" not in came
        self.step("receiver takes")

    @rule(leap=st.sampled_from(LEAPS), uses=st.integers(0, 2))
    def leap_and_come_back(self, leap, uses):
        now = self.machine.clock.now
        self.step(f"wait {leap}")
        for _ in range(uses):
            self.step("record * -> anything")
            self.flush("takes")
        self.machine.clock.now = now

    @rule()
    def wait_for_the_next_level(self):
        self.step("time due")

    @precondition(lambda self: self.pinned.period < 4_000_000)
    @rule(amount=AMOUNTS)
    def agree_to_more(self, amount):
        self.pinned = Ceilings(amount, 5 * amount)
        self.step(f"renew {epsilon(amount)} {epsilon(5 * amount)} again")

    @precondition(lambda self: self.client.ledger().pending)
    @rule()
    def withdraw(self):
        self.doubt |= in_doubt(self.client.ledger())
        self.step("withdraw")

    def end(self):
        """Once everything is delivered, what an aggregator counts is what was spent."""
        self.step("receiver takes")
        while self.client.next_due() is not None:
            self.step("time due")
            counting = bool(self.client._recorder.counter)
            # A count may be dropped, as where the plan expires before the period ends.
            before = self.machine.tallies[self.client]
            tally = before.sent + before.lapsed
            self.flush("takes")
            assert before.sent + before.lapsed > tally or counting
        ledger = self.client.ledger()
        assert ledger.pending == ()
        spent = {each.number: each.spent for each in ledger.periods if each.spent}
        counted = self.machine.invariants.collector.counted()
        assert counted == spent or (self.doubt and counted.keys() <= spent.keys())
        accounts = self.client._store.accounts
        assert ledger.reserved == accounts.lifetime_reserved
        assert ledger.spent == accounts.lifetime_spent


def in_doubt(ledger):
    return any(chain.charged > chain.delivered for chain in ledger.pending)


class Accidents(RandomLife):
    """Files damaged, removed, and put back from copies, in any order: nothing is won."""

    PERIOD, LIFETIME = 7_000_000, 60_000_000

    def begin(self):
        self.step("plan colour every 2, kept reservoir, model constant, ceilings 7 60")
        # Whether the ledger adds two histories, one of which may hold a part of the other.
        self.of_copy, self.added = None, False
        self.open()

    def open(self):
        self.step("start")
        # Consent counts as withdrawn if file and guard are both in doubt.
        self.step("agree again")
        ledger = self.client.ledger()
        if ledger.reserved > self.LIFETIME:
            # More than was spent, never less: nothing is recorded any more.
            assert self.added
            assert self.client.record("colour", "a") is not Outcome.ACCEPTED
            self.machine.tallies[self.client].outcomes[Outcome.OVER_BUDGET]["colour"] += 1

    def harm(self, step, *, clean=True):
        self.step("close" if clean else "die")
        self.step(step)
        self.open()

    @rule(name=st.sampled_from(["colour", "colour", "kept", "model"]), times=st.integers(1, 3))
    def record(self, name, times):
        self.step(f"record {name} x{times} -> anything")

    @rule()
    def flush(self):
        assert "Error" not in self.step("flush -> anything")

    @rule(clean=st.booleans())
    def start_again(self, clean):
        before = self.client._store.guard.restored
        self.step("close" if clean else "die")
        self.open()
        assert self.client.ledger().restored == before

    @rule()
    def copy(self):
        self.of_copy = self.client._store.guard.identity
        self.harm("copy")

    @precondition(lambda self: self.of_copy is not None)
    @rule(clean=st.booleans())
    def put_the_copy_back(self, clean):
        self.added |= self.client._store.guard.identity != self.of_copy
        self.harm("restore state", clean=clean)

    @rule(at=st.sampled_from([0, 18, 100, 5000, 20_000]), clean=st.booleans())
    def damage(self, at, clean):
        self.harm(f"damage state {at}", clean=clean)

    @rule(what=st.sampled_from(["name", "guard", "log", "state"]))
    def lose(self, what):
        self.harm(f"lose {what}", clean=what not in ("log", "state"))


def lives(number, steps):
    """So many lives of a device, the same in every run."""
    return settings(
        max_examples=number,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


class TestFewLives(SoundFiles.TestCase):
    settings = lives(12, 40)


@pytest.mark.slow
class TestManyLives(SoundFiles.TestCase):
    settings = lives(90, 40)


@pytest.mark.slow
class TestAccidents(Accidents.TestCase):
    settings = lives(60, 30)
