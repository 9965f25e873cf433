"""States in keyed state, with live ones beside it that may be of another history."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from step_plans import category, plan, plans
from step_universe import KEY, NUMBER, REGISTRY, SHARD, random_rows, rows_of
from streaming_runner import Backend

from pipelines.counts import Matrix, WindowKey
from pipelines.rows import Rows
from pipelines.shard import step_blocks
from pipelines.state import State
from pipelines.streaming import journal
from pipelines.streaming.journal import Journal, LiveStates
from pipelines.streaming.letters import Port
from sotto.errors import PlanError
from sotto.registry import Registry

Counts = dict[WindowKey, Matrix]


@pytest.fixture(autouse=True, scope="module")
def one_key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "new_key", lambda: KEY)
        patch.setattr(journal, "SHORT", 3_000)
        patch.setattr(journal, "PIECE", 1_000)
        yield


def opened(backend: Backend, limit: int = 1 << 30, registry: Registry = REGISTRY) -> Journal:
    """Return the journal of a process of its own."""
    backend.key = (Port.SHARDS, SHARD)
    found = Journal(registry, backend.states(Port.SHARDS), LiveStates(limit))
    found.adopt(SHARD)
    return found


def add(total: Counts, changes: Counts) -> Counts:
    return {key: total.get(key, 0) + changes.get(key, 0) for key in {*total, *changes}}


def plain(total: Counts) -> dict[WindowKey, list[list[int]]]:
    return {key: matrix.tolist() for key, matrix in total.items() if matrix.any()}


class Histories(RuleBasedStateMachine):
    """Rows are taken by one of two processes; keyed state goes back, processes do not."""

    @initialize(seed=st.integers(0, 2**32), limit=st.sampled_from([0, 1 << 30]))
    def begin(self, seed: int, limit: int) -> None:
        self.rows = random_rows(seed, size=600, pseudonyms=9, honest=0.9)
        self.random = random.Random(seed)
        self.backend, self.limit = Backend(), limit
        self.processes = [opened(self.backend, limit), opened(self.backend, limit)]
        self.taken: list[Rows] = []
        self.counts: Counts = {}
        self.saved: list[tuple[object, list[Rows], Counts]] = []
        self.checkpoint()

    @rule(process=st.integers(0, 1), size=st.integers(1, 60), parts=st.integers(1, 3))
    def step(self, process: int, size: int, parts: int) -> None:
        blocks = [rows_of(self.random.sample(self.rows, size)) for _ in range(parts)]
        packed = [block.to_bytes() for block in blocks]
        stepped = self.processes[process].step(SHARD, NUMBER, packed)
        self.taken = self.taken + blocks
        self.counts = add(self.counts, stepped.changes)

    @rule(process=st.integers(0, 1))
    def read(self, process: int) -> None:
        if self.taken:
            self.processes[process].read(SHARD, NUMBER)

    @rule()
    def checkpoint(self) -> None:
        self.saved.append((copy.deepcopy(self.backend.content), self.taken, self.counts))

    @rule(back=st.integers(1, 3))
    def roll_back(self, back: int) -> None:
        del self.saved[max(len(self.saved) - back + 1, 1) :]
        content, self.taken, self.counts = self.saved[-1]
        self.backend.content = copy.deepcopy(content)

    @rule(process=st.integers(0, 1))
    def restart(self, process: int) -> None:
        self.processes[process] = opened(self.backend, self.limit)

    @rule(process=st.integers(0, 1))
    def fail_in_a_step(self, process: int) -> None:
        """A process dies between changing its state and writing keyed state."""
        head = self.processes[process]._head(NUMBER)
        state = self.processes[process]._state(SHARD, NUMBER, head)
        step_blocks(state, [rows_of(self.random.sample(self.rows, 30)).to_bytes()])
        self.roll_back(1)

    @invariant()
    def every_process_has_the_state_of_what_was_taken(self) -> None:
        fresh = State(REGISTRY, SHARD, NUMBER, KEY)
        stepped = step_blocks(fresh, [rows.to_bytes() for rows in self.taken])
        assert plain(self.counts) == plain(stepped.changes)
        if self.taken:
            for process in (self.random.choice(self.processes), opened(self.backend)):
                assert process.read(SHARD, NUMBER).canonical() == fresh.canonical()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


def test_what_is_written_stays_in_proportion_to_what_has_come() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SHORT", 1 << 16)
        patch.setattr(journal, "PIECE", 1 << 19)
        backend = Backend()
        live = opened(backend)
        came = 0
        for seed in range(60):
            block = rows_of(random_rows(seed, size=300, pseudonyms=100, honest=1)).to_bytes()
            live.step(SHARD, NUMBER, [block])
            came += len(block)
        assert came > 10 * journal.SHORT
        assert backend.written < 6 * came
        assert max(len(piece) for _, piece in live._states.snapshots.items()) <= 1 << 19


def test_nothing_is_left_of_a_period_that_is_dropped() -> None:
    backend = Backend()
    live = opened(backend)
    for seed in range(3):
        live.step(SHARD, NUMBER, [rows_of(random_rows(seed, 100, 9, 0.9)).to_bytes()])
    live.drop(SHARD, NUMBER)
    held = backend.content[Port.SHARDS, SHARD]
    assert not any(held.get(name) for name in ("heads", "snapshots", "logs"))
    assert live.heads() == {}


def test_who_was_revoked_under_former_plans_stays_so() -> None:
    former, later = Registry(plans()), Registry([plan(3, 90, category("more", 3, 1)), *plans()])
    assert later.budget > former.budget
    block = rows_of(random_rows(5, size=400, pseudonyms=4, honest=1)).to_bytes()
    backend = Backend()
    before = opened(backend, registry=former)
    before.step(SHARD, NUMBER, [block])
    totals = before.read(SHARD, NUMBER).totals()
    assert totals.over_budget
    assert opened(backend, registry=later).read(SHARD, NUMBER).totals() == totals


def test_fewer_plans_are_refused() -> None:
    backend = Backend()
    opened(backend)
    with pytest.raises(PlanError, match="missing"):
        opened(backend, registry=Registry(plans()[:1]))


def test_live_states_are_few_enough_bytes() -> None:
    rows = rows_of(random_rows(1, 50, 9, 1))
    states = [State(REGISTRY, shard, NUMBER, KEY) for shard in range(20)]
    for state in states:
        step_blocks(state, [replace(rows, shard=state.shard).to_bytes()])
    live = LiveStates(limit=7 * states[0].nbytes + 1)
    for state in states:
        live.hold(b"token", state)
    assert live.take(19, NUMBER, b"other") is None
    held = [state for state in states if live.take(state.shard, NUMBER, b"token") is state]
    assert held == states[13:19]
