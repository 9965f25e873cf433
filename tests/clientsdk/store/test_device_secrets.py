"""Pseudonyms: how they are derived, and that a secret or a copied file says nothing of others."""

from __future__ import annotations

import shutil

import pytest
from device_plans import START, WEEK, metric, plan, reports
from scripts import PRELUDE, run

from clientsdk import Client, MemoryPublisher
from clientsdk.testing import FakeClock

LADDER = [(500_000, 0)]


class Device:
    """A client with the system's randomness, a clock to move, and what it has sent."""

    def __init__(self, folder, weeks=0):
        self.clock, self.publisher = FakeClock(START + weeks * WEEK), MemoryPublisher()
        self.client = Client(
            plan(metric("colour", ladder=LADDER)),
            state=folder / "device.db",
            publisher=self.publisher,
            clock=self.clock,
            background=False,
        )

    def pseudonym(self):
        """Record and send in the period in which it is; return the name that went out."""
        self.client.give_consent()
        assert self.client.record("colour", "a") == "accepted"
        self.clock.advance(days=1)
        assert self.client.flush().sent == 1
        (*_, last) = reports(self.publisher.messages)
        return last.pseudonym


@pytest.fixture
def copies(tmp_path):
    """Two folders with one device's files, as of some moment."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    with Device(original).client as client:
        client.ledger()
    shutil.copytree(original, copy)
    return original, copy


def test_a_copy_has_the_same_pseudonym_until_the_period_ends(copies):
    assert len({Device(folder).pseudonym() for folder in copies}) == 1


@pytest.mark.parametrize("weeks", [1, 2, 40])
def test_a_copy_predicts_no_pseudonym_of_a_later_period(copies, weeks):
    assert len({Device(folder, weeks).pseudonym() for folder in copies}) == 2


def test_periods_that_were_seen_tell_nothing_of_those_that_are_skipped(copies):
    """One copy walks through every period, the other leaps: they are two devices."""
    walking, leaping = (Device(folder) for folder in copies)
    walked = []
    for _ in range(4):
        walked.append(walking.pseudonym())
        walking.clock.now = START + len(walked) * WEEK
    leaping.clock.now += 3 * WEEK
    assert len({*walked, leaping.pseudonym()}) == 5


TWO = """
folder = Path(sys.argv[1])
client = device(metric("colour", ladder=[(500_000, 0)]), state=folder / "device.db", consent=False)
client.clock.now = START + 3 * WEEK
print("ready", flush=True)
sys.stdin.readline()
client.give_consent()
print(client._store.identity.pseudonym.hex())
"""


@pytest.mark.real_randomness
def test_processes_that_turn_a_period_over_at_once_agree(tmp_path):
    both = """
import subprocess
children = [subprocess.Popen([sys.executable, "-c", sys.argv[2], str(path)], stdin=-1, stdout=-1,
                             text=True) for _ in range(4)]
for child in children:
    assert child.stdout.readline() == "ready\\n"
for child in children:
    child.stdin.write("go\\n")
    child.stdin.flush()
print(*{child.communicate()[0] for child in children}, sep="")
"""
    assert len(run(both, tmp_path, PRELUDE + TWO).split()) == 1
