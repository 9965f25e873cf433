"""The aggregator's ledger of a pseudonym agrees with what its device sent."""

from __future__ import annotations

import random
import shutil

import pytest
from committed_states import empty_state, period_totals
from report_logs import START, Device, write
from step_plans import DAY, PERIOD, plans

from pipelines.aggregation import decode as parts
from pipelines.bounded.run import aggregate
from pipelines.storage.directory import StateDirectory
from pipelines.storage.ledger import pseudonym_ledger
from sotto.errors import AggregationError, ParameterError


@pytest.fixture
def device():
    return Device(plans()[1], random.Random(31))


def test_a_pseudonym_is_shown_chain_by_chain(tmp_path, device):
    colour, shape = device.plan.metric("colour"), device.plan.metric("shape")
    first, second = device.chain(colour, START), device.chain(shape, START + DAY, 1)
    log = write(tmp_path / "log", [*first, *second], lanes=1)
    aggregate(log, tmp_path / "state", plans())
    (found,) = pseudonym_ledger(tmp_path / "state", device.pseudonym.hex())
    assert found.period_start == START - START % PERIOD
    assert found.period_end == found.period_start + PERIOD
    assert found.revoked is None
    assert found.budget == 4_000_000
    lines = {line.metric: line for line in found.chains}
    assert (lines["colour"].counted, lines["shape"].counted) == (2, 0)
    assert lines["colour"].accepted == colour.mechanism.certified(2)
    assert lines["shape"].payloads == (1, 0)
    assert lines["colour"].event == START
    assert (lines["colour"].plan, lines["colour"].version) == ("step", 2)
    spent = colour.mechanism.certified(2) + shape.mechanism.certified(0)
    assert found.accepted == found.observed == spent
    totals = period_totals(tmp_path / "state")[found.period_start]
    assert (totals.pseudonyms, totals.accepted, totals.chains) == (1, spent, 2)


def test_what_is_not_there_is_nothing(tmp_path, device):
    log = write(tmp_path / "log", device.chain(device.plan.metrics[0], START))
    aggregate(log, tmp_path / "state", plans())
    assert pseudonym_ledger(tmp_path / "state", bytes(16).hex()) == ()
    with pytest.raises(ParameterError, match="32 hexadecimal digits"):
        pseudonym_ledger(tmp_path / "state", "zz")
    with pytest.raises(AggregationError, match="no run"):
        pseudonym_ledger(tmp_path / "nowhere", bytes(16).hex())
    fresh = empty_state(tmp_path / "fresh")
    assert pseudonym_ledger(fresh, bytes(16).hex()) == ()
    assert period_totals(fresh) == {}


def test_a_commit_in_between_makes_it_read_again(tmp_path, device, monkeypatch):
    colour = device.plan.metric("colour")
    first, *rest = device.chain(colour, START)
    log, state = write(tmp_path / "log", [first], lanes=1), tmp_path / "state"
    aggregate(log, state, plans())
    old = tmp_path / "old"
    shutil.copytree(state, old)
    write(log, rest, lanes=1)
    aggregate(log, state, plans())
    manifests = iter([StateDirectory(old).manifest()])
    real = StateDirectory.manifest
    monkeypatch.setattr(
        StateDirectory, "manifest", lambda self: next(manifests, None) or real(self)
    )
    (found,) = pseudonym_ledger(state, device.pseudonym.hex())
    assert [line.counted for line in found.chains] == [2]


def test_a_pseudonym_is_found_in_whichever_part_of_its_period(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "CHAINS", 1)
    devices = [Device(plans()[1], random.Random(seed)) for seed in range(12)]
    sent = [one for device in devices for one in device.chain(device.plan.metrics[0], START)]
    aggregate(write(tmp_path / "log", sent), tmp_path / "state", plans())
    found = [pseudonym_ledger(tmp_path / "state", each.pseudonym.hex()) for each in devices]
    assert [len(each) for each in found] == [1] * 12
    states = StateDirectory(tmp_path / "state").manifest().states
    assert {part for _, part in states} == {0, 1, 2, 3}
