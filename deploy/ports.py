"""Ports on loopback for programs of our own."""

from __future__ import annotations

import socket

from deploy.errors import DeployError

HOST = "127.0.0.1"


def two_free() -> tuple[int, int]:
    """Return two ports that nobody has at this moment."""
    with socket.socket() as one, socket.socket() as other:
        one.bind((HOST, 0))
        other.bind((HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


def require_free(port: int) -> None:
    """Refuse a port that cannot be listened on.

    Raises
    ------
    DeployError
        The message names the port and says why.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise DeployError(
                f"port {port} cannot be used ({error.strerror}): stop what has it, or give another"
            ) from error
