"""The manifest: its JSON, and how it advances."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipelines.aggregation.audit import Totals
from pipelines.aggregation.step import Tally
from pipelines.storage.intent import Intent, LastRecord, Requeue, WorkItem
from pipelines.storage.manifest import Manifest, Quarantined, advance
from pipelines.storage.output import JobOutput, StoredFile, StoredState
from sotto.errors import AggregationError

#: The fields of a registry that decide about a manifest.
PLANS = [SimpleNamespace(retention=30)]
TERMS = SimpleNamespace(period=10, horizon=25, shards=64, plans=PLANS)
ONE = Totals(1, 0, 0, 2, 300, 400, 300, 400)
TWO = Totals(5, 1, 2, 9, 900, 950, 200, 500)
OLD, NEW = StoredState(ONE, StoredFile(3, 100)), StoredState(ONE, None, (StoredFile(4, 7),))
LOGGED = StoredState(TWO, StoredFile(2, 50), (StoredFile(3, 10), StoredFile(4, 5)))
NEXT = StoredState(TWO, StoredFile(5, 200))


def manifest() -> Manifest:
    return Manifest(
        state="a",
        key=bytes(range(16)),
        generation=4,
        clock=40,
        positions={"x": 100, "y": 50},
        last={"x": LastRecord(58, bytes(range(16)))},
        plans={"ab": "plan version 1"},
        first_open=1,
        states={(1, 0): OLD, (1, 2): LOGGED, (3, 0): NEW},
        parts={1: 4, 3: 1},
        pages={-1: 2, 3: 4},
        periods={0: TWO},
        quarantine=(Quarantined(2, 15, {"late": 3}), Quarantined(4, 40, {"late": 1, "future": 2})),
        expired={"late": 7},
        tally=Tally(100, 50, 20, 5, 1),
    )


LAST = {"y": LastRecord(52, bytes(16))}


def intent(clock: int | None) -> Intent:
    return Intent(5, clock, (WorkItem("y", 50, 70, 40), WorkItem("z", 0, 30, 40)), LAST)


BEGUN = intent(44).to_json()


def test_it_comes_back_as_it_was_stored():
    assert Manifest.from_json(manifest().to_json()) == manifest()
    assert Intent.from_json(intent(44).to_json()) == intent(44)
    written = JobOutput({(1, 2): LOGGED}, frozenset([4, -2]), {"late": 2}, Tally(9, 4, 3, 2, 1))
    assert JobOutput.from_json(written.to_json()) == written


def test_any_byte_that_changes_or_is_missing_is_noticed():
    """One digit of ``clock`` or ``first_open`` would let a run reject all that comes as late."""
    for stored, read in ((manifest().to_json(), Manifest.from_json), (BEGUN, Intent.from_json)):
        for at, byte in enumerate(stored):
            for other in {b"", b"0", b"9", b'"', bytes([byte ^ 1])} - {bytes([byte])}:
                with pytest.raises(AggregationError, match="json"):
                    read(stored[:at] + other + stored[at + 1 :])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"format":1}',
        b'{"format":2}',
        b'{"format":2,"digest":"00"}',
        b"\xff",
    ],
)
def test_what_is_none_is_refused(content):
    with pytest.raises(AggregationError, match=r"MANIFEST\.json"):
        Manifest.from_json(content)
    with pytest.raises(AggregationError, match=r"intent\.json"):
        Intent.from_json(content)


def test_a_commit_takes_over_what_was_written():
    states, tally = {(1, 0): NEXT, (4, 0): NEW}, Tally(9, -4, 3, 2, 1)
    written = JobOutput(states, frozenset([3, 4]), {"malformed": 1}, tally)
    after = advance(manifest(), intent(44), written, TERMS)
    assert after == replace(
        manifest(),
        generation=5,
        clock=44,
        positions={"x": 100, "y": 70, "z": 30},
        last={**manifest().last, **LAST},
        states={(1, 0): NEXT, (1, 2): LOGGED, (3, 0): NEW, (4, 0): NEW},
        parts={1: 4, 3: 1, 4: 1},
        pages={-1: 2, 3: 5, 4: 5},
        quarantine=(*manifest().quarantine, Quarantined(5, 44, {"malformed": 1})),
        tally=Tally(109, 46, 23, 7, 2),
        lineage=after.lineage,
        time=after.time,
    )
    assert len(after.lineage) == 1


def test_a_period_is_closed_when_its_horizon_has_passed():
    written = JobOutput({(1, 0): NEXT})
    before = advance(manifest(), intent(44), written, TERMS)
    assert (before.first_open, before.periods) == (1, {0: TWO})
    after = advance(manifest(), intent(45), written, TERMS)
    assert after.first_open == 2
    assert set(after.states) == {(3, 0)}
    assert after.periods == {0: TWO, 1: Totals(10, 2, 4, 18, 1800, 1900, 200, 500)}
    assert after.audit() == {**after.periods, 3: ONE}
    assert before.audit()[1] == after.audit()[1]


def test_a_closed_period_stays_closed_whatever_later_plans_say():
    longer = SimpleNamespace(**{**vars(TERMS), "horizon": 1000})
    assert advance(manifest(), intent(45), JobOutput(), longer).first_open == 1


def test_quarantine_is_kept_for_its_retention():
    at_last = advance(manifest(), intent(44), JobOutput(), TERMS)
    assert [entry.generation for entry in at_last.quarantine] == [2, 4]
    after = advance(manifest(), intent(45), JobOutput(rejects={"late": 1}), TERMS)
    assert [entry.generation for entry in after.quarantine] == [4, 5]
    assert after.expired == {"late": 10}
    much_later = advance(after, intent(1000), JobOutput(), TERMS)
    assert much_later.quarantine == ()
    assert much_later.expired == {"late": 12, "future": 2}


def test_retention_begins_when_the_log_has_a_clock():
    none = Manifest(state="a", key=bytes(16))
    before = advance(none, intent(None), JobOutput(rejects={"corrupt_log": 1}), TERMS)
    assert (before.clock, before.first_open) == (None, None)
    assert before.quarantine == (Quarantined(5, None, {"corrupt_log": 1}),)
    first = advance(before, intent(1000), JobOutput(), TERMS)
    assert first.quarantine == (Quarantined(5, 1000, {"corrupt_log": 1}),)
    assert advance(first, intent(1030), JobOutput(), TERMS).expired == {"corrupt_log": 1}


def test_a_requeue_marks_what_it_takes_and_moves_nothing_else():
    taken = (Requeue(2, "late", "ab", 1), Requeue(4, "late", "cd", 1), Requeue(2, "late", "cd", 2))
    requeue = Intent(5, 40, (), requeue=taken)
    assert Intent.from_json(requeue.to_json()) == requeue
    after = advance(manifest(), requeue, JobOutput(tally=Tally(4)), TERMS)
    assert after == replace(
        manifest(),
        generation=5,
        tally=Tally(104, 50, 20, 5, 1),
        quarantine=(
            Quarantined(2, 15, {"late": 3}, (("late", "ab", 1), ("late", "cd", 2))),
            Quarantined(4, 40, {"late": 1, "future": 2}, (("late", "cd", 1),)),
        ),
        requeued={"late": 4},
        lineage=after.lineage,
        time=after.time,
    )
    assert Manifest.from_json(after.to_json()) == after
    # The numbers stay when the files go.
    much_later = advance(after, replace(intent(1000), generation=6), JobOutput(), TERMS)
    assert (much_later.quarantine, much_later.requeued) == ((), {"late": 4})
