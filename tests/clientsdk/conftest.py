"""Fixtures that all tests of the SDK need."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_was_complained_of(monkeypatch):
    """Let every test see the warnings that it causes."""
    monkeypatch.setattr("clientsdk.diagnostics._last_logged", {})


@pytest.fixture(autouse=True)
def _connections_are_kept(monkeypatch):
    """However slow this machine is, a connection is kept because of what it is for."""
    monkeypatch.setattr("clientsdk.publishers.http._IDLE", 3600.0)


@pytest.fixture
def path(tmp_path):
    """The path at which a device is to have its state file."""
    return tmp_path / "device.db"
