"""Panels: of each N periods a device answers in one, which no value and no plan chooses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import statistical
from device_plans import VAST, metric, plan, seeded

from clientsdk import Outcome
from clientsdk.store import device_secrets
from clientsdk.store.device_secrets import Panel, slot
from clientsdk.testing import SeededClient, move_to_turn, small_plan
from mechanisms.testing import SeededSource
from sotto.errors import ParameterError, UnknownMetricError

SIZES = [1, 2, 13, 26]


# One turn a cycle.


@pytest.mark.parametrize("size", SIZES)
def test_each_cycle_before_and_after_the_epoch_has_one_turn(size):
    panel = Panel(b"s" * 32, device_secrets.ALWAYS)
    for cycle in range(-250, 750):
        periods = range(cycle * size, (cycle + 1) * size)
        assert [each for each in periods if panel.is_turn(size, each)] == [
            cycle * size + slot(panel.secret, size, cycle)
        ]


# Which turn, nobody can tell.


def secrets(number, seed=11):
    source = SeededSource(seed)
    return [source.bits(256).to_bytes(32, "little") for _ in range(number)]


def check_slots(chosen, size, cycles=2):
    """Check that the slots of many devices are uniform, and pairs of consecutive ones too."""
    slots = np.array(
        [[chosen(each, size, cycle) for cycle in range(cycles)] for each in secrets(20_000)]
    )
    for cycle in range(cycles):
        counts = np.bincount(slots[:, cycle], minlength=size)
        statistical.check_counts(counts, [1 / size] * size, label="seed 11")
    for cycle in range(cycles - 1):
        pairs = slots[:, cycle] * size + slots[:, cycle + 1]
        counts = np.bincount(pairs, minlength=size * size)
        statistical.check_counts(counts, [1 / size**2] * size**2, label="seed 11")
    counts = np.bincount((slots[:, 1] - slots[:, 0]) % size, minlength=size)
    statistical.check_counts(counts, [1 / size] * size, label="seed 11")


@pytest.mark.parametrize("size", SIZES[1:])
def test_slots_are_uniform_and_consecutive_ones_independent(size):
    check_slots(slot, size)


@pytest.mark.parametrize(
    "faulty",
    [
        lambda secret, size, cycle: slot(secret, size, 0),
        lambda secret, size, cycle: (slot(secret, size, 0) + cycle) % size,
        lambda secret, size, cycle: slot(secret, size - 1, cycle),
        lambda secret, size, cycle: min(slot(secret, size + 1, cycle), size - 1),
    ],
    ids=["fixed", "rotating", "too few", "biased"],
)
def test_faulty_slots_would_be_seen(faulty):
    with pytest.raises(AssertionError):
        check_slots(faulty, 13)


def test_slots_of_other_sizes_are_independent():
    pairs = Counter((slot(each, 2, 1014), slot(each, 13, 156)) for each in secrets(20_000, seed=12))
    counts = [pairs[one, other] for one in range(2) for other in range(13)]
    statistical.check_counts(counts, [1 / 26] * 26, label="seed 12")


# Whatever it is that is refused, nothing is stored, charged or said.


# The secret.


def test_two_devices_have_two_secrets_and_one_keeps_to_its_place(path, tmp_path, caplog):
    found = {SeededClient(plan(), seed=seed)._store.panel.secret for seed in range(50)}
    assert len(found) == 50
    client = seeded(plan(metric("colour", panel=2), ceilings=VAST), state=path)
    secret = client._store.panel.secret
    told = [repr(client._store.panel), repr(client), str(client.ledger()), str(client.stats())]
    for _ in range(8):
        client.record("colour", "a")
        client.clock.advance(days=7)
    told.append(str(client.preview()))
    client.flush()
    sent = b"".join(body for _, body in client.publisher.messages)
    assert sent
    for form in (secret, secret.hex().encode(), repr(secret).encode()):
        assert form not in sent
        assert form not in "".join([*told, *caplog.messages]).encode()
    client.close()
    assert path.read_bytes().count(secret) == 1
    for beside in tmp_path.glob("device.db-*"):
        assert secret not in beside.read_bytes()


# For tests of apps.


def test_tests_of_apps_move_to_a_turn_or_out_of_it():
    client = SeededClient(small_plan(panel=13), seed=3)
    for turn in (True, False, True, False):
        move_to_turn(client, "colour", turn=turn)
        before = client.clock.now
        move_to_turn(client, "colour", turn=turn)
        assert client.clock.now == before
        expected = Outcome.ACCEPTED if turn else Outcome.NOT_IN_PANEL
        assert client.record("colour", "red") is expected
    every = SeededClient(small_plan(), seed=3)
    move_to_turn(every, "colour")
    assert every.record("colour", "red") is Outcome.ACCEPTED
    with pytest.raises(ParameterError, match="no panel"):
        move_to_turn(every, "colour", turn=False)
    with pytest.raises(UnknownMetricError):
        move_to_turn(every, "other")
