"""Faults of the fault run: their schedule, and what is said at the end."""

from __future__ import annotations

from benchmarks.soak.faults import Outcome, schedule, table


def test_a_schedule_follows_from_its_seed_and_has_every_kind():
    shares, choices = {"a": 5, "b": 1, "c": 1}, {"a": ("x", "y")}
    planned = schedule(3, 40, shares, choices)
    assert planned == schedule(3, 40, shares, choices) != schedule(4, 40, shares, choices)
    assert {fault.kind for fault in planned} == set(shares)
    assert {fault.what for fault in planned if fault.kind == "a"} == {"x", "y"}
    assert len(planned) == 40


def test_a_run_without_a_check_has_not_held():
    assert not Outcome().holds
    assert "DID NOT HOLD" in table(Outcome(), (), 0)
