"""Faults that the demo's network plants are rejected for the stated reason, or do no harm."""

from __future__ import annotations

import random

import numpy as np
import pytest

from examples.flights.demo import PLAN
from examples.flights.faults import (
    DUPLICATE,
    GARBAGE,
    HELD_BACK,
    HOLD,
    FaultyNetwork,
    Forge,
    Target,
)
from mechanisms.coins import shard_of
from sotto.plan.compile import load_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.decode import Decoded, decode
from sotto.wire.format import Row, encode_message
from sotto.wire.reasons import Reason

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
#: In the middle of a budget period.
NOW = 2271 * WEEK + 3 * DAY + 12_345


@pytest.fixture(scope="module")
def plan() -> CompiledPlan:
    return load_plan(PLAN).compile()


@pytest.fixture(scope="module")
def target(plan: CompiledPlan) -> Target:
    return Target(plan, plan.metric("carrier"))


def message(plan: CompiledPlan, level: int = 0, seed: int = 0) -> bytes:
    """Return a device's message with a row of two metrics."""
    rng = random.Random(seed)
    pseudonym = rng.randbytes(16)
    event = NOW - NOW % HOUR - HOUR

    def row(width: int) -> Row:
        return Row(level, pseudonym, rng.randbytes(16), event, bytes(width))

    runs = [(each.index, [row(each.mechanism.payload_width)]) for each in plan.metrics[:2]]
    return encode_message(plan.fingerprint, shard_of(pseudonym, plan.shards), runs)


def decoded(plan: CompiledPlan, arrived: list[tuple[int, bytes]]) -> Decoded:
    bodies = [body for _, body in arrived]
    lengths = np.array([len(body) for body in bodies])
    offsets = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    append = np.array([time for time, _ in arrived])
    return decode(b"".join(bodies), offsets, lengths, append, Registry([plan]))


@pytest.mark.parametrize(
    ("reason", "forge"), GARBAGE, ids=lambda value: getattr(value, "label", "")
)
def test_garbage_is_rejected_for_its_reason(
    plan: CompiledPlan, target: Target, reason: Reason, forge: Forge
) -> None:
    for seed in range(40):
        forged = forge(target, random.Random(seed), message(plan, seed=seed), NOW)
        found = decoded(plan, [(NOW, forged)])
        assert [reject.reason for reject in found.rejects] == [reason], f"seed {seed}"
        assert sum(map(len, found.batches)) == 0


def test_a_real_message_is_accepted(plan: CompiledPlan) -> None:
    found = decoded(plan, [(NOW, message(plan))])
    assert not found.rejects
    assert sum(map(len, found.batches)) == 2


def test_only_first_rungs_are_held_back(plan: CompiledPlan, target: Target) -> None:
    network = FaultyNetwork(target, duplicates=0, held=1, garbage=0)
    assert [time for time, _ in network.carry(1, NOW, message(plan, 0))] == [NOW + HOLD]
    assert [time for time, _ in network.carry(1, NOW, message(plan, 1))] == [NOW]
    assert network.planted == {HELD_BACK: 1}


def test_duplicates_are_the_same_bytes_later(plan: CompiledPlan, target: Target) -> None:
    network = FaultyNetwork(target, duplicates=1, held=0, garbage=0)
    sent = message(plan)
    (first, body), (second, again) = network.carry(1, NOW, sent)
    assert (first, body, again) == (NOW, sent, sent)
    assert HOUR <= second - NOW < 5 * DAY
    assert network.planted == {DUPLICATE: 1}


def test_which_messages_suffer_depends_on_the_seed(plan: CompiledPlan, target: Target) -> None:
    def planted(seed: int) -> list[int]:
        network = FaultyNetwork(target, seed=seed, duplicates=0.5, held=0, garbage=0)
        return [len(list(network.carry(1, NOW, message(plan)))) for _ in range(64)]

    assert planted(1) == planted(1)
    assert planted(1) != planted(2)
