"""A file that is damaged, lost or older than it should be: nothing is won, and it goes on."""

from __future__ import annotations

import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from device_plans import START, WEEK, metric, plan, seeded
from scripts import start

from clientsdk import Outcome
from clientsdk.ledger import read_file
from clientsdk.store import damaged_files, rollback_guard, schema
from clientsdk.testing import FakeClock
from sotto.errors import StoreError

CEILING = 12_000_000
COST = 2_000_000


PLAN = plan(metric("colour", "every", 3))


def device(path, now=START, **options):
    """A device at which consent is given only by a test."""
    options = {"consent": False, **options}
    return seeded(PLAN, state=path, clock=FakeClock(now), **options)


def live(path, weeks=2, seed=1):
    """Record and send for some weeks; return the ledger and the messages of that life."""
    with device(path, seed=seed, consent=True) as client:
        for week in range(weeks):
            client.clock.now = START + week * WEEK
            assert client.record("colour", "a") is Outcome.ACCEPTED
            client.clock.advance(hours=3)
            assert client.flush().error is None
        return client.ledger(), client.publisher.messages


def overwrite(path, start, size=64):
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * size)


def aside(path):
    return sorted(file.name for file in path.parent.glob("*-damaged-*[0-9]"))


def remove(path, *suffixes):
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def test_a_file_of_which_sqlite_says_what_is_no_text(path):
    """Its message repeats a damaged byte, and Python makes no error of it but one of its own."""
    ledger, _ = live(path)
    content = path.read_bytes()
    assert content.count(b"CHECK (carried") == 1
    path.write_bytes(content.replace(b"CHECK (carried", b"\xb6HECK (carried"))
    with pytest.raises(StoreError, match="is damaged"):
        read_file(path)
    content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    with device(path, seed=2, now=START + WEEK) as client:
        assert aside(path) == ["device.db-damaged-1"]
        kept = path.with_name("device.db-damaged-1")
        assert kept.read_bytes() == content
        assert stat.S_IMODE(kept.stat().st_mode) == mode == 0o600
        assert client.ledger().damaged == 1
        assert client.ledger().reserved == ledger.reserved + CEILING - ledger.periods[-1].reserved


def test_a_withdrawal_erases_what_was_kept_aside(path):
    live(path)
    overwrite(path, 0)
    with device(path, seed=2, consent=True) as client:
        (name,) = aside(path)
        # A second name for the same bytes shows that they were overwritten.
        os.link(path.with_name(name), path.with_name("witness"))
        assert client.withdraw_consent()
    assert aside(path) == []
    assert set(path.with_name("witness").read_bytes()) == {0}


# The guard itself.


def test_a_guard_holds_sums_and_no_secret(path):
    with device(path, consent=True) as client:
        client.record("colour", "a")
        client.clock.advance(hours=3)
        client.flush()
        (period,) = client.ledger().periods
        (chain,) = client.ledger().pending
        secrets = [bytes.fromhex(period.pseudonym), bytes.fromhex(chain.chain)]
    beside = path.with_name(path.name + "-mark")
    content = beside.read_bytes()
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert len(content) == 384
    assert not any(each in content for each in secrets)
    found = rollback_guard.read(path)
    assert (found.period, found.lifetime, found.reserved) == (START // WEEK, COST, COST)


def test_one_of_two_places_is_always_whole(path):
    """A mark is never written over the newest."""
    first = rollback_guard.UNREADABLE._replace(store=b"s" * 16, generation=5, lifetime=7)
    rollback_guard.replace(path, first)
    rollback_guard.advance(path, first._replace(generation=6, lifetime=8))
    beside = path.with_name(path.name + "-mark")
    content = bytearray(beside.read_bytes())
    rollback_guard.advance(path, first._replace(generation=9, lifetime=9))
    assert rollback_guard.read(path).lifetime == 9
    after = beside.read_bytes()
    changed = {
        place for place in range(2) if content[place * 128 :][:128] != after[place * 128 :][:128]
    }
    assert len(changed) == 1
    (place,) = changed
    beside.write_bytes(after[: place * 128] + b"\xff" * 128 + after[(place + 1) * 128 :])
    assert rollback_guard.read(path).generation == 6
    rollback_guard.advance(path, first._replace(generation=2))
    assert rollback_guard.read(path).generation == 6
    with pytest.raises(StoreError, match="another file"):
        rollback_guard.advance(path, first._replace(store=b"t" * 16, generation=10))


@pytest.mark.real_randomness
@pytest.mark.parametrize("place", [(0, 64), (3 * 2048, 1800)], ids=["header", "page"])
def test_processes_find_the_damage_at_once(path, place):
    live(path)
    overwrite(path, *place)
    code = """
client = Device(plan(metric("colour", "every", 3)), START + 7 * DAY, MemoryPublisher(), state=path)
print(client.ledger().damaged, client.ledger().reserved)
client.close()
"""
    workers = [start(code, path) for _ in range(3)]
    said = set()
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode == 0, err
        said.add(out)
    assert len(said) == 1
    assert aside(path) == ["device.db-damaged-1"]


def test_a_new_file_waits_until_the_damaged_one_is_set_aside(path, monkeypatch):
    """Setting it aside ends by removing its index, which would be the new file's."""
    monkeypatch.setattr(schema, "PATIENCE", 50.0)
    live(path)
    remove(path, "", "-wal", "-shm")
    with ThreadPoolExecutor(1) as pool:
        with rollback_guard.locked(str(path)):
            made = pool.submit(lambda: device(path, seed=2).close())
            with pytest.raises(TimeoutError):
                made.result(timeout=0.2)
            assert not path.exists()
        made.result(timeout=600)
    assert path.exists()


def test_a_file_that_is_set_aside_while_it_is_opened_is_made_anew(path, monkeypatch):
    live(path)
    place = path.stat().st_dev, path.stat().st_ino
    original = schema.connect

    def late(name, *, create):
        if not aside(path):
            assert damaged_files.set_aside(str(path), place, START)
            assert not create
        return original(name, create=create)

    monkeypatch.setattr(schema, "connect", late)
    with device(path, seed=2, now=START + WEEK) as client:
        assert client.ledger().damaged == 1
    assert aside(path) == ["device.db-damaged-1"]


@pytest.mark.parametrize("found_by_all", [(), ("-mark",)])
def test_a_process_that_is_late_to_find_the_damage_changes_nothing(path, found_by_all):
    """Another process has set the file aside, and has or has not begun a new one."""
    ledger, _ = live(path)
    remove(path, *found_by_all)
    for number in range(damaged_files.KEPT):
        path.with_name(f"device.db-damaged-{number + 1}").write_bytes(b"older")
    overwrite(path, 0)
    place = path.stat().st_dev, path.stat().st_ino
    assert damaged_files.set_aside(str(path), place, START)
    # No new file gets the inode by which it is known.
    assert place[1] in {path.with_name(name).stat().st_ino for name in aside(path)}
    assert len(aside(path)) == damaged_files.KEPT
    assert damaged_files.set_aside(str(path), place, START)
    with device(path, seed=2, now=START + WEEK, consent=True) as client:
        assert client.ledger().reserved > ledger.reserved
        assert damaged_files.set_aside(str(path), place, START)
        assert client.give_consent(again=True)
        assert rollback_guard.read(path).store == client._store.guard.identity


def test_a_file_that_may_only_be_read(path):
    """Refused at once, by the file system or by SQLite, and nothing has changed."""
    live(path)
    content = path.read_bytes()
    original = sqlite3.connect

    def read_only(database, **options):
        return original(str(database).replace("mode=rw", "mode=ro"), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", read_only)
        with pytest.raises(StoreError):
            device(path, seed=2)
    assert path.read_bytes() == content
    assert device(path, seed=3).ledger().damaged == 0


def test_one_file_under_two_names_has_one_guard(path, tmp_path):
    live(path)
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with device(link, seed=2, now=START + WEEK) as client:
        assert client.ledger().restored == 0
        assert client.record("colour", "a") is Outcome.ACCEPTED
        client.clock.advance(hours=3)
        assert client.flush().sent == 1
    assert list(link.parent.iterdir()) == [link]


def test_consent_waits_for_the_disk_and_a_new_file_does_not(path, monkeypatch):
    synced = []

    def sync(descriptor, fsync=os.fsync):
        beside = os.path.samestat(os.fstat(descriptor), path.parent.stat())
        synced.append("folder" if beside else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with device(path) as client:
        assert synced == []
        client.give_consent()
        # The rollback guard, and the name that it was given when the store was made.
        assert synced == ["file", "folder"]
        client.renew_consent()
        assert synced == ["file", "folder", "file"]
        remove(path, "-mark")
        client.renew_consent()
        assert synced == ["file", "folder", "file", "file", "folder"]


def test_a_folder_whose_name_is_no_text_is_in_no_error(tmp_path):
    folder = tmp_path / os.fsdecode(b"alice\xff")
    folder.mkdir()
    with closing(schema.connect(str(folder / "device.db"), create=True)) as connection:
        assert str(schema.damaged(connection)) == "the device's store cannot be used: it is damaged"
