"""Snapshots and logs restore the state, whatever the cuts; they cost what came and no more."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from step_plans import category, plan
from step_reference import Row
from step_universe import (
    KEY,
    NUMBER,
    REGISTRY,
    SHARD,
    audited,
    canonical,
    cut,
    random_rows,
    rows_of,
)

from pipelines.aggregation.audit import totals
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import step_blocks
from pipelines.storage import files
from pipelines.storage import states as storedstates
from pipelines.storage.directory import StateDirectory
from pipelines.storage.output import StoredState
from pipelines.storage.states import StoredStates
from sotto.errors import FormatError, PlanError
from sotto.plan.registry import Registry

OTHER = plan(8, 4, category("other", 3, 0.5))


class Kept:
    """A state that runs are given one after another."""

    def __init__(self, path: Path, registry: Registry = REGISTRY) -> None:
        self.directory = StateDirectory(path)
        with self.directory.lock():
            self.directory.open()
        self.states = StoredStates(self.directory.files, registry, KEY)
        self.held: StoredState | None = None
        self.generation = 0
        self.written = 0

    def take(self, *blocks: Rows) -> None:
        self.generation += 1
        taken = self.states.step(NUMBER, SHARD, self.held, blocks, self.generation)
        files.create(self.directory.path / taken.target, taken.content)
        self.held = taken.stored
        pieces = (self.held.snapshot, *self.held.logs)
        self.written += sum(p.size for p in pieces if p and p.generation == self.generation)

    def read(self, registry: Registry | None = None) -> State:
        return replace(self.states, registry=registry or self.states.registry).read(
            NUMBER, SHARD, self.held
        )

    @property
    def paths(self) -> list[Path]:
        assert self.held is not None
        found = self.directory.files.state(NUMBER, SHARD, self.held)
        return [Path(str(path)) for path in found]


def at_once(rows: list[Row], registry: Registry = REGISTRY) -> State:
    return step_blocks(State(registry, SHARD, NUMBER, KEY), [rows_of(rows).to_bytes()]).state


@pytest.mark.parametrize(("short", "seed"), [(0, 0), (1_500, 1), (10_000, 0), (1 << 16, 1)])
def test_whatever_the_cuts_the_state_is_that_of_the_set_of_rows(tmp_path, monkeypatch, short, seed):
    monkeypatch.setattr(storedstates, "SHORT", short)
    monkeypatch.setattr("pipelines.aggregation.step.STEP_ROWS", 90)
    source = random.Random(seed)
    rows = random_rows(seed, size=800, pseudonyms=40, honest=0.97)
    cuts = sorted(source.randrange(800) for _ in range(source.choice([10, 30])))
    kept = Kept(tmp_path)
    snapshots, logs, seen = set(), set(), []
    for call in cut(rows, cuts):
        seen += call
        kept.take(rows_of(call))
        found, expected = kept.read(), at_once(seen)
        assert canonical(found) == canonical(expected)
        assert kept.held.totals == totals(found) == totals(expected)
        snapshots.add(kept.held.snapshot)
        logs.update(kept.held.logs)
        assert len(kept.held.logs) <= 8
        newest = kept.held.logs[-1] if kept.held.logs else kept.held.snapshot
        assert newest.generation == kept.generation, "a snapshot replaces all logs"
    assert logs
    assert (snapshots != {None}) == (short < 1 << 16)


def test_the_order_of_blocks_changes_no_byte(tmp_path):
    blocks = [rows_of(random_rows(seed, 60, 9, 0.9)) for seed in range(5)]
    found = []
    for number, order in enumerate((blocks, blocks[::-1])):
        kept = Kept(tmp_path / str(number))
        kept.take(*order[1:4])
        kept.take(*order)
        found.append([path.read_bytes() for path in kept.paths])
    assert found[0] == found[1]


@pytest.mark.slow
def test_many_small_runs_write_in_proportion_to_what_they_take(tmp_path):
    kept = Kept(tmp_path)
    kept.take(rows_of(random_rows(1, size=20_000, pseudonyms=4_000, honest=1)))
    assert kept.held.snapshot is not None
    snapshot, taken = kept.written, 0
    assert snapshot > 4 * storedstates.SHORT
    for seed in range(2, 102):
        few = rows_of(random_rows(seed, size=20, pseudonyms=5, honest=1))
        taken += len(few.to_bytes())
        kept.take(few)
        assert len(kept.held.logs) <= 8
    # Writing the snapshot again each time would take some hundred times the snapshot.
    assert taken > 20_000
    assert kept.written - snapshot < 8 * taken


def test_logs_are_read_whatever_the_order_of_plans(tmp_path):
    rows = random_rows(3, size=300, pseudonyms=40, honest=0.97)
    plans = REGISTRY.plans
    kept = Kept(tmp_path)
    kept.take(rows_of(rows[:100]))
    kept.states = replace(kept.states, registry=Registry([OTHER, *plans[::-1]]))
    assert audited(kept.read()) == audited(at_once(rows[:100]))
    names = [(each.fingerprint, each.metric.name) for each in kept.states.registry.metrics]
    ids = [names.index((each.fingerprint, each.metric.name)) for each in REGISTRY.metrics]
    assert ids != list(range(len(ids)))
    kept.take(rows_of(rows[100:]).renumbered(np.array(ids, dtype=np.uint16)))
    assert audited(kept.read(Registry([*plans, OTHER]))) == audited(at_once(rows))
    with pytest.raises(PlanError, match=plans[-1].fingerprint.hex()):
        kept.read(Registry([OTHER]))


def test_who_was_revoked_stays_so_when_a_later_plan_allows_more(tmp_path):
    rows = random_rows(5, size=400, pseudonyms=4, honest=1)
    kept = Kept(tmp_path)
    kept.take(rows_of(rows[:300]))
    before = totals(kept.read())
    assert before.over_budget > 0
    richer = plan(9, 10 * REGISTRY.budget // 1_000_000, category("other", 3, 0.5))
    later = Registry([*REGISTRY.plans, richer])
    assert kept.read(later).budget == later.budget > REGISTRY.budget
    assert totals(kept.read(later)) == before
    kept.states = replace(kept.states, registry=later)
    kept.take(rows_of(rows[300:]))
    assert len(kept.held.logs) == 2, "logs of two budgets are not one"
    after = totals(kept.read())
    assert after == kept.held.totals
    assert after.over_budget >= before.over_budget


@pytest.fixture(params=[0, 1 << 16])
def one(tmp_path, monkeypatch, request):
    """A state in one file, a snapshot or a log."""
    monkeypatch.setattr(storedstates, "SHORT", request.param)
    kept = Kept(tmp_path / "one")
    kept.take(rows_of(random_rows(1, size=100, pseudonyms=20, honest=1)))
    return kept


def test_a_sound_file_of_another_state_is_an_error(one):
    """Names may be mixed up by whoever restores a copy."""
    (path,) = one.paths
    other = path.with_name(f"{NUMBER + 1}.{SHARD}.1")
    path.rename(other)
    match = f"{other.name} is damaged .it is of shard {SHARD}, period {NUMBER}"
    with pytest.raises(FormatError, match=match):
        one.states.read(NUMBER + 1, SHARD, one.held)


def test_a_sound_file_of_another_copy_is_an_error(tmp_path, one):
    other = Kept(tmp_path / "other")
    other.take(rows_of(random_rows(2, size=90, pseudonyms=20, honest=1)))
    one.paths[0].write_bytes(other.paths[0].read_bytes())
    with pytest.raises(FormatError, match=r"it has \d+ bytes, and \d+ were written"):
        one.read()
