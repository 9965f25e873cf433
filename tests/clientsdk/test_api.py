"""The interface that apps may rely on changes only on purpose."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum

import api_snapshot
import pytest
from device_plans import metric, number, plan
from scripts import ROOT

import clientsdk


def test_the_public_names_and_signatures_are_the_committed_ones():
    assert api_snapshot.snapshot() == api_snapshot.SNAPSHOT.read_text(), (
        "if that is meant: python tests/clientsdk/api_snapshot.py writes api.txt again"
    )


def test_every_public_name_is_there_and_no_other_is_made_up():
    for name in clientsdk.__all__:
        thing = getattr(clientsdk, name)
        if name != "__version__":
            assert (thing.name if isinstance(thing, Enum) else thing.__name__) == name
    assert set(clientsdk.__all__) <= set(dir(clientsdk))
    with pytest.raises(AttributeError, match="no attribute 'Clients'"):
        clientsdk.Clients  # noqa: B018


def test_errors_show_the_module_that_apps_import_them_from():
    errors = [getattr(clientsdk, name) for name in clientsdk.__all__ if name.endswith("Error")]
    assert {each.__module__ for each in errors} == {"sotto.errors"}
    assert clientsdk.SottoError in errors
    assert all(issubclass(each, clientsdk.SottoError) for each in errors)


#: Modules that an app that records would pay for, whether or not it uses them.
HEAVY = """
    argparse asyncio concurrent.futures cryptography dataclasses email hashlib http
    importlib.metadata inspect kafka logging numpy pathlib prometheus_client socket ssl
    subprocess tempfile typing urllib.request
"""


#: Modules that a run of a tool does not pay for unless it records something.
FOR_RECORDING = """
    clientsdk.sending clientsdk.publishers.http_requests clientsdk.store contextlib datetime
    http.client mechanisms.registry sotto.plan.checks sotto.plan.measures sotto.plan.segments
    sotto.wire.format sqlite3 threading typing
"""
#: Why a run records nothing: the environment, and what the outcome is.
OFF = {
    "switched off": ("SOTTO_DISABLED", "disabled"),
    "do not track": ("DO_NOT_TRACK", "disabled"),
    "nobody has agreed": ("UNRELATED", "no_consent"),
}


def loaded(code: str, *arguments: str) -> set[str]:
    """Return the modules that a bare interpreter has loaded once it has run some code."""
    told = subprocess.run(
        [sys.executable, "-S", "-c", _LOADED.format(root=str(ROOT), code=code), *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(told.stdout.split())


_LOADED = """
import sys
sys.path.insert(0, {root!r})
{code}
print(*sys.modules)
"""
_RECORDING = """
import clientsdk
class Nowhere:
    def publish(self, shard, message):
        pass
    def close(self):
        pass
plan, state = sys.argv[1:]
now = 2900 * 7 * 86_400
client = clientsdk.Client(plan.encode(), state=state, publisher=Nowhere(), clock=lambda: now)
client.give_consent()
assert client.record("colour", "a") == "accepted"
client.flush(timeout=1)
client.close()
"""

_OFF = """
import os
from clientsdk import Client, HttpPublisher, ask
name, outcome = {why!r}
os.environ[name] = "1"
plan, state = sys.argv[1:]
publisher = HttpPublisher("https://telemetry.example")
with Client.open(plan.encode(), state=state, publisher=publisher) as client:
    assert client.record("colour", "a") == client.record("size", 3) == outcome
    assert not ask(client)
    assert client.consent == {said!r}
    assert client.stats().refused == {{outcome: 2}}
    client.flush()
"""


@pytest.mark.real_randomness
def test_importing_the_sdk_imports_nothing_heavy():
    imported = loaded("from clientsdk import Client, HttpPublisher, Settings")
    assert "clientsdk.client" in imported
    assert not imported & {*(HEAVY + FOR_RECORDING).split()}


@pytest.mark.real_randomness
@pytest.mark.parametrize("why", OFF)
def test_a_run_that_records_nothing_loads_nothing_that_records_or_sends(tmp_path, why):
    document = plan(metric("colour"), number("size")).to_json().decode()
    state = tmp_path / "device.db"
    imported = loaded(_OFF.format(why=OFF[why], said="never given"), document, str(state))
    assert {"clientsdk.client", "clientsdk.publishers.http"} <= imported
    assert not imported & {*(HEAVY + FOR_RECORDING).split()}
    assert not state.exists()


@pytest.mark.real_randomness
def test_nor_does_one_at_a_device_whose_person_has_said_no(tmp_path):
    agreed_to, state = plan(metric("colour"), number("size")), tmp_path / "device.db"
    sink = clientsdk.MemoryPublisher()
    with clientsdk.Client(agreed_to, state=state, publisher=sink) as client:
        client.withdraw_consent()
    code = _OFF.format(why=OFF["nobody has agreed"], said="withdrawn")
    imported = loaded(code, agreed_to.to_json().decode(), str(state))
    reads_the_note = {"clientsdk.store", "contextlib"}
    assert not (imported - reads_the_note) & {*(HEAVY + FOR_RECORDING).split()}


@pytest.mark.real_randomness
def test_nor_do_recording_flushing_and_closing(tmp_path):
    document = plan(metric("colour", "every", 3)).to_json().decode()
    imported = loaded(_RECORDING, document, str(tmp_path / "device.db"))
    assert "mechanisms.category.grr" in imported
    assert not imported & {*HEAVY.split()}
