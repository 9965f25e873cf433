"""Ports on loopback for programs of our own."""

from __future__ import annotations

import contextlib
import secrets
import socket

from deploy.errors import DeployError

HOST = "127.0.0.1"
#: Below what Linux, macOS and Windows give to who asks for any port: until a program listens on
#: its own, which may take seconds, and while it is down, no connection of another takes it.
_NOT_HANDED_OUT = range(20_000, 32_768)
#: Ports that this process has given: whoever asked may not listen on one yet, or not just now.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has at this moment, and that no system gives anybody unasked.

    No port is returned twice.
    """
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_NOT_HANDED_OUT)
        if port in _given:
            continue
        with contextlib.suppress(DeployError):
            require_free(port)
            found.append(port)
            _given.add(port)
    return found


def require_free(port: int) -> None:
    """Raise DeployError, which names the port and says why, if it cannot be listened on."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise DeployError(
                f"port {port} cannot be used ({error.strerror}): stop what has it, or give another"
            ) from error
