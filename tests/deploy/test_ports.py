"""Ports for programs of our own: free ones, and what is said of those that are not."""

from __future__ import annotations

import socket

import pytest

from deploy import ports
from deploy.errors import DeployError


def test_free_ports_differ_and_nobody_has_them(monkeypatch):
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        # Whatever chance says, the taken one and a pair of the same are met and passed by.
        first, second = ports.free_ports(2)
        chosen = iter([port, first, port, first, second])
        monkeypatch.setattr(ports.secrets, "choice", lambda _: next(chosen))
        assert set(ports.free_ports(2)) == {first, second}
        assert next(chosen, None) is None
        with pytest.raises(DeployError, match=f"port {port} cannot be used"):
            ports.require_free(port)
