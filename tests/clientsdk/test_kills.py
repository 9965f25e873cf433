"""A short run of ``python -m benchmarks.kills``, and faults that it would see."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripts import ROOT

from benchmarks.kills import life
from benchmarks.kills.life import DAY, START, WEEK, open_device
from benchmarks.kills.witness import BrokenPromiseError, Witness
from clientsdk.store.database import WRITE


@pytest.mark.real_randomness
@pytest.mark.slow
def test_kills_at_random_instants():
    """Three processes share one file; test_crash_instants has every instant of one process."""
    options = ["--kills", "40", "--workers", "3", "--seed", "7"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks.kills", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the ledger is what was counted" in done.stdout


@pytest.fixture
def clock():
    return [START]


@pytest.fixture
def device(tmp_path, clock):
    client = open_device(tmp_path, lambda: clock[0] / 1000)
    client.give_consent()
    for week in range(2):
        clock[0] = START + week * WEEK
        for name in ("colour", "kept", "model", "app"):
            client.record(name, "a")
        clock[0] += DAY
        assert client.flush().sent > 0
    return client


def test_a_sound_device_passes(tmp_path, device):
    witness = Witness(tmp_path)
    assert len(witness.look().periods) == 2
    assert witness.reports > 0


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("spent = 0, reserved = reserved - 1", "forgotten"),
        ("spent = 0", "more than was spent"),
        ("reserved = spent", "without a charge"),
    ],
)
def test_a_ledger_that_is_wrong_is_seen(tmp_path, device, damage, found):
    witness = Witness(tmp_path)
    if found == "forgotten":
        witness.look()
    with device._store.transaction(WRITE) as connection:
        connection.execute(f"UPDATE ledger SET {damage}")
    with pytest.raises(BrokenPromiseError, match=found):
        witness.look()


def test_an_acknowledged_value_that_is_lost_is_seen(tmp_path, device):
    (tmp_path / "acks").write_bytes(b"aaa")
    with pytest.raises(BrokenPromiseError, match="lost"):
        Witness(tmp_path).look()


def test_a_second_payload_for_a_key_is_seen(tmp_path, device):
    """The same report again, with its last byte turned over: what is drawn anew looks so."""
    path = tmp_path / "published"
    content = path.read_bytes()
    (length,) = life.LENGTH.unpack_from(content)
    first = bytearray(content[: 2 * life.LENGTH.size + length])
    first[-1] = (first[-1] + 1) % 4
    path.write_bytes(content + bytes(first))
    with pytest.raises(BrokenPromiseError, match="two payloads"):
        Witness(tmp_path).look()
