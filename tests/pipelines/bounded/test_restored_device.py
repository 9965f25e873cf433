"""A device's whole directory put back from an older copy: the aggregator's audit notices."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from committed_states import period_totals

from clientsdk import EmbeddedLogPublisher, Outcome
from clientsdk.testing import FakeClock, SeededClient, small_plan
from pipelines.bounded.run import aggregate
from pipelines.storage.ledger import pseudonym_ledger

pytestmark = pytest.mark.slow


def _life(folder: Path, log: Path, clock: FakeClock, seed: int) -> str:
    """Record the period's one value and send both levels; return the pseudonym."""
    publisher = EmbeddedLogPublisher(log, clock=clock)
    with SeededClient(
        small_plan(),
        seed=seed,
        state=folder / "device.db",
        publisher=publisher,
        clock=clock,
        leaks_values=True,
    ) as client:
        assert client.record("colour", "red") is Outcome.ACCEPTED
        (pseudonym,) = (each.pseudonym for each in client.ledger().periods)
        clock.advance(hours=3)
        assert client.flush().sent == 1
        clock.advance(days=1)
        assert client.flush().sent == 1
        assert client.ledger().restored == 0
    publisher.close()
    assert pseudonym is not None
    return pseudonym


def test_both_copies_spend_from_one_budget_and_nothing_of_them_counts(tmp_path):
    original, copy, log = tmp_path / "original", tmp_path / "copy", tmp_path / "log"
    original.mkdir()
    begun = FakeClock()
    SeededClient(small_plan(), seed=1, state=original / "device.db", clock=begun).close()
    shutil.copytree(original, copy)
    names = {
        _life(folder, log, FakeClock(begun.now), seed)
        for folder, seed in ((original, 2), (copy, 3))
    }
    # The device cannot tell: file and mark agree. The pseudonym is the same, and so is the budget.
    (pseudonym,) = names
    state = tmp_path / "state"
    aggregate(log, state, [small_plan()], clock=lambda: begun.now + 2 * 86_400_000)
    (found,) = pseudonym_ledger(state, pseudonym)
    assert found.revoked == "over_budget"
    assert (found.accepted, found.observed) == (0, 2 * found.budget)
    assert {line.counted for line in found.chains} == {None}
    (totals,) = period_totals(state).values()
    assert (totals.pseudonyms, totals.over_budget, totals.accepted) == (1, 1, 0)
