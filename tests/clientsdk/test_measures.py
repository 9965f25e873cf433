"""Measures of a device: stored until their one answer is drawn, whatever was counted."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import struct
import traceback
from subprocess import PIPE

import numpy
import pytest
from device_plans import DAY, HOUR, START, WEEK, raw
from scenario_plans import MEASURES, SURE, USED
from scenario_plans import measured_plan as plan
from scripts import start
from test_interrupts import watched_by

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome
from clientsdk.store.database import READ, DeviceDatabase
from clientsdk.testing import FakeClock, SeededClient, reported
from sotto.errors import SottoError


def device(*names, state=NO_LIFETIME_BOUND, seed=1, used=None, **options):
    client = SeededClient(plan(*names, **(used or {})), seed=seed, state=state, **options)
    client.clock.now = max(client.clock.now, START)
    return client


@pytest.fixture
def clock():
    return FakeClock(START)


def answers(client):
    """Return the answers by metric, in the order of periods."""
    found = {}
    for each in sorted(reported(client), key=lambda each: each.event):
        found.setdefault(each.metric, []).append(each.meaning.strip("'"))
    return found


def week_later(client):
    client.clock.advance(days=7)
    client.flush()
    client.clock.advance(hours=3)
    client.flush()


def rows(client):
    with client._store.transaction(READ) as connection:
        return connection.execute("SELECT * FROM measure ORDER BY tally").fetchall()


def played(values, path=None):
    """Outcomes, sizes of messages and times, and the sizes and places of writes, of a history."""
    clock = FakeClock(START)
    client = device(*MEASURES, state=path, clock=clock, seed=5, used={"seen": USED})
    database = client._store.database
    seen = []
    for (name, method), value in zip([*USES.items()] * 2, values * 2, strict=True):
        clock.advance(hours=1)
        before = database.connection.total_changes
        seen.append((method, name, str(getattr(client, method)(name, value))))
        seen.append(database.connection.total_changes - before)
        seen.append([(row[0], len(row[5])) for row in rows(client)])
        if path is not None:
            seen.append(path.with_name(path.name + "-wal").stat().st_size)
    week_later(client)
    clock.advance(days=1)
    seen.append([(len(data), shard) for shard, data in client.publisher.messages])
    seen.append([(each.metric, each.event, each.level, each.message) for each in reported(client)])
    client.close()
    return seen


USES = {"export": "count", "open": "count", "load": "record", "checkout": "reach", "dark": "record"}
HISTORIES = (
    (1, 1, 5.5, "paid", True),
    (0, -7, float("inf"), "none", None),
    (10**30, 9, float("nan"), "no step of the plan", False),
    (3, 0, -1e308, "cart", False),
)


@pytest.mark.parametrize("in_file", [False, True])
def test_outcomes_writes_times_and_sizes_are_the_same_for_all_values(tmp_path, in_file):
    """An addition that changes nothing is a write like any other."""
    found = [
        played(values, tmp_path / f"{number}.db" if in_file else None)
        for number, values in enumerate(HISTORIES)
    ]
    assert found == [found[0]] * len(found)


def test_a_value_does_not_outlive_its_plan_where_a_write_failed_beyond_its_period(
    path, clock, monkeypatch
):
    """A clock that leapt is set back; the first write alone found the disk full."""
    ends = {"expires": "2026-01-29"}
    clock.now = plan("exports", **ends).expires - HOUR
    client = device("exports", state=path, clock=clock, used=ends)
    assert client.count("export", 7) is Outcome.ACCEPTED
    clock.advance(days=7)
    commit, refused = DeviceDatabase.commit, []

    def full(self, access):
        if access is READ or refused:
            return commit(self, access)
        refused.append(access)
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(DeviceDatabase, "commit", full)
        client.count("export")
    assert refused
    clock.advance(days=-7)
    assert len(rows(client)) == 1
    clock.advance(hours=2)
    client.count("export")
    client.flush()
    assert rows(client) == []


def test_a_write_changes_a_row_although_the_value_stays(path, clock):
    """SQLite leaves out a write of the same bytes, and the log would not grow."""
    client = device("exports", state=path, clock=clock)
    sizes = []
    log = path.with_name(path.name + "-wal")
    for _ in range(20):
        client.count("export", 0)
        sizes.append(log.stat().st_size)
    steps = {after - before for before, after in itertools.pairwise(sizes)}
    assert len(steps) == 1
    assert steps != {0}


PLANTED = 7.123456789012345


def test_no_frame_says_while_that_is_logged_that_there_was_a_use(monkeypatch):
    found = []

    def look(text):
        frames = [frame for frame, _ in traceback.walk_stack(None)]
        found.append([each.f_locals["written"] for each in frames if "written" in each.f_locals])

    monkeypatch.setattr("clientsdk.diagnostics.info_once", look)
    measures = {"used": USED, "exports": f"{MEASURES['exports']}, {SURE}"}
    client = device(used=measures, ceilings=(60, 81))
    client.clock.advance(days=7)
    client.count("open")
    client.next_due()
    assert found == [[[]]]


@pytest.mark.parametrize("method", ["added", "answer", "rewrite", "_value"])
def test_what_is_measured_is_in_no_frame_of_an_interrupt(method, clock, monkeypatch):
    client = device("exports", clock=clock, used={"used": USED})
    client.count("export", 7)
    client.count("open")
    state = next(row[-1] for row in rows(client) if row[-1][-8:] == struct.pack("<q", 7))

    def interrupting(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"clientsdk.store.measures.{method}", interrupting)
    if method in ("answer", "_value"):
        clock.advance(days=7)
    with pytest.raises(KeyboardInterrupt) as caught:
        client.count("export", 7) if method == "added" else client.close()
    kept = set()
    for frame, _ in traceback.walk_tb(caught.tb.tb_next):
        if frame.f_code is not interrupting.__code__:
            kept |= {name for name, each in frame.f_locals.items() if hides(each, state)}
    # These two are of the plan and of the call.
    assert kept <= {"closing", "responds"}


def hides(found, state):
    """Return whether a local variable says what was counted or used."""
    if isinstance(found, tuple | list):
        return any(hides(each, state) for each in found)
    return found is True or found == 7 or (isinstance(found, bytes) and state[-8:] in found)


def test_no_event_is_in_two_periods(clock):
    """The clock goes on and back, by hours and by months, and jumps; each count is in one row."""
    rng = random.Random(3)
    client = device("total", clock=clock)
    taken = answered = 0
    for _ in range(400):
        clock.advance(hours=rng.choice([1, 1, 5, 24, -3, -30, 170, -169, 2000, -2000]))
        clock.now = max(clock.now, START)
        before = {row[1]: row[5] for row in rows(client)}
        outcome = client.record("load", 1)
        after = {row[1]: row[5] for row in rows(client)}
        assert len(after) <= 1
        sums = [struct.unpack("<?d", state[8:])[1] for state in (*before.values(), *after.values())]
        if outcome and before.keys() == after.keys():
            assert sums[1] == sums[0] + 1
        elif outcome:
            # A period begins, and nothing of before is in it.
            assert sums[-1] == 1
        taken += bool(outcome)
        answered = max(answered, len(client.ledger().periods))
    assert taken > 100
    for period in client.ledger().periods:
        assert period.recordings.get("trial/total", 1) == 1
    assert answered > 3


def test_daylight_saving_and_leap_days_change_nothing(clock, monkeypatch):
    """Days and periods are those of UTC, whatever the device's zone."""
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        client = device("days", "busy", "age", clock=clock)
        # 29 February 2028, and 26 March, on which Berlin's clocks go on.
        for day in (1_835_395_200_000, 1_837_641_600_000):
            clock.now = day - day % DAY
            period = clock.now // WEEK
            days = 0
            while clock.now // WEEK == period:
                days += 1
                for _ in range(24):
                    client.count("export")
                    clock.advance(hours=1)
            week_later(client)
            assert answers(client)["busy"][-1] == (f"{days}" if days < 7 else "7 or more")
            assert answers(client)["days"][-1] == f"{days}"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_app_that_wants_no_errors_gets_none():
    client = Client.open(
        plan("exports"), state=NO_LIFETIME_BOUND, publisher=MemoryPublisher(), background=False
    )
    assert client.count("nothing") is Outcome.INVALID
    assert client.reach("exports", "x") is Outcome.INVALID
    assert client.count("export", "x") is Outcome.INVALID
    assert client.count("export", numpy.int64(2)) is Outcome.NO_CONSENT
    assert client.stats().outcomes == {Outcome.INVALID: {"(unknown)": 2, "export": 1}}
    client.close()
    assert client.count("export") is Outcome.CLOSED


@pytest.mark.parametrize("lenient", [False, True])
def test_a_value_in_the_place_of_a_name_is_no_label_and_in_no_frame(lenient):
    client = device("exports", "most", "checkout")
    client._errors.lenient = lenient
    swapped = (
        (client.record, PLANTED, "load"),
        (client.count, 0x5EC2E7C0DE, "export"),
        (client.reach, "a-planted-step", "checkout"),
    )
    for method, *given in swapped:
        said = ""
        try:
            method(*given)
        except SottoError as error:
            frames = traceback.walk_tb(error.__traceback__.tb_next)
            said = repr([frame.f_locals for frame, _ in frames])
        assert repr(given[0]) not in said
    assert client.stats().outcomes == ({Outcome.INVALID: {"(unknown)": 3}} if lenient else {})


def test_a_name_that_writes_itself_otherwise_is_a_label_as_it_is():
    class Event(str):
        def __str__(self):
            return "a planted text"

    client = device("exports", consent=False)
    client._errors.lenient = True
    client.count(Event("export"), "a word")
    assert client.stats().outcomes == {Outcome.INVALID: {"export": 1}}


COUNTING = """
from sotto.plan.compiled import CompiledPlan
compiled = CompiledPlan.from_json(bytes.fromhex(sys.argv[2]))
client = Device(compiled, START, MemoryPublisher(), state=path)
client.give_consent()
print("ready", flush=True)
sys.stdin.readline()
"""
UNTIL_KILLED = """
while True:
    assert client.count("event") is Outcome.ACCEPTED
    os.write(1, b"x")
"""
SO_MANY = """
for _ in range(100):
    assert client.count("event") is Outcome.ACCEPTED
    os.write(1, b"x")
client.close()
"""


def counters(path, code, number):
    """Processes that count on one file, and begin once all of them are ready."""
    wide = f"type: number, range: [0, 99999999], outside: clip, measure: {{count: event}}, {SURE}"
    compiled = plan(events=wide)
    given = COUNTING + code, path, compiled.to_json().hex()
    workers = [start(*given, stdin=PIPE) for _ in range(number)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return compiled, workers


def total(path, compiled):
    """Return the count that the file has."""
    client = SeededClient(compiled, seed=1, state=path, clock=FakeClock(START + HOUR))
    (row,) = rows(client)
    client.close()
    return struct.unpack("<?q", row[5][8:])[1]


@pytest.mark.real_randomness
@pytest.mark.slow
def test_eight_processes_count_exactly(path):
    compiled, workers = counters(path, SO_MANY, 8)
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert (worker.returncode, out.count("x")) == (0, 100), err
    assert total(path, compiled) == 800


@pytest.mark.real_randomness
@pytest.mark.slow
def test_kills_lose_and_double_nothing(path):
    """Every acknowledged event counts, and one more of each process killed may."""
    acknowledged = killed = 0
    for seed in range(5):
        compiled, workers = counters(path, UNTIL_KILLED, 3)
        rng = random.Random(seed)
        for worker in workers:
            for _ in range(rng.randrange(1, 40)):
                acknowledged += len(os.read(worker.stdout.fileno(), 1))
            worker.send_signal(signal.SIGKILL)
            killed += 1
        for worker in workers:
            while more := os.read(worker.stdout.fileno(), 1 << 16):
                acknowledged += len(more)
            worker.communicate(timeout=600)
    # every draw: each increment is one transaction, acknowledged after its commit.
    assert acknowledged <= total(path, compiled) <= acknowledged + killed


def held(client):
    """Return the responses that a device has in its file, with their random bytes."""
    return [row[5] for row in rows(client) if row[0] == "trial/used"]


def used_lives(folder, uses):
    """The visible state of a device's files around each moment at which it may be used."""
    folder.mkdir()
    path, clock, seen = folder / "device.db", FakeClock(START), []

    def look(*more):
        stats = [each.stat() for each in sorted(folder.iterdir()) if each.suffix != ".db-shm"]
        seen.append(([each.st_size for each in stats], *more))

    def unchanged():
        return {
            each.name: (each.stat().st_mtime_ns, each.read_bytes())
            for each in folder.iterdir()
            if not each.name.endswith("-shm")
        }

    for first in (0, 8):
        client = device(state=path, clock=clock, used={"used": USED}, seed=first + 1)
        for number in range(first, first + 8):
            before = unchanged()
            if number in uses:
                client.count("open", 1 + number)
            look(unchanged() == before)
            clock.advance(hours=30)
            changes = client._store.database.connection.total_changes
            client.flush()
            look(client._store.database.connection.total_changes - changes, client.next_due())
        client.close()
        look([(len(data), shard) for shard, data in client.publisher.messages])
    return seen


@pytest.mark.parametrize("uses", [{0}, {7}, {3, 4, 5}, {8}, {1, 6, 9, 15}, set(range(16))])
def test_uses_show_in_no_write_and_no_time(tmp_path, uses):
    """Neither when there was one, nor whether; the file is written at fixed times all the same."""
    found = used_lives(tmp_path / "used", uses)
    assert found == used_lives(tmp_path / "unused", set())
    assert all(changed for _, changed, *_ in found)


def lines_run(times):
    """The lines that write a response again, after so many uses."""
    client, run = device(clock=FakeClock(START), used={"used": USED}), []
    client.count("open", times)
    client.clock.advance(hours=1)

    def trace(frame, event, argument):
        if frame.f_code.co_filename.endswith(("/recorder.py", "/measures.py")):
            run.append((frame.f_code.co_name, frame.f_lineno, event))
        return trace

    with watched_by("trace", trace):
        client.next_due()
    return run


def test_a_use_shows_in_no_line_that_an_interrupt_may_name():
    assert lines_run(1) == lines_run(0)
    assert ("_respond", "return") in {(name, event) for name, _, event in lines_run(0)}


def test_the_log_never_has_two_responses(path, clock):
    """Two of them would show a use in between to who reads the file once."""
    client = device(state=path, clock=clock, used={"used": USED})
    log = path.with_name(path.name + "-wal")
    for number in range(4):
        assert log.stat().st_size == 0
        if number == 2:
            client.count("open")
        before = held(client)
        clock.advance(hours=1)
        client.next_due()
        # It is written again, with other random bytes, whether it is another response or not.
        assert held(client) != before
        assert not any(state in raw(path) for state in before)
    assert held(client)[0][8:] == b"\1"


def test_a_response_is_drawn_anew_once_a_process_and_period(path, clock):
    spec = USED.replace("27", "0.3").replace("26", "0.2")
    client = device(state=path, clock=clock, used={"used": spec})

    def drawn(uses, hours):
        found = []
        for _ in range(hours):
            if uses:
                client.count("open")
            clock.advance(hours=1)
            client.next_due()
            [state] = held(client)
            found.append(state[8:])
        return found

    # At this epsilon responses of several draws would hardly ever be the same.
    assert len(set(drawn(False, 40))) == 1
    assert len(set(drawn(True, 40))) == 1
    clock.advance(days=5)
    assert len(set(drawn(False, 40))) == 1
