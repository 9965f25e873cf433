"""A client that opens its file again makes sure that it is the file it knows."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from device_plans import DAY, HOUR, START, VAST, alter, counted, metric, plan, reports
from scripts import run

from clientsdk import MemoryPublisher, Outcome
from clientsdk.ledger import read_file
from clientsdk.store.store import FORGET_AFTER
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import StoreError


def device(path, *metrics, seed=1, **changes):
    compiled = plan(*metrics, ceilings=VAST, **changes)
    return SeededClient(compiled, seed=seed, state=path, clock=FakeClock(START))


def connect_again(client):
    """As every fork and every failed rollback does."""
    client._store.database.disconnect()


def remove(path):
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


def rename(path):
    path.rename(path.with_name("elsewhere"))


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


def test_another_store_in_its_place_is_left_alone(path):
    client = device(path, metric("colour"))
    client.record("colour", "a")
    connect_again(client)
    remove(path)
    with device(path, metric("colour"), seed=2, plan="beta"):
        pass
    content = path.read_bytes()
    assert client.record("colour", "a") is Outcome.STORE_FULL
    for use in (client.flush, client.ledger, client.next_due, client.give_consent):
        with pytest.raises(StoreError, match="another file"):
            use()
    assert not client._store.erasure.scrub(compact=True)
    client.close()
    assert path.read_bytes() == content


def test_an_older_copy_in_the_same_file_is_noticed_before_anything_is_charged(path):
    """`cp backup device.db` writes into the file that is open, under what SQLite has in memory."""
    client = device(path, metric("colour", "every", 9))
    client.record("colour", "a")
    client._store.erasure.scrub(compact=True)
    copy = path.read_bytes()
    client.record("colour", "b")
    client.clock.advance(hours=3)
    assert client.flush().sent == 2
    path.write_bytes(copy)
    for use in (client.flush, client.renew_consent):
        with pytest.raises(StoreError, match="older copy"):
            use()
    client.close()
    with device(path, metric("colour", "every", 9), seed=2) as again:
        assert again.ledger().restored == 1
        assert again.flush().sent == 0


def test_a_file_that_comes_back_is_gone_on_with(path):
    client = device(path, metric("colour", "every", 9))
    client.record("colour", "a")
    rename(path)
    time.sleep(FORGET_AFTER)
    assert client.record("colour", "a") is Outcome.STORE_FULL
    path.with_name("elsewhere").rename(path)
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert len(client.ledger().pending) == 2


def test_an_older_copy_without_the_plan_is_noticed(path):
    """Else the next plan gets its number, and chains follow a plan they were not drawn under."""
    device(path, metric("colour")).close()
    copy = path.read_bytes()
    client = device(path, metric("colour"), metric("extra"), seed=2, version=2)
    connect_again(client)
    remove(path)
    path.write_bytes(copy)
    assert client.record("extra", "a") is Outcome.STORE_FULL
    client.close()
    third = device(path, metric("price"), seed=3, version=3)
    assert third.ledger().pending == ()


def test_a_file_that_is_no_longer_a_store_is_left_alone(path):
    client = device(path)
    connect_again(client)
    remove(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    content = path.read_bytes()
    assert client.record("colour", "a") is Outcome.STORE_FULL
    client.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM theirs").fetchall() == []
    assert path.read_bytes()[100:] == content[100:]


def test_a_plan_that_cannot_be_read_holds_up_its_own_chains_only(path, monkeypatch):
    monkeypatch.setattr("clientsdk.sending.sender.BATCH", 2)
    old = device(path, metric("old", "every", 9))
    for _ in range(5):
        old.record("old", "a")
    old.close()
    alter(path, "UPDATE plan SET body = x'7b7d' WHERE id = 1")
    new = device(path, metric("colour", "every", 9), seed=2, version=2)
    for _ in range(5):
        new.record("colour", "a")
    new.clock.advance(hours=3)
    result = new.flush()
    assert (result.sent, result.remaining) == (5, 5)
    assert isinstance(result.error, StoreError)
    alter(path, "UPDATE plan SET body = ? WHERE id = 1", old.plan.to_json())
    assert new.flush().sent == 5
    assert sum(counted(reports(new.publisher.messages), [old.plan, new.plan]).values()) == (
        new.ledger().spent
    )


def test_a_clock_that_counts_in_fractions():
    client = SeededClient(
        plan(metric("colour")), seed=1, clock=FakeClock(START + 0.25), publisher=MemoryPublisher()
    )
    assert client.record("colour", "a") is Outcome.ACCEPTED
    client.clock.now += 1.0 * DAY + 3 * HOUR
    assert client.flush().sent == 1
    (report,) = reports(client.publisher.messages)
    assert report.event == START
