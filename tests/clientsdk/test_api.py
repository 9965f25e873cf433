"""What apps may rely on changes only on purpose."""

from __future__ import annotations

import subprocess
import sys

import api_snapshot
import pytest
from scripts import ROOT

import clientsdk


def test_the_public_names_and_signatures_are_the_committed_ones():
    assert api_snapshot.snapshot() == api_snapshot.SNAPSHOT.read_text(), (
        "if that is meant: python tests/clientsdk/api_snapshot.py writes api.txt again"
    )


def test_every_public_name_is_there_and_no_other_is_made_up():
    for name in clientsdk.__all__:
        assert getattr(clientsdk, name).__name__ == name
    assert set(clientsdk.__all__) <= set(dir(clientsdk))
    with pytest.raises(AttributeError, match="no attribute 'Clients'"):
        clientsdk.Clients  # noqa: B018


#: What an app that records pays for, whether or not it uses it.
HEAVY = {
    "argparse",
    "asyncio",
    "concurrent.futures",
    "email",
    "http",
    "importlib.metadata",
    "kafka",
    "logging",
    "numpy",
    "prometheus_client",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.request",
}


def test_importing_the_sdk_imports_nothing_heavy():
    code = "import sys, clientsdk; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "clientsdk.client" in imported
    assert not HEAVY & set(imported)
    assert not {"clientsdk.kafkapublisher", "clientsdk.logpublisher"} & set(imported)
