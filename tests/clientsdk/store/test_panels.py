"""Panels: of each N periods a device answers in one, which no value and no plan chooses."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
import statistical
from device_plans import VAST, WEEK, metric, plan
from scripts import start

from clientsdk import Outcome
from clientsdk.store import device_secrets
from clientsdk.store.device_secrets import Panel, slot
from clientsdk.testing import FakeClock, SeededClient, move_to_turn, small_plan
from mechanisms.testing import SeededSource
from sotto.errors import ParameterError, UnknownMetricError

#: The first period of a cycle, whatever the N of a test: 2912 = 13 · 4 · 56.
BEGIN = 2912
SIZES = [1, 2, 13, 26]


def device(*metrics, seed=1, changes=None, **options):
    options.setdefault("clock", FakeClock(BEGIN * WEEK))
    compiled = plan(*metrics, **{"ceilings": VAST, **(changes or {})})
    return SeededClient(compiled, seed=seed, **options)


def paneled(size, name="colour", kind="first", limit=1, **changes):
    return metric(name, kind, limit, **({"panel": size} if size > 1 else {}), **changes)


def turns(client, periods, name="colour"):
    """Record once in each of so many periods; return those in which that was accepted."""
    accepted = []
    for _ in range(periods):
        outcome = client.record(name, "a")
        assert outcome in (Outcome.ACCEPTED, Outcome.NOT_IN_PANEL)
        if outcome is Outcome.ACCEPTED:
            accepted.append(client.clock.now // WEEK)
        client.clock.advance(days=7)
    return accepted


def panel_of(client):
    return client._store.panel


# One turn a cycle.


@pytest.mark.parametrize("size", SIZES)
def test_each_cycle_before_and_after_the_epoch_has_one_turn(size):
    panel = Panel(b"s" * 32, device_secrets.ALWAYS)
    for cycle in range(-250, 750):
        periods = range(cycle * size, (cycle + 1) * size)
        assert [each for each in periods if panel.is_turn(size, each)] == [
            cycle * size + slot(panel.secret, size, cycle)
        ]


def test_a_turn_stays_after_a_restart_in_a_copy_and_for_the_next_version(path, tmp_path):
    first = device(paneled(13), state=path)
    expected = [
        period for period in range(BEGIN, BEGIN + 104) if panel_of(first).is_turn(13, period)
    ]
    found = turns(first, 20)
    now = first.clock.now
    first.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    for beside in tmp_path.glob("device.db*"):
        shutil.copy(beside, copy)
    lives = [
        {"state": path, "seed": 2},
        {"state": copy / "device.db", "seed": 3},
        {"state": path, "seed": 4, "changes": {"version": 2}},
        {"state": path, "seed": 5, "changes": {"plan": "other"}},
    ]
    for life in lives:
        client = device(paneled(13, "colour"), paneled(26, "other"), clock=FakeClock(now), **life)
        again = [each for each in range(BEGIN, BEGIN + 104) if panel_of(client).is_turn(13, each)]
        assert again == expected
        client.close()
    client = device(paneled(13), state=path, clock=FakeClock(now), seed=6)
    assert found + turns(client, 84) == expected


@pytest.mark.real_randomness
def test_processes_on_one_file_have_one_turn_together(path):
    code = """
now = 2912 * WEEK
client = device(metric("colour", panel=13), now=now)
accepted, outcomes = [], set()
for _ in range(52):
    outcome = client.record("colour", "a")
    outcomes.add(str(outcome))
    if outcome is Outcome.ACCEPTED:
        accepted.append(client.clock.now // WEEK)
    client.flush()
    client.clock.advance(days=7)
print(*accepted)
print(*sorted(outcomes))
"""
    workers = [start(code, path) for _ in range(2)]
    accepted = []
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode == 0, err
        numbers, outcomes = out.split("\n")[:2]
        accepted += map(int, numbers.split())
        assert set(outcomes.split()) <= {"accepted", "period_full", "not_in_panel"}
    with closing(sqlite3.connect(path)) as connection:
        panel = device_secrets.read_panel(connection)
        (recorded,) = connection.execute("SELECT count(*) FROM ledger WHERE reserved > 0")
    # A process whose clock is behind records in the period of the file.
    assert len(accepted) == recorded[0] <= 4  # every draw: 52 / 13.
    with closing(sqlite3.connect(path)) as connection:
        found = [period for (period,) in connection.execute("SELECT period FROM ledger")]
    assert all(panel.is_turn(13, period) for period in found)
    assert len({period // 13 for period in found}) == len(found)


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
    shifts = (slots[:, 1] - slots[:, 0]) % size
    counts = np.bincount(shifts, minlength=size)
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


def out_of_turn(*metrics, **options):
    client = device(*metrics, **options)
    move_to_turn(client, client.plan.metrics[0].name, turn=False)
    return client


@pytest.mark.parametrize("state", [None, "device.db"])
def test_out_of_turn_nothing_is_stored_or_charged_or_asked_of_the_file(tmp_path, state):
    client = out_of_turn(paneled(13), state=None if state is None else tmp_path / state)
    ledger = client.ledger()
    assert client.record("colour", "a") is Outcome.NOT_IN_PANEL
    seen = []
    client._store.database.connection.set_trace_callback(seen.append)
    client.clock.advance(days=6, hours=23)
    assert {client.record("colour", "a") for _ in range(5)} == {Outcome.NOT_IN_PANEL}
    assert seen == []
    after = client.ledger()
    assert (after.periods, after.pending, after.reserved) == (ledger.periods, (), 0)
    assert client.stats().refused == {Outcome.NOT_IN_PANEL: 6}
    move_to_turn(client, "colour")
    assert client.record("colour", "a") is Outcome.ACCEPTED


def test_the_quota_comes_after_panels(monkeypatch):
    monkeypatch.setattr("clientsdk.store.outbox._size", lambda connection: 1 << 40)
    assert out_of_turn(paneled(13)).record("colour", "a") is Outcome.NOT_IN_PANEL
    client = device(paneled(13))
    move_to_turn(client, "colour")
    assert client.record("colour", "a") is Outcome.STORE_FULL


def lose(path):
    for beside in path.parent.glob("device.db*"):
        if not beside.name.endswith("-mark"):
            beside.unlink()


def damage(path):
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"x" * 400 + content[500:])


@pytest.mark.parametrize("harm", [lose, damage])
def test_losing_the_file_gives_no_second_turn_in_a_cycle(path, harm):
    """Whenever it is lost: after the turn, or before, when a new secret would choose anew."""
    found, clock, size = [], FakeClock(BEGIN * WEEK), 4
    changes = {"ceilings": {"period": 2_000_000, "lifetime": 10**12}}
    lost = {BEGIN + 7 * which for which in range(16)}
    client = device(paneled(size), state=path, clock=clock, changes=changes)
    for period in range(BEGIN, BEGIN + 120):
        found += turns(client, 1)
        if period in lost:
            client.close()
            harm(path)
            client = device(paneled(size), state=path, clock=clock, changes=changes, seed=period)
    assert client.ledger().damaged == len(lost)
    cycles = Counter(period // size for period in found)
    assert set(cycles.values()) == {1}
    # From the cycle on that begins after the last loss, none is left out.
    after = (max(lost) + 2 * size) // size
    assert cycles.keys() >= set(range(after, (BEGIN + 120) // size))


# The secret.


def test_two_devices_have_two_secrets_and_one_keeps_to_its_place(path, tmp_path, caplog):
    found = {panel_of(device(metric("colour"), seed=seed)).secret for seed in range(50)}
    assert len(found) == 50
    client = device(paneled(2), state=path)
    secret = panel_of(client).secret
    told = [repr(client._store.panel), repr(client), str(client.ledger()), str(client.stats())]
    turns(client, 8)
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
