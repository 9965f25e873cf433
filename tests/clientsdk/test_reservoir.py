"""Reservoirs: unbiased, never released before the period ends, displaced chains erased."""

from __future__ import annotations

from collections import Counter

import pytest
from device_plans import HOUR, START, VAST, metric, plan
from statistical import check_counts

from clientsdk import Outcome, draws
from clientsdk.testing import FakeClock, SeededClient
from mechanisms.randomness import uniform_below


def device(seed=1, **options):
    compiled = options.pop("plan", None) or plan(metric("colour", "reservoir"))
    return SeededClient(compiled, seed=seed, clock=FakeClock(START), **options)


#: Metrics of a device, each of which has a reservoir of its own.
EACH = 25


def kept_positions(reservoirs, values, seed):
    """How often each of a period's values, told apart by their hour, is the one kept."""
    kept = Counter()
    names = [f"colour{number}" for number in range(EACH)]
    compiled = plan(*(metric(name, "reservoir") for name in names), ceilings=VAST)
    for number in range(reservoirs // EACH):
        client = device(seed=seed + number, plan=compiled)
        for _ in range(values):
            assert {client.record(name, "a") for name in names} == {Outcome.ACCEPTED}
            client.clock.advance(hours=1)
        chains = client.ledger().pending
        assert {chain.metric for chain in chains} == {f"trial/{name}" for name in names}
        kept.update((chain.event - START) // HOUR for chain in chains)
        client.close()
    return [kept[position] for position in range(values)]


@pytest.mark.slow
def test_every_value_is_kept_equally_often():
    seed = 500
    check_counts(kept_positions(500, 4, seed), [1 / 4] * 4, label=seed)


@pytest.mark.slow
def test_a_biased_reservoir_would_be_seen(monkeypatch):
    """The planted fault: the coin is 1/2 from the third value on."""
    monkeypatch.setattr(
        draws, "replaces", lambda source, seen: uniform_below(min(seen, 2), source) == 0
    )
    with pytest.raises(AssertionError):
        check_counts(kept_positions(500, 4, 500), [1 / 4] * 4, label=500)


def test_the_sdk_randomizes_a_value_that_it_does_not_keep(monkeypatch):
    """The same draws either way, so that the time taken tells little."""
    client = device(seed=3)
    mechanism = client.plan.metric("colour").mechanism
    drawn = []
    draw = type(mechanism).draw
    monkeypatch.setattr(
        type(mechanism), "draw", lambda *given: drawn.append(given[2]) or draw(*given)
    )
    for _ in range(30):
        client.record("colour", "a")
    assert len(set(drawn)) == 30
