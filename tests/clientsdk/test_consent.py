"""A withdrawal holds whatever the disk says, and only the person undoes it."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from unittest.mock import Mock

import pytest
from device_plans import START, metric, plan, seeded, threadless
from scripts import KILLS, run

from clientsdk import NO_LIFETIME_BOUND, Consent, Outcome
from clientsdk.settings import Settings
from clientsdk.store import rollback_guard
from clientsdk.testing import FakeClock

needs_limits = pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes here")

#: A device with a report that is due, and a disk that takes no byte beyond the first ``size`` of
#: each file. So a new page is refused, and so is an old one; the guard is 384 bytes long.
FULL = """
import resource, sqlite3
from contextlib import closing, suppress
from sotto.errors import StoreError
LADDER_OF_ONE = [(500_000, 0)]
COLOUR = metric("colour", "every", 9, ladder=LADDER_OF_ONE)

def full(size=384):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))

def space():
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

def written():
    with closing(sqlite3.connect(path)) as connection:
        chains, = connection.execute("SELECT count(*) FROM chain").fetchone()
        consent, = connection.execute("SELECT consent FROM device").fetchone()
        return consent, chains

def loaded(state=path):
    client = device(COLOUR, state=state)
    for _ in range(3):
        client.record("colour", "a")
    client.clock.advance(hours=3)
    return client
"""


def device(path, *, consent=True, **options):
    """A device with a value recorded if it may be."""
    client = seeded(
        plan(metric("colour", "every", 9, ladder=[(500_000, 0)])),
        state=path,
        consent=consent,
        **options,
    )
    client.record("colour", "a")
    client.clock.advance(hours=3)
    return client


def stored(path):
    with closing(sqlite3.connect(path)) as connection:
        (chains,) = connection.execute("SELECT count(*) FROM chain").fetchone()
        (consent,) = connection.execute("SELECT consent FROM device").fetchone()
    return consent, chains


@pytest.mark.real_randomness
@needs_limits
def test_where_nothing_can_be_written_it_is_said_and_this_process_stops(path):
    code = (
        FULL
        + """
client = loaded()
full(0)
for _ in range(2):
    try:
        client.withdraw_consent()
    except StoreError as error:
        print(type(error).__name__)
    try:
        client.flush()
    except StoreError as error:
        print(type(error).__name__)
    assert client.consent is Consent.WITHDRAWN
    assert client.record("colour", "a") is Outcome.NO_CONSENT
assert client.publisher.messages == []
space()
# With space again it is written before anything else is done.
assert client.flush().sent == 0
print(written(), client.publisher.messages)
"""
    )
    assert run(code, path).splitlines() == ["StoreError"] * 4 + ["('withdrawn', 0) []"]


@pytest.mark.real_randomness
@needs_limits
def test_switched_off_a_withdrawal_holds_on_a_full_disk_too(path):
    """No client can be made there that is not switched off."""
    code = (
        FULL
        + """
loaded().close()
full()
try:
    device(COLOUR, consent=False)
except StoreError as error:
    print(type(error).__name__)
off = device(COLOUR, consent=False, settings=Settings(disabled=True))
assert not off.withdraw_consent()
space()
print(written())
device(COLOUR, consent=False)
print(written())
"""
    )
    assert run(code, path).splitlines() == ["StoreError", "('given', 3)", "('withdrawn', 0)"]


# Nothing that a withdrawal does not need stands in its way.


RANDOMNESS = ("os.urandom", "clientsdk.draws.urandom")


@pytest.fixture
def no_randomness(monkeypatch):
    """A function after whose call the operating system gives no random bytes."""

    def begin():
        for name in RANDOMNESS:
            monkeypatch.setattr(name, Mock(side_effect=OSError(24, "no random bytes")))

    yield begin
    monkeypatch.undo()


def real_device(path, clock):
    """A device that draws from the operating system, with a value recorded."""
    state = NO_LIFETIME_BOUND if path is None else path
    document = plan(metric("colour", "every", 9, ladder=[(500_000, 0)]))
    client = threadless(document, state=state, clock=clock)
    client.give_consent()
    client.record("colour", "a")
    return client


@pytest.mark.parametrize("state", ["device.db", None])
def test_without_randomness_a_withdrawal_is_written_in_a_new_period_too(
    tmp_path, no_randomness, monkeypatch, state
):
    clock = FakeClock(START)
    client = real_device(state and tmp_path / state, clock)
    clock.advance(days=7)
    no_randomness()
    assert client.withdraw_consent()
    assert client.consent is Consent.WITHDRAWN
    assert not client._store.stopped
    if state:
        assert stored(tmp_path / state) == ("withdrawn", 0)
        assert rollback_guard.withdrawal(os.fspath(tmp_path / state))
    # With randomness the old secret goes.
    monkeypatch.undo()
    before = client._store.period
    client.flush()
    assert client._store.period == before + 1


def test_switched_off_and_without_randomness_a_withdrawal_is_noted(
    path, no_randomness, monkeypatch
):
    clock = FakeClock(START)
    real_device(path, clock).close()
    clock.advance(days=7)
    off = threadless(plan(), state=path, clock=clock, settings=Settings(disabled=True))
    no_randomness()
    off.withdraw_consent()
    monkeypatch.undo()
    assert device(path, consent=False).consent is Consent.WITHDRAWN


def test_no_two_notes_are_the_same(path):
    device(path)
    notes = set()
    for _ in range(50):
        rollback_guard.note_withdrawal(os.fspath(path))
        notes.add(rollback_guard.withdrawal(os.fspath(path)))
    assert len(notes) == 50


# Killed before each single step: a statement, a write to the rollback guard, a sync of it.

INSTANTS = (
    FULL
    + """
def opened(place):
    return device(COLOUR, state=place / "device.db", consent=False)

def on_this_disk(client):
    if sys.argv[2] == "full":
        full()
    live(client)

found = []
for place, _ in instants(path, begin, opened, on_this_disk, "write", "fsync"):
    client = opened(place)
    consent, pending = client.consent, client.ledger().pending
    client.clock.advance(days=1)
    assert client.flush().error is None
    sent = len(reports(client.publisher.messages))
    assert client.consent is consent
    # What was recorded before a withdrawal is gone for good, also where consent is given again.
    assert consent is not Consent.NEVER_GIVEN
    assert sent == len(pending) == (3 if consent is LOADED else 0)
    found.append(consent)
    client.close()
# From some step on it is done, whatever comes after, and not before.
changes = sum(one is not other for one, other in zip(found, found[1:]))
assert changes == 1 and found[0] is not found[-1], found
print(found.index(found[-1]), len(found))
"""
)

WITHDRAW = """
LOADED = Consent.GIVEN

def begin(place):
    client = loaded(place / "device.db")
    client.close()

def live(client):
    client.withdraw_consent()
"""

GIVE_AGAIN = """
LOADED = None

def begin(place):
    client = loaded(place / "device.db")
    client.withdraw_consent()
    client.close()

def live(client):
    assert client.give_consent(again=True)
"""

#: Consent given again after a withdrawal that only the note has: the file could not be written.
GIVE_AFTER_A_FULL_DISK = """
from clientsdk.store import rollback_guard
LOADED = None

def begin(place):
    loaded(place / "device.db").close()
    rollback_guard.note_withdrawal(str(place / "device.db"))

def live(client):
    assert client.give_consent(again=True)
"""


@pytest.mark.real_randomness
@pytest.mark.slow
@needs_limits
@pytest.mark.parametrize(
    ("life", "disk", "last"),
    [
        (WITHDRAW, "space", Consent.WITHDRAWN),
        (WITHDRAW, "full", Consent.WITHDRAWN),
        (GIVE_AGAIN, "space", Consent.GIVEN),
        (GIVE_AFTER_A_FULL_DISK, "space", Consent.GIVEN),
    ],
)
def test_killed_before_every_step(tmp_path, life, disk, last):
    first, steps = map(int, run(KILLS + life + INSTANTS, tmp_path, disk).split())
    if last is Consent.WITHDRAWN:
        # It holds as soon as the note is written: before it is synced, and before the file knows.
        assert first == 1
    # every draw: each statement is a step, whatever is drawn.
    assert steps > (2 if disk == "full" else 20)


def test_outcomes_are_true_only_where_a_value_is_used():
    assert [*filter(None, Outcome)] == [Outcome.ACCEPTED]
