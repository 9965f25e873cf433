"""A device at which nobody has agreed to anything has no file, and notices once somebody does."""

from __future__ import annotations

import json

import pytest
from device_plans import DAY, START, metric, plan, threadless

from clientsdk import Client, MemoryPublisher, Outcome, client, disabled
from clientsdk.store import idle, rollback_guard
from sotto.errors import ParameterError, PlanError, StoreError, UnknownMetricError, ValueTypeError
from sotto.plan.compiled import Ceilings

NO_CONSENT, ACCEPTED, STORE_FULL = Outcome.NO_CONSENT, Outcome.ACCEPTED, Outcome.STORE_FULL
PLAN = plan(metric("colour", "every", 4), segments=[{"name": "os", "values": ["linux"]}])


def client_of(path, document=None, **options):
    return threadless(document or PLAN.to_json(), state=path, **options)


def test_what_is_asked_of_it_makes_no_file(tmp_path):
    with client_of(tmp_path / "device.db") as unused:
        assert unused.record("colour", "a") is NO_CONSENT
        assert unused.group_consent == {}
        with pytest.raises(ValueTypeError):
            unused.record("colour", 3)
        with pytest.raises(UnknownMetricError):
            unused.record("color", "a")
    assert not list(tmp_path.iterdir())


def test_it_has_the_segments_and_the_folder_of_before_it_had_a_file(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with client_of("device.db") as unused:
        unused.set_segments({"os": "linux"})
        with pytest.raises(ParameterError):
            unused.set_segments({"oz": "linux"})
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert unused.give_consent()
        assert unused.record("colour", "a") is ACCEPTED
        assert unused.ledger().pending[0].segment == "os=linux"
    assert (tmp_path / "device.db").exists()


def test_closed_it_takes_nothing_and_makes_no_file(tmp_path):
    unused = client_of(tmp_path / "device.db")
    unused.close()
    assert unused.record("colour", "a") is Outcome.CLOSED
    for call in (unused.give_consent, unused.withdraw_consent, unused.ledger):
        with pytest.raises(StoreError, match="closed"):
            call()
    assert not list(tmp_path.iterdir())


def test_where_its_file_cannot_be_made_any_more_recording_raises_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "_LOOK", 0.0)
    folder = tmp_path / "folder"
    folder.mkdir()
    unused = client_of(folder / "device.db")
    folder.rmdir()
    assert unused.record("colour", "a") is STORE_FULL
    with pytest.raises(StoreError):
        unused.give_consent()
    folder.mkdir()
    assert unused.record("colour", "a") is NO_CONSENT
    assert unused.give_consent()


def test_where_no_error_may_stop_the_app_none_does_when_its_file_cannot_be_made(tmp_path):
    publisher, state = MemoryPublisher(), tmp_path / "device.db"
    unused = Client.open(PLAN, state=state, publisher=publisher, background=False)
    state.write_bytes(b"theirs")
    assert not unused.give_consent()
    assert not unused.renew_consent()
    assert (unused.consent, unused.group_consent, unused.next_due()) == ("never given", {}, None)
    assert not unused.record("colour", "a")


def test_a_plan_that_cannot_be_honoured_is_an_error_before_anything_is_recorded(tmp_path):
    document = json.loads(PLAN.to_json())
    document["metrics"][0]["mechanism"]["name"] = "rot13"
    unsound = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with client_of(tmp_path / "device.db", unsound) as unused:
        with pytest.raises(PlanError, match="rot13"):
            unused.give_consent()
        assert unused.record("colour", "a") is NO_CONSENT
    with pytest.raises(PlanError, match="canonical"):
        client_of(tmp_path / "device.db", PLAN.to_json() + b" ")


def test_what_may_have_been_said_or_lost_is_looked_at(tmp_path):
    path = tmp_path / "device.db"
    assert disabled.is_unused(path)
    (tmp_path / "device.db-asked").touch()
    assert disabled.is_unused(path)
    for name in ("device.db-mark", "device.db-damaged-1", "device.db"):
        (tmp_path / name).touch()
        assert not disabled.is_unused(path)
        (tmp_path / name).unlink()
    assert not disabled.is_unused(tmp_path / "absent" / "device.db")


def left(path, said=True, **options):
    """Let a client be told whether the person agrees, and be closed last."""
    with client_of(path, **options) as first:
        first.give_consent() if said else first.withdraw_consent()
    return path


def test_where_something_waits_there_is_no_note(tmp_path):
    path = left(tmp_path / "device.db")
    with client_of(path) as recording:
        assert recording.record("colour", "a") is ACCEPTED
    assert idle.said(str(path), PLAN, PLAN.ceilings, START) is None


@pytest.mark.parametrize(
    "why",
    ["", "garbage", "a log", "no guard", "no file", "noted", "opened", "next day", "another plan"],
)
def test_the_store_is_opened_where_the_note_beside_it_may_not_hold(tmp_path, why):
    path, now, document, own = left(tmp_path / "device.db"), START, PLAN, PLAN.ceilings
    beside = {each: tmp_path / f"device.db-{each}" for each in ("idle", "wal", "mark")}
    if why == "garbage":
        beside["idle"].write_bytes(beside["idle"].read_bytes()[:-1] + b"?")
    elif why == "a log":
        beside["wal"].touch()
    elif why in ("no guard", "no file"):
        (beside["mark"] if why == "no guard" else path).unlink()
    elif why == "noted":
        rollback_guard.note_withdrawal(str(path))
    elif why == "opened":
        note = beside["idle"].read_bytes()
        left(path)
        beside["idle"].write_bytes(note)
    elif why == "next day":
        now += DAY
    elif why == "another plan":
        document = plan(metric("colour"), collector="another.example")
    assert idle.said(str(path), document, own, now) == (None if why else "given")
    if not why:
        assert idle.said(str(path), document, Ceilings(1, 1), now) is None


def test_a_link_in_the_place_of_the_note_is_not_followed(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / "device.db-idle").symlink_to(theirs)
    left(tmp_path / "device.db")
    assert theirs.read_text() == "theirs"
