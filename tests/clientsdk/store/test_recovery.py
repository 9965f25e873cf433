"""A file that is damaged, lost or older than it should be: nothing is won, and it goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import pytest
from device_plans import CONSTANT, DAY, START, WEEK, counted, metric, plan, reports
from scripts import start

from clientsdk import Consent, Outcome
from clientsdk.ledger import read_file
from clientsdk.store import damaged_files, rollback_guard
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import PlanError, StoreError
from sotto.plan.compiled import Ceilings

CEILING = 12_000_000
COST = 2_000_000


def device(path, *metrics, seed=1, now=START, consent=False, ceilings=None, **options):
    return SeededClient(
        plan(*metrics or (metric("colour", "every", 3),), **options),
        seed=seed,
        state=path,
        clock=FakeClock(now),
        consent=consent,
        ceilings=ceilings,
    )


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


def full(descriptor):
    raise OSError("full")


def second_page(path):
    """Where a table begins: its content is read only when it is used."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'chain'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return (page - 1) * size


def check_full(client, ledger, lost=0, older=0):
    """Nothing is recorded in this period, and the lifetime has forgotten nothing."""
    now = client.ledger()
    assert (now.damaged, now.restored) == (lost, older)
    assert now.consent is not Consent.GIVEN
    assert now.pending == ()
    assert now.reserved == ledger.reserved + CEILING - ledger.periods[-1].reserved
    assert now.reserved >= now.spent >= ledger.spent
    assert client.record("colour", "a") is Outcome.NO_CONSENT
    client.give_consent(again=True)
    assert client.record("colour", "a") is Outcome.OVER_BUDGET
    assert client.flush().sent == 0
    client.clock.advance(days=7)
    assert client.record("colour", "a") is Outcome.ACCEPTED
    client.clock.advance(hours=3)
    assert client.flush().sent == 1


@pytest.mark.parametrize("start", [0, 16, 100, "a table"])
def test_a_damaged_file_is_kept_aside_and_the_period_is_full(path, start, caplog):
    ledger, _ = live(path)
    overwrite(path, second_page(path) if start == "a table" else start)
    content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    with device(path, seed=2, now=START + WEEK) as client:
        assert aside(path) == ["device.db-damaged-1"]
        kept = path.with_name("device.db-damaged-1")
        assert kept.read_bytes() == content
        assert stat.S_IMODE(kept.stat().st_mode) == mode == 0o600
        assert [record.name for record in caplog.records] in (["clientsdk"], [])
        check_full(client, ledger, lost=1)


def make_older(path):
    """Make a store that is closed one of an earlier release, as far as its version says."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE arm")
        connection.execute("PRAGMA user_version = 6")


def test_a_file_of_an_earlier_release_is_kept_aside_and_the_period_is_full(path, caplog):
    ledger, _ = live(path)
    make_older(path)
    content = path.read_bytes()
    with pytest.raises(StoreError, match="schema 6"):
        read_file(path)
    with device(path, seed=2, now=START + WEEK) as client:
        assert aside(path) == ["device.db-damaged-1"]
        assert path.with_name("device.db-damaged-1").read_bytes() == content
        check_full(client, ledger, lost=1)


def test_a_file_of_an_earlier_release_without_a_guard_leaves_nothing_of_the_lifetime(path):
    live(path)
    make_older(path)
    remove(path, "-mark")
    with device(path, seed=2, now=START + 9 * WEEK, consent=True) as client:
        assert client.ledger().reserved >= client.ledger().ceilings.lifetime
        assert client.consent is Consent.WITHDRAWN


@pytest.mark.parametrize("noted", [True, False])
def test_a_withdrawal_in_a_file_of_an_earlier_release_holds(path, noted):
    """Guards of the earliest releases had no room to note it."""
    live(path)
    with device(path) as client:
        client.withdraw_consent()
    make_older(path)
    if not noted:
        guard = path.with_name(path.name + "-mark")
        guard.write_bytes(guard.read_bytes()[:256])
    with device(path, seed=2, now=START + 3 * WEEK, consent=True) as client:
        assert client.consent is Consent.WITHDRAWN
        assert client.record("colour", "a") is Outcome.NO_CONSENT


def test_a_file_of_an_earlier_release_and_another_collector_stays(path):
    live(path)
    make_older(path)
    content = path.read_bytes()
    with pytest.raises(PlanError, match="collector"):
        device(path, seed=2, collector="someone.else")
    assert path.read_bytes() == content
    assert aside(path) == []


def test_a_file_of_which_sqlite_says_what_is_no_text(path):
    """Its message repeats a damaged byte, and Python makes no error of it but one of its own."""
    ledger, _ = live(path)
    content = path.read_bytes()
    assert content.count(b"CHECK (carried") == 1
    path.write_bytes(content.replace(b"CHECK (carried", b"\xb6HECK (carried"))
    with pytest.raises(StoreError, match="is damaged"):
        read_file(path)
    with device(path, seed=2, now=START + WEEK) as client:
        assert aside(path) == ["device.db-damaged-1"]
        check_full(client, ledger, lost=1)


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_file_that_is_lost_or_emptied_is_not_a_new_device(path, lose):
    ledger, _ = live(path)
    lose(path)
    with device(path, seed=2, now=START + WEEK) as client:
        check_full(client, ledger, lost=1)


def test_damage_again_and_again_wins_nothing(path):
    """In one period it costs no more than once, and few files are kept."""
    ledger, _ = live(path)
    for time in range(damaged_files.KEPT + 3):
        overwrite(path, 0)
        with device(path, seed=2 + time, now=START + WEEK, consent=True) as client:
            found = client.ledger()
            assert found.reserved == ledger.reserved + CEILING - ledger.periods[-1].reserved
            assert client.record("colour", "a") is Outcome.OVER_BUDGET
            assert found.damaged == 1 + time
    assert len(aside(path)) == damaged_files.KEPT


def test_damage_in_every_period_uses_the_lifetime_up(path):
    low = Ceilings(CEILING, 3 * CEILING)
    for week in range(8):
        with device(
            path, seed=week + 1, now=START + week * WEEK, consent=True, ceilings=low
        ) as client:
            client.clock.advance(hours=1)
            taken = client.record("colour", "a")
            assert client.ledger().reserved <= low.lifetime
            client.clock.advance(hours=3)
            client.flush()
        overwrite(path, 0)
    assert taken is Outcome.OVER_BUDGET


def test_ceilings_that_were_lowered_stay_low(path):
    low = Ceilings(3_000_000, 20_000_000)
    device(path, ceilings=low).close()
    overwrite(path, 0)
    with device(path, seed=2) as client:
        assert client.ledger().ceilings == low


@pytest.mark.parametrize("guard", [None, b"garbage" * 40, b"x"])
def test_damage_without_a_guard_leaves_nothing_of_the_lifetime(path, guard):
    live(path)
    remove(path, "-mark")
    if guard is not None:
        path.with_name(path.name + "-mark").write_bytes(guard)
    overwrite(path, 0 if guard else second_page(path))
    with device(path, seed=2, now=START + 9 * WEEK, consent=True) as client:
        assert client.ledger().reserved >= client.ledger().ceilings.lifetime
        # A withdrawal may have been in what is gone.
        assert client.consent is Consent.WITHDRAWN
        assert client.record("colour", "a") is Outcome.NO_CONSENT
        assert client.give_consent(again=True)
        assert client.record("colour", "a") is Outcome.OVER_BUDGET


@pytest.mark.parametrize("size", [100, 4096, None])
@pytest.mark.parametrize("byte", [b"\0", b"\xa5"])
def test_damage_from_the_first_byte_on_without_a_guard_stops_no_later_start(path, size, byte):
    live(path)
    remove(path, "-mark", *(["-sending"] if size or byte == b"\0" else []))
    content = path.read_bytes()
    path.write_bytes(byte * (size or len(content)) + content[size or len(content) :])
    for seed in (2, 3):
        with device(path, seed=seed, now=START + WEEK, consent=True) as client:
            assert client.consent is Consent.WITHDRAWN
            ledger = client.ledger()
            assert ledger.damaged == 1
            assert ledger.reserved >= ledger.ceilings.lifetime


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


def test_a_kept_file_that_cannot_be_erased_stays_owed(path, monkeypatch):
    live(path)
    overwrite(path, 0)
    with device(path, seed=2, consent=True) as client:
        monkeypatch.setattr(damaged_files, "_erase", full)
        assert not client.withdraw_consent()
        monkeypatch.undo()
        client.flush()
    assert aside(path) == []


# Older copies.


def test_a_copy_older_by_one_flush_is_noticed(path):
    with device(path, consent=True) as client:
        client.record("colour", "a")
    copy = path.read_bytes()
    with device(path, seed=2) as client:
        client.clock.advance(hours=3)
        assert client.flush().sent == 1
        ledger = client.ledger()
    path.write_bytes(copy)
    with device(path, seed=3) as client:
        check_full(client, ledger, older=1)


def test_an_older_copy_sends_nothing_of_its_own(path):
    """A chain that was displaced in the newer file would be a second one for one charge."""
    metrics = metric("kept", "reservoir"), metric("colour")
    with device(path, *metrics, consent=True) as client:
        client.record("kept", "a")
    copy = path.read_bytes()
    with device(path, *metrics, seed=2) as client:
        for _ in range(20):
            client.record("kept", "b")
        client.clock.advance(days=15)
        assert client.flush().sent == 1
    path.write_bytes(copy)
    with device(path, *metrics, seed=3, consent=True) as client:
        client.clock.advance(days=15)
        assert client.flush().sent == 0


def test_a_permanent_response_of_the_newer_file_stays_charged(path):
    constant = metric("model", "constant", ladder=CONSTANT)
    device(path, constant, consent=True).close()
    copy = path.read_bytes()
    with device(path, constant, seed=2) as client:
        client.record("model", "a")
        client.clock.advance(hours=3)
        client.flush()
        spent = client.ledger().reserved
    path.write_bytes(copy)
    with device(path, constant, seed=3) as client:
        assert client.ledger().reserved == spent + CEILING


def test_a_copy_without_its_guard_counts_all_periods_since(path, tmp_path, caplog):
    """What the other copy has spent since is not known, but for the most that it can be."""
    live(path, weeks=1)
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    with device(copy, seed=2, now=START + 2 * WEEK, consent=True) as client:
        assert client.ledger().reserved == 3 * CEILING
        assert client.ledger().restored == 1
        # Whether consent was withdrawn since, nobody can know.
        assert client.consent is Consent.WITHDRAWN
        assert not client.give_consent()
        (told,) = [each for each in caplog.messages if "older than the rollback guard" in each]
        assert "moved without" in told
        assert "give_consent(again=True)" in told
        assert "device.db-*" in told
        assert client.give_consent(again=True)
        assert client.record("colour", "a") is Outcome.OVER_BUDGET


@pytest.mark.parametrize("now", [0, START - WEEK])
def test_without_guard_or_right_clock_no_number_of_periods_bounds_what_was_spent(
    path, tmp_path, now
):
    live(path, weeks=1)
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    with device(copy, seed=2, now=now, consent=True) as client:
        assert client.ledger().reserved == client.ledger().ceilings.lifetime
        client.clock.now = START + 9 * WEEK
        assert client.give_consent(again=True)
        assert client.record("colour", "a") is Outcome.OVER_BUDGET


def test_another_device_s_file_in_its_place_adds_both_histories(path, tmp_path):
    ledger, _ = live(path)
    other = tmp_path / "other.db"
    theirs, _ = live(other, weeks=1, seed=5)
    shutil.copyfile(other, path)
    with device(path, seed=6, now=START + WEEK) as client:
        found = client.ledger()
        assert found.restored == 1
        assert found.reserved >= ledger.reserved + theirs.reserved


@pytest.mark.parametrize("unknown", ["gone", "unreadable"])
def test_an_older_copy_with_lower_ceilings_and_no_guard_spends_no_period_twice(path, unknown):
    """Consent may have raised them since, in this very period."""
    low, copy = Ceilings(2 * COST, 50 * COST), path.with_name("copy")
    colour = metric("colour", "every", 6)
    device(path, colour, ceilings=low, consent=True).close()
    shutil.copy(path, copy)
    with device(path, colour) as client:
        client.renew_consent()
        accepted = [client.record("colour", "a") for _ in range(9)].count(Outcome.ACCEPTED)
        assert accepted == CEILING // COST
    os.replace(copy, path)
    beside = path.with_name("device.db-mark")
    if unknown == "gone":
        beside.unlink()
    else:
        beside.write_bytes(b"\xa5" * 384)
    with device(path, colour, seed=2) as client:
        assert client.ledger().restored == 1
        assert client.renew_consent(again=True)
        assert client.record("colour", "a") is Outcome.OVER_BUDGET
        assert client.ledger().reserved >= CEILING


def test_a_guard_that_cannot_be_read_is_a_guard_that_is_missing(path):
    live(path)
    path.with_name(path.name + "-mark").write_bytes(b"garbage" * 40)
    with device(path, seed=2, now=START + WEEK) as client:
        assert client.ledger().restored == 1
        assert client.consent is Consent.WITHDRAWN
        assert client.give_consent(again=True)
        assert client.record("colour", "a") is Outcome.OVER_BUDGET
    with device(path, seed=3, now=START + 2 * WEEK) as client:
        assert client.ledger().restored == 1


def test_a_live_client_notices_an_older_copy_put_under_it(path):
    live(path, weeks=1)
    copy = path.read_bytes()
    client = device(path, seed=2, now=START + WEEK)
    client.record("colour", "a")
    client.clock.advance(hours=3)
    assert client.flush().sent > 0
    client.record("colour", "a")
    # As restoring does: a new file takes the name.
    restored = path.with_name("restored")
    restored.write_bytes(copy)
    os.replace(restored, path)
    # As for a fork, after which the file is known by what is in it.
    client._store.database.disconnect()
    client.publisher.messages.clear()
    client.clock.advance(hours=3)
    with pytest.raises(StoreError, match="older copy"):
        client.flush()
    assert client.publisher.messages == []
    assert client.record("colour", "a") is Outcome.STORE_FULL
    with pytest.raises(StoreError):
        client.give_consent()
    client.close()


# The mark itself.


def test_what_cannot_be_confirmed_is_not_sent(path, monkeypatch):
    client = device(path, consent=True)
    client.record("colour", "a")
    client.clock.advance(hours=3)
    monkeypatch.setattr(os, "fsync", full)
    with suppress(StoreError):
        assert isinstance(client.flush().error, StoreError)
    assert client.publisher.messages == []
    monkeypatch.undo()
    assert client.flush().sent == 1
    assert client.ledger().spent == sum(
        counted(reports(client.publisher.messages), [client.plan]).values()
    )


@pytest.mark.parametrize("renewed", [False, True])
def test_consent_that_is_written_and_not_confirmed_stands(path, monkeypatch, renewed, caplog):
    """No error says that nothing has changed, and nothing leaves before a mark can be written."""
    client = device(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        client.renew_consent() if renewed else client.give_consent()
        assert client.ledger().consent is Consent.GIVEN
        assert client.record("colour", "a") is Outcome.ACCEPTED
        client.clock.advance(hours=3)
        assert isinstance(client.flush().error, StoreError)
        assert client.publisher.messages == []
    assert "nothing can be sent: it is written, but the rollback guard" in caplog.text
    assert client.flush().sent == 1
    client.close()
    with device(path, now=START + DAY) as again:
        assert again.ledger().consent is Consent.GIVEN
        assert again.ledger().restored == 0


def test_a_withdrawal_that_is_not_confirmed_is_tried_again(path, monkeypatch):
    client = device(path, consent=True)
    client.record("colour", "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        client.withdraw_consent()
        assert client.record("colour", "a") is Outcome.NO_CONSENT
    client.flush()
    found = rollback_guard.read(os.fspath(path))
    client.close()
    with device(path) as again:
        assert (again.ledger().consent, again.ledger().pending) == (Consent.WITHDRAWN, ())
        assert again._store.guard.generation > found.generation
        assert again.ledger().restored == 0


def test_consent_beside_another_stores_guard_records_nothing(path):
    """The mark tells that the file was replaced; what is agreed to there may not be found again."""
    client = device(path)
    client.ledger()
    found = rollback_guard.read(os.fspath(path))
    rollback_guard.replace(os.fspath(path), found._replace(store=b"t" * 16, generation=10))
    with pytest.raises(StoreError, match="its place"):
        client.give_consent()
    assert client.record("colour", "a") is Outcome.STORE_FULL


@pytest.mark.parametrize("name", ["replace", "advance"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("when", ["first start", "next start", "damage"])
def test_a_crash_around_the_guard_is_no_loss(path, monkeypatch, name, after, when):
    """Killed between mark and commit, in either order: no false alarm, and no loss forgotten."""
    ledger = None
    if when != "first start":
        ledger, _ = live(path)
    if when == "damage":
        overwrite(path, 0)

    class Killed(BaseException):
        pass

    write = getattr(rollback_guard, name)

    def crash(*arguments, **options):
        if after:
            write(*arguments, **options)
        raise Killed

    monkeypatch.setattr(rollback_guard, name, crash)
    now = START + WEEK
    with suppress(Killed):
        device(path, seed=7, now=now).close()
    monkeypatch.undo()
    with device(path, seed=8, now=now) as client:
        found = client.ledger()
        assert found.restored == 0
        if when == "damage":
            assert found.damaged >= 1
            assert found.reserved == ledger.reserved + CEILING - ledger.periods[-1].reserved
        else:
            assert found.damaged == found.carried == 0
            assert found.reserved == (ledger.reserved if ledger else 0)


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


def test_a_lost_file_of_another_collector(path):
    live(path)
    path.unlink()
    with pytest.raises(PlanError, match="another collector"):
        device(path, seed=2, collector="someone.else")


@pytest.mark.real_randomness
def test_two_processes_find_the_damage_at_once(path):
    live(path)
    overwrite(path, 0)
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


def test_a_crash_while_what_is_unknown_is_made_up_for(path, monkeypatch):
    """What is written of a lost store before its successor is there is not that of a new one."""
    live(path)
    remove(path, "", "-wal", "-shm")
    path.with_name("device.db-mark").write_bytes(b"\xa5" * 256)
    replace = rollback_guard.replace

    def and_die(*arguments, **options):
        replace(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rollback_guard, "replace", and_die)
        with pytest.raises(KeyboardInterrupt):
            device(path, seed=2, now=START + WEEK)
    with device(path, seed=3, now=START + WEEK, consent=True) as client:
        assert client.ledger().reserved == client.ledger().ceilings.lifetime
        assert client.record("colour", "a") is Outcome.OVER_BUDGET


def test_the_period_of_a_loss_stays_full_when_higher_ceilings_are_agreed_to(path):
    """What was spent under them before is not spent once more."""
    low = Ceilings(2 * COST, 50 * COST)
    colour = metric("colour", "every", 6)

    def spend(client):
        client.renew_consent()
        accepted = [client.record("colour", "a") for _ in range(9)].count(Outcome.ACCEPTED)
        client.clock.advance(hours=3)
        assert client.flush().sent == accepted
        return accepted

    with device(path, colour, ceilings=low) as client:
        assert spend(client) == CEILING // COST
    remove(path, "", "-wal", "-shm")
    with device(path, colour, seed=2, ceilings=low) as client:
        assert client.ledger().ceilings == low
        assert spend(client) == 0


def test_a_period_is_full_though_the_lifetime_has_no_room_for_it(path):
    """What a permanent response paid for was sent in the period all the same."""
    metrics = metric("colour"), metric("model", "constant", ladder=CONSTANT)
    low, copy = Ceilings(COST, COST * 3 // 2), path.with_name("copy")
    for week in range(2):
        with device(path, *metrics, now=START + week * WEEK, ceilings=low, consent=True) as client:
            assert client.record("model", "a") is Outcome.ACCEPTED
            client.clock.advance(days=3)
            assert client.flush().sent == 1
        if not week:
            shutil.copy(path, copy)
    remove(path, "-wal", "-shm")
    os.replace(copy, path)
    with device(path, *metrics, now=START + WEEK + 3 * 86_400_000, ceilings=low) as client:
        ledger = client.ledger()
        assert (ledger.reserved, ledger.restored) == (low.lifetime, 1)
        assert ledger.periods[-1].reserved == ledger.periods[-1].spent == low.period
        client.renew_consent(Ceilings(low.period, CEILING))
        assert client.record("colour", "a") is Outcome.OVER_BUDGET


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


def test_the_ledger_says_in_words_why_a_period_counts_as_spent(path):
    ledger, _ = live(path, weeks=1)
    assert "damaged" not in str(ledger)
    overwrite(path, 0)
    with device(path) as client:
        ledger = client.ledger()
        assert (ledger.carried, ledger.damaged, ledger.restored) == (0, 1, 0)
        assert str(ledger).splitlines()[3].startswith("This file was damaged, lost or replaced")


@pytest.mark.parametrize("left", [None, b"", bytes(128)])
def test_a_loss_of_power_before_consent_is_no_loss(path, left):
    """Until then a new device waits for no disk: nothing of its mark may have come there."""
    with device(path) as client:
        client.ledger()
    beside = path.with_name("device.db-mark")
    beside.unlink()
    if left is not None:
        beside.write_bytes(left)
    with device(path, seed=2, consent=True) as client:
        assert (client.ledger().damaged, client.ledger().restored) == (0, 0)
        assert client.record("colour", "a") is Outcome.ACCEPTED
        assert rollback_guard.read(path).generation > 1


def test_a_lost_guard_is_noticed_as_soon_as_anything_may_be_recorded(path):
    with device(path, consent=True) as client:
        ledger = client.ledger()
    remove(path, "-mark")
    with device(path, seed=2) as client:
        assert client.ledger().restored == 1
        assert client.ledger().reserved == ledger.reserved + CEILING


def test_consent_waits_for_the_disk_and_a_new_file_does_not(path, monkeypatch):
    synced = []

    def sync(descriptor, fsync=os.fsync):
        synced.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with device(path) as client:
        assert synced == []
        client.give_consent()
        # The rollback guard, and the name that it was given when the store was made.
        assert len(synced) == 2
        client.renew_consent()
        assert len(synced) == 3
        remove(path, "-mark")
        client.renew_consent()
        # Both again.
        assert len(synced) == 5
