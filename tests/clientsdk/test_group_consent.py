"""Consent to some of a plan's groups: what is recorded and erased, and that a no holds."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from unittest.mock import Mock

import pytest
from device_plans import CONSTANT, START, items, metric, plan
from scripts import KILLS, run

from clientsdk import Consent, Settings
from clientsdk.store import rollback_guard
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import ParameterError, StoreError

GIVEN, WITHDRAWN, NEVER_GIVEN = Consent.GIVEN, Consent.WITHDRAWN, Consent.NEVER_GIVEN
GROUPS = {"look": "How it looks", "use": "What is used"}
#: No two clients on one file draw the same.
SEEDS = itertools.count(1)
METRICS = (
    metric("colour", "every", 2, group="look"),
    metric("late", "reservoir", group="look"),
    metric("shape", "every", 2, group="use"),
    metric("model", "constant", ladder=CONSTANT, group="use"),
    items(group="use"),
)


PLAN = plan(*METRICS, groups=GROUPS, ceilings={"period": 20_000_000, "lifetime": 640_000_000})


def device(path, *, compiled=PLAN, **options):
    return SeededClient(compiled, seed=next(SEEDS), state=path, clock=FakeClock(START), **options)


def rows(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_the_note_is_forced_to_disk_before_the_withdrawal_is_written(path, monkeypatch):
    """Also on systems such as macOS, whose ``fsync`` alone leaves it in the disk's cache."""
    client, forced = device(path), []

    def force(descriptor):
        said = rows(path, "SELECT * FROM consent_group")
        forced.append((rollback_guard.group_noted(str(path)), said))

    monkeypatch.setattr(rollback_guard, "force", force)
    assert client.withdraw_consent(groups=["use"])
    assert forced[0] == (True, [])


INSTANTS = """
GROUPS = {"look": "How it looks", "use": "What is used"}
METRICS = [metric("colour", "every", 9, group="look"), metric("shape", "every", 9, group="use"),
           metric("model", "constant", ladder=CONSTANT, group="use")]
PLAN = plan(*METRICS, groups=GROUPS, ceilings=VAST)

def opened(place):
    return Device(PLAN, START, MemoryPublisher(), state=place / "device.db")

def begin(place):
    with opened(place) as client:
        client.give_consent()
        for name in ("colour", "shape", "model"):
            client.record(name, "a")

def live(client):
    WORK

number, seen = 0, set()
for place, done in instants(path, begin, opened, live, "write"):
    client = opened(place)
    said, whole = client.group_consent, client.consent
    pending = {each.metric for each in client.ledger().pending}
    client.give_consent()
    accepted = client.record("shape", "b")
    if whole is Consent.WITHDRAWN:
        assert pending == set() and accepted is Outcome.NO_CONSENT, (place, pending)
    elif said["use"] is Consent.WITHDRAWN:
        assert pending == {"trial/colour"} and accepted is Outcome.NO_CONSENT, (place, pending)
    else:
        # Nothing of it was written.
        assert pending == {"trial/colour", "trial/shape", "trial/model"}, (place, pending)
        assert not done
    seen.add((whole.value, said["use"].value))
    client.close()
    number += 1
print(number, sorted(seen))
"""


@pytest.mark.real_randomness
@pytest.mark.slow
def test_killed_before_every_statement_and_change_of_the_guard(path):
    work = 'client.withdraw_consent(groups=["use"])'
    out = run(KILLS + INSTANTS.replace("WORK", work), path.parent / "instants", timeout=900)
    count, _, seen = out.partition(" ")
    assert int(count) > 12  # every draw: each statement counts, whatever is drawn.
    # Before, in between, and after.
    assert eval(seen) == [  # noqa: S307
        ("given", "given"),
        ("given", "withdrawn"),
        ("withdrawn", "withdrawn"),
    ]


@pytest.mark.real_randomness
@pytest.mark.slow
def test_killed_while_it_is_given_again_it_stays_withdrawn_or_is_given(path):
    """Never given with chains from before, and never lost: from the commit on it is given."""
    work = """
    client.withdraw_consent(groups=["use"])
    client.give_consent(groups=["use"], again=True)
"""
    code = KILLS + INSTANTS.replace("    WORK\n", work).replace(
        INSTANTS[INSTANTS.index("        assert pending == {") : INSTANTS.index("    seen.add")],
        """        assert (pending == {"trial/colour"}) or not done, (place, pending)
""",
    )
    out = run(code, path.parent / "instants", timeout=900)
    assert "('given', 'given')" in out


def test_switched_off_and_without_a_file_that_opens_all_is_withdrawn(path, monkeypatch):
    with device(path) as client:
        client.record("shape", "a")
    off = device(path, settings=Settings(disabled=True))

    with monkeypatch.context() as patch:
        patch.setattr("clientsdk.store.recovery.open_store", Mock(side_effect=StoreError("no")))
        assert not off.withdraw_consent(groups=["use"])
    assert device(path).consent is WITHDRAWN


def test_groups_one_of_which_is_unknown_are_refused(path):
    client = device(path)
    for call in (client.give_consent, client.withdraw_consent):
        with pytest.raises(ParameterError, match="'looks': plan 'trial' has look"):
            call(groups=["look", "looks"])
