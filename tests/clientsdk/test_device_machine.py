"""The machine finds planted faults by what it checks after every step, whatever the step says."""

from __future__ import annotations

import os

import pytest
from device_machine import DeviceMachine
from test_scenarios import scenarios

from clientsdk import diagnostics
from clientsdk.client import Client
from clientsdk.sending import sender
from clientsdk.stats import OutcomeTally
from clientsdk.store import database
from clientsdk.store.accounts import Accounts
from clientsdk.store.store import Store
from mechanisms.coins import shard_of


def logs_values(client, metric, value, record=Client.record):
    diagnostics.warn("planted", "recorded: %s", value)
    return record(client, metric, value)


def draws_again(part, signer, message=sender._message):
    rows = [each.row._replace(payload=os.urandom(len(each.row.payload))) for each in part]
    return message([each._replace(row=row) for each, row in zip(part, rows, strict=True)], signer)


def keeps_chains(store, connection, consent):
    connection.execute("UPDATE device SET consent = ?", (consent.value,))
    store.consent = consent


#: A fault: what is replaced, and the steps of a life that shows it.
PLANTED = {
    "a ceiling does not bind": (
        (Accounts, "allow", lambda *_: True),
        ["plan colour every 3", "start ceilings 3 60", "record colour x2 -> anything"],
    ),
    "a report leaves before it is charged for": (
        (Accounts, "spend", lambda *_: True),
        ["start", "record colour", "wait 3h", "flush"],
    ),
    "what is sent again is drawn again": (
        (sender, "_message", draws_again),
        ["start", "record colour", "wait 3h", "receiver loses answers", *["flush"] * 9],
    ),
    "a message is of two pseudonyms": (
        (sender, "_of_message", lambda report: (0, 0, 0)),
        ["start", "record colour", "wait 1w", "record colour", "wait 3h", "flush"],
    ),
    "a message goes to another shard": (
        (sender, "shard_of", lambda name, shards: (shard_of(name, shards) + 1) % shards),
        ["start", "record colour", "wait 3h", "flush"],
    ),
    "bytes that were erased stay in the file": (
        (database, "_scrub", lambda connection, compact: False),
        ["plan colour every 3", "start", "record colour x3", "withdraw"],
    ),
    "chains outlive consent": (
        (Store, "set_consent", keeps_chains),
        ["start", "record colour", "withdraw"],
    ),
    "what is sent is not counted": (
        (OutcomeTally, "flushed", lambda *_: None),
        ["start", "record colour", "wait 3h", "flush"],
    ),
    "a value is logged": ((Client, "record", logs_values), ["start", "record colour"]),
}


def live(steps, path):
    machine = DeviceMachine(path)
    try:
        for step in steps:
            machine.run(step)
    finally:
        machine.end()


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_nothing_without_it(fault, tmp_path, monkeypatch):
    (place, name, faulty), steps = PLANTED[fault]
    live(steps, tmp_path / "sound.db")
    monkeypatch.setattr(place, name, faulty)
    with pytest.raises(AssertionError):
        live(steps, tmp_path / "faulty.db")


def test_a_step_that_says_otherwise_fails(path):
    with pytest.raises(AssertionError, match="came: accepted"):
        live(["start", "record colour -> no consent"], path)


def test_no_two_scenarios_have_one_name():
    names = [each.name for each in scenarios()]
    assert len(names) == len(set(names))
