"""Telemetry never stops an app: what goes wrong when a client is opened leaves one that is off."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from device_plans import START, metric, number, plan
from scripts import run

from clientsdk import NO_LIFETIME_BOUND, Client, Consent, MemoryPublisher, Outcome, Settings
from clientsdk.ledger import read_file
from clientsdk.store import rollback_guard
from clientsdk.testing import FakeClock
from clientsdk.typed import Metric, check_plan
from sotto.errors import ParameterError, PlanError, StoreError, UnknownMetricError, ValueTypeError

PLAN = plan(metric("colour"), number("size"))
GROUPED = plan(metric("colour", group="look"), groups={"look": "How it looks"})
MARK = "mark-of-a-value"


def opened(path, given=PLAN, **options):
    options = {"publisher": MemoryPublisher(), "clock": FakeClock(START), **options}
    return Client.open(given, state=path, background=False, **options)


@pytest.fixture
def agreed(path):
    """The file of a device that has agreed and recorded."""
    with opened(path) as client:
        client.give_consent()
        assert client.record("colour", "a") is Outcome.ACCEPTED
    return path


#: Why a client cannot be opened, by the cause.
CAUSES = {
    "plan": "is not a compiled plan",
    "no plan": "the compiled plan 'absent.json' cannot be read: No such file or directory",
    "ceiling": "SOTTO_CEILING_PERIOD must be an epsilon",
    "switch": "SOTTO_DISABLED must be 1, true, yes or on",
    "another": "the device's store 'device.db' is pinned to",
    "folder": "cannot open the device's store",
    "package": "cryptography",
    "publisher": "publisher must be a collector's url, or an object",
    "option": "a client has no option closk",
    "surprise": "RuntimeError",
}
#: Arguments, variables and failing functions that are causes.
GIVEN = {
    "plan": {"given": b"{}"},
    "no plan": {"given": Path("absent.json")},
    "another": {"given": plan(metric("colour"), collector="other.example")},
    "folder": {"path": Path("absent", "device.db")},
    "package": {"given": plan(metric("colour"), authentication="required")},
    "publisher": {"publisher": MemoryPublisher},
    "option": {"closk": int},
}
VARIABLES = {"ceiling": "SOTTO_CEILING_PERIOD", "switch": "SOTTO_DISABLED"}
FAILING = {
    "package": ("sotto.wire.signatures.require_signatures", ModuleNotFoundError("cryptography")),
    "surprise": ("clientsdk.client.configured", RuntimeError(MARK)),
}


def spoil(cause, monkeypatch, path):
    """Make opening a client fail; return what it is opened with instead."""
    monkeypatch.chdir(path.parent)
    if cause in VARIABLES:
        monkeypatch.setenv(VARIABLES[cause], MARK)
    if cause in FAILING:
        name, error = FAILING[cause]
        monkeypatch.setattr(name, Mock(side_effect=error))
    return GIVEN.get(cause, {})


@pytest.mark.parametrize("cause", CAUSES)
def test_every_method_works_where_nothing_can(agreed, cause, monkeypatch, caplog):
    before = agreed.read_bytes()
    options = {"path": agreed, **spoil(cause, monkeypatch, agreed)}
    client = opened(**options)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("telemetry is disabled: ")
    assert CAUSES[cause] in said
    assert MARK not in said
    assert str(agreed.parent) not in said
    why = said.removeprefix("telemetry is disabled: ")
    remedy = "; SOTTO_ON_ERROR=raise in the environment raises the error"
    assert client.stats().disabled + remedy == why

    assert {client.record("colour", value) for value in ("a", 7, None)} == {Outcome.DISABLED}
    assert client.record(MARK, MARK) is Outcome.DISABLED
    assert client.record([MARK], MARK) is Outcome.DISABLED
    assert client.stats().refused == {Outcome.DISABLED: 5}
    assert MARK not in str(client.stats())
    assert client.settings == Settings(disabled=True)
    check_plan(client, PLAN.to_json())
    assert Metric.record(type("Colour", (Metric,), {"name": "colour"})(client), "a") == "disabled"
    assert client.consent is Consent.NEVER_GIVEN
    assert not client.give_consent()
    assert not client.give_consent(again=True)
    assert not client.renew_consent()
    assert (client.flush().sent, client.flush(1).remaining, client.next_due()) == (0, 0, None)
    assert client.preview().messages == ()
    assert len(client.ledger().pending) == (cause != "folder")
    with client:
        assert client.record("colour", "a") is Outcome.DISABLED
    assert client.record("colour", "a") is Outcome.DISABLED
    assert agreed.read_bytes() == before
    # Nothing was lost: where all is well again, so is the device.
    monkeypatch.undo()
    with opened(agreed) as again:
        assert again.consent is Consent.GIVEN
        assert len(again.ledger().pending) == 1


def test_raising_is_as_ever(path, monkeypatch, caplog):
    for given, error in ((b"{}", PlanError), ("", PlanError)):
        with pytest.raises(error):
            opened(path, given, on_error="raise")
    with opened(path, on_error="raise") as client, pytest.raises(UnknownMetricError):
        client.record("shade", "a")
    # A developer's setting holds whatever the app says.
    monkeypatch.setenv("SOTTO_ON_ERROR", "raise")
    with pytest.raises(PlanError):
        opened(path, b"{}")
    with opened(path) as client, pytest.raises(ValueTypeError):
        client.record("colour", 7)
    with pytest.raises(ParameterError, match="on_error"):
        opened(path, on_error="ignore")
    monkeypatch.setenv("SOTTO_ON_ERROR", "rise")
    assert opened(path, b"{}").stats().disabled
    assert "SOTTO_ON_ERROR is not used: say raise or disable" in caplog.text


def test_mistakes_are_counted_and_logged_once_a_metric(path, caplog):
    client = opened(path)
    client.give_consent()
    for _ in range(3):
        assert client.record("colour", 7) is Outcome.INVALID
        assert client.record(MARK, "a") is Outcome.INVALID
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client.stats().outcomes == {
        Outcome.ACCEPTED: {"colour": 1},
        Outcome.INVALID: {"colour": 3, "(unknown)": 3},
    }
    known, unknown = [record.getMessage() for record in caplog.records]
    assert known.startswith("a value is not recorded: metric 'colour'")
    assert unknown.startswith("a value is not recorded: plan ")
    assert MARK not in unknown
    client.close()


def test_a_store_that_fails_later_stops_nobody(agreed, caplog):
    client = opened(agreed)
    agreed.rename(agreed.with_name("gone"))
    client._store.database.disconnect()
    assert client.record("colour", "a") is Outcome.STORE_FULL
    assert not client.give_consent()
    assert client.flush().error is not None
    assert client.next_due() is None
    assert client.consent is Consent.NEVER_GIVEN
    with pytest.raises(StoreError):
        client.ledger()


def test_what_was_said_of_groups_raises_nothing_either(path):
    client = opened(path, GROUPED)
    client.give_consent()
    assert client.group_consent == {"look": Consent.GIVEN}
    client.close()
    assert client.group_consent == {"look": Consent.NEVER_GIVEN}


@pytest.mark.parametrize("cause", ["plan", "ceiling", "another"])
def test_a_withdrawal_is_kept(agreed, cause, monkeypatch):
    """By whoever can read the plan at once, else by the next one that opens the file."""
    client = opened(**{"path": agreed, **spoil(cause, monkeypatch, agreed)})
    if cause == "another":
        with pytest.raises(PlanError):
            client.withdraw_consent()
        assert read_file(agreed).consent is Consent.GIVEN
        return
    assert client.withdraw_consent() is (cause == "ceiling")
    assert read_file(agreed).consent is Consent.WITHDRAWN
    monkeypatch.undo()
    with opened(agreed) as again:
        assert again.consent is Consent.WITHDRAWN
        assert not again.give_consent()
        assert again.ledger().pending == ()


def test_a_withdrawal_holds_on_a_full_disk(agreed, monkeypatch):
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(agreed))
    monkeypatch.setattr("clientsdk.store.schema.make_private", Mock(side_effect=error))
    client = opened(agreed)
    assert "No space left" in client.stats().disabled
    assert not client.withdraw_consent()
    monkeypatch.undo()
    assert opened(agreed).consent is Consent.WITHDRAWN


@pytest.mark.parametrize("later", [Client.flush, Client.close])
def test_a_withdrawal_that_cannot_be_written_is_said_and_tried_again(agreed, monkeypatch, later):
    client = opened(agreed, b"{}")
    with monkeypatch.context() as patched:
        patched.setattr(rollback_guard, "note_withdrawal", Mock(side_effect=StoreError("no")))
        with pytest.raises(StoreError):
            client.withdraw_consent()
        assert client.flush().sent == 0
    assert read_file(agreed).consent is Consent.GIVEN
    later(client)
    assert read_file(agreed).consent is Consent.WITHDRAWN


@pytest.mark.parametrize("state", ["", 5, None])
def test_a_withdrawal_from_nobody_knows_which_file_is_said(state):
    client = opened(state)
    with pytest.raises(StoreError, match="path"):
        client.withdraw_consent()
    client.close()


def test_a_withdrawal_from_a_file_that_may_not_be_looked_for_is_said(agreed, monkeypatch):
    client = opened(agreed, b"{}")
    stat = os.stat

    def refused(path, **options):
        if os.fspath(path).startswith(str(agreed)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refused)
        with pytest.raises(StoreError, match="cannot be found: Permission denied"):
            client.withdraw_consent()
    client.close()
    assert read_file(agreed).consent is Consent.WITHDRAWN


@pytest.mark.parametrize("given", [b"{}", GROUPED], ids=["no plan", "a plan"])
def test_to_withdraw_from_no_group_changes_nothing(path, given, monkeypatch):
    with opened(path, GROUPED) as client:
        client.give_consent()
    monkeypatch.setenv("SOTTO_DISABLED", "1" if given is GROUPED else "0")
    client = opened(path, given)
    before = path.read_bytes(), path.with_name(path.name + "-mark").read_bytes()
    assert client.withdraw_consent(groups=[])
    assert (path.read_bytes(), path.with_name(path.name + "-mark").read_bytes()) == before


def test_where_there_is_no_file_there_is_no_ledger_and_nothing_to_withdraw(path):
    client = opened(path, b"{}")
    assert client.ledger().periods == ()
    assert client.withdraw_consent()
    assert not list(path.parent.iterdir())
    assert opened(NO_LIFETIME_BOUND, b"{}").withdraw_consent()
    assert opened("", b"{}").record("colour", "a") is Outcome.DISABLED


@pytest.mark.real_randomness
def test_a_disabled_client_survives_forks(path):
    code = """
options = {"state": path, "publisher": MemoryPublisher()}
off = Settings(disabled=True)
clients = [Client.open(b"{}", **options), Client(plan(), settings=off, **options)]
assert {client.record("colour", "a") for client in clients} == {Outcome.DISABLED}
def work():
    for client in clients:
        assert client.record("colour", "b") is Outcome.DISABLED
        assert client.stats().refused == {Outcome.DISABLED: 1}
        assert (client.flush().error, client.next_due(), client.group_consent) == (None, None, {})
        assert client.close().remaining == 0
wait(child(work))
assert {client.record("colour", "a") for client in clients} == {Outcome.DISABLED}
assert threading.active_count() == 1
"""
    run(code, path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)
    assert opened(home / "device.db").record("colour", "a") is Outcome.DISABLED
    home.chmod(0o700)
