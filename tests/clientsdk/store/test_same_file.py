"""A client that opens its file again makes sure that it is the file it knows."""

from __future__ import annotations

import time

import pytest
from device_plans import DAY, HOUR, START, VAST, metric, plan, reports, seeded
from scripts import run

from clientsdk import MemoryPublisher, Outcome
from clientsdk.ledger import read_file
from clientsdk.store.store import FORGET_AFTER
from clientsdk.testing import FakeClock, SeededClient


@pytest.mark.real_randomness
def test_a_relative_path_means_the_file_it_meant_at_first(tmp_path):
    """A daemon changes its directory and forks."""
    code = """
os.mkdir(path / "one"), os.mkdir(path / "two")
os.chdir(path / "two")
other = plan(metric("other", ladder=[(100_000, 0)]), collector="someone.else", ceilings=VAST)
there = Device(other, START, MemoryPublisher(), state="device.db")
there.give_consent()
there.close()
os.chdir(path / "one")
here = device(metric("colour"), state="device.db")
os.chdir(path / "two")
wait(child(lambda: here.record("colour", "a")))
here.close()
"""
    run(code, tmp_path)
    assert len(read_file(tmp_path / "one" / "device.db").pending) == 1
    assert read_file(tmp_path / "two" / "device.db").pending == ()


def test_a_file_that_comes_back_is_gone_on_with(path):
    client = seeded(plan(metric("colour", "every", 9), ceilings=VAST), state=path)
    client.record("colour", "a")
    path.rename(path.with_name("elsewhere"))
    time.sleep(FORGET_AFTER)
    assert client.record("colour", "a") is Outcome.STORE_FULL
    path.with_name("elsewhere").rename(path)
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert len(client.ledger().pending) == 2


def test_a_clock_that_counts_in_fractions():
    client = SeededClient(
        plan(metric("colour")), seed=1, clock=FakeClock(START + 0.25), publisher=MemoryPublisher()
    )
    assert client.record("colour", "a") is Outcome.ACCEPTED
    client.clock.now += 1.0 * DAY + 3 * HOUR
    assert client.flush().sent == 1
    (report,) = reports(client.publisher.messages)
    assert report.event == START
