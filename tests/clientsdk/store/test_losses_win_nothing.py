"""Files damaged, removed, and put back from copies, in any order: the ledger holds all the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from device_plans import CONSTANT, DAY, HOUR, START, WEEK, counted, metric, plan, reports
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from clientsdk import Outcome
from clientsdk.publishers import MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient

PERIOD, LIFETIME = 7_000_000, 60_000_000
PLAN = plan(
    metric("colour", "every", 2),
    metric("kept", "reservoir"),
    metric("model", "constant", ladder=CONSTANT),
    ceilings={"period": PERIOD, "lifetime": LIFETIME},
)
MODEL = 2
MEMORY = Path("/dev/shm")

pytestmark = pytest.mark.slow


class Device(RuleBasedStateMachine):
    """One device whose file has accidents; what an aggregator sees is kept beside it."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self.directory.name) / "device.db"
        self.clock, self.publisher = FakeClock(START), MemoryPublisher()
        self.seed, self.spent, self.copy = 0, 0, None
        # Whether the ledger adds two histories, one of which may hold a part of the other.
        self.of_copy, self.added = None, False
        self.open()

    def open(self):
        self.seed += 1
        self.client = SeededClient(
            PLAN, seed=self.seed, state=self.path, clock=self.clock, publisher=self.publisher
        )
        # Where file and mark are both in doubt it counts as withdrawn.
        self.client.give_consent(again=True)

    def stop(self, clean):
        if clean:
            self.client.close()
        else:
            self.client._store.database.disconnect()

    @rule(name=st.sampled_from(["colour", "colour", "kept", "model"]), times=st.integers(1, 3))
    def record(self, name, times):
        for _ in range(times):
            self.client.record(name, "a")

    @rule()
    def flush(self):
        assert self.client.flush().error is None

    @rule(step=st.sampled_from([3 * HOUR, DAY, WEEK, -DAY]))
    def move_the_clock(self, step):
        self.clock.now += step

    @rule(clean=st.booleans())
    def start_again(self, clean):
        self.stop(clean)
        before = self.client._store.guard.restored
        self.open()
        assert self.client.ledger().restored == before

    @rule()
    def copy_the_file(self):
        self.of_copy = self.client._store.guard.identity
        self.client.close()
        self.copy = self.path.read_bytes()
        self.open()

    @precondition(lambda self: self.copy is not None)
    @rule(clean=st.booleans())
    def put_the_copy_back(self, clean):
        self.added |= self.client._store.guard.identity != self.of_copy
        self.stop(clean)
        self.remove("-wal", "-shm")
        self.path.write_bytes(self.copy)
        self.open()

    @rule(at=st.sampled_from([0, 18, 100, 5000, 20_000]), clean=st.booleans())
    def damage(self, at, clean):
        self.stop(clean)
        with open(self.path, "r+b") as file:
            file.seek(at)
            file.write(b"\xa5" * 3000)
        self.open()

    @rule(suffixes=st.sampled_from([("",), ("-mark",), ("-wal",), ("", "-wal", "-shm")]))
    def lose(self, suffixes):
        self.stop(clean="-wal" not in suffixes)
        self.remove(*suffixes)
        self.open()

    def remove(self, *suffixes):
        for suffix in suffixes:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    @invariant()
    def nothing_was_won(self):
        ledger = self.client.ledger()
        assert ledger.spent <= ledger.reserved
        if ledger.reserved > LIFETIME:
            # More than was spent, never less: nothing is recorded any more.
            assert self.added
            assert self.client.record("colour", "a") is not Outcome.ACCEPTED
        # What had left the device is remembered, whatever became of the file.
        assert ledger.reserved >= self.spent
        self.spent = ledger.spent
        sent = reports(self.publisher.messages)
        periods = {each.pseudonym: each.event // WEEK for each in sent}
        totals = {}
        for name, cost in counted(sent, [PLAN]).items():
            totals[periods[name]] = totals.get(periods[name], 0) + cost
        assert all(cost <= PERIOD for cost in totals.values())
        lasting = counted([each for each in sent if each.metric != MODEL], [PLAN])
        assert sum(lasting.values()) <= min(ledger.spent, LIFETIME)

    def teardown(self):
        self.client.close()
        self.directory.cleanup()


TestDevice = Device.TestCase
TestDevice.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_a_lost_guard_after_a_constant_value_spends_no_more_than_is_reserved():
    state = Device()
    try:
        state.record("model", 1)
        state.lose(("-mark",))
        state.nothing_was_won()
    finally:
        state.teardown()


def test_two_histories_are_added_and_fill_the_lifetime():
    """A new file knows what the lost one had spent, and the copy of that says so once more."""
    state = Device()
    try:
        state.lose(("",))
        state.copy_the_file()
        state.lose(("",))
        state.move_the_clock(-DAY)
        state.lose(("-mark",))
        assert state.client.ledger().reserved == LIFETIME
        state.put_the_copy_back(clean=False)
        assert state.client.ledger().reserved == LIFETIME + PERIOD
        state.nothing_was_won()
    finally:
        state.teardown()


def test_a_life_without_accidents_is_not_full(tmp_path):
    """What the above would not see: a device that refuses everything."""
    client = SeededClient(PLAN, seed=1, state=tmp_path / "device.db", clock=FakeClock(START))
    assert client.record("colour", "a") is Outcome.ACCEPTED
    client.close()
