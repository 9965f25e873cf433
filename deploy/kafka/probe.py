"""Asks a broker which requests it knows: the smallest question that only a live one answers."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

_API_VERSIONS = 18
_CORRELATION = 7
#: An answer is a few hundred bytes; what claims more is no broker's.
_LONGEST = 1 << 16


def answers(host: str, port: int, authority: Path | None, seconds: float = 2) -> bool:
    """Return whether a broker answers, within so many seconds for each wait.

    ``authority`` is the certificate that its own must be signed with; without, it is spoken to in
    the clear.
    """
    client = b"probe"
    request = struct.pack(f">hhih{len(client)}s", _API_VERSIONS, 0, _CORRELATION, 5, client)
    try:
        with _connected(host, port, authority, seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 6 <= size <= _LONGEST:
                return False
            correlation, error = struct.unpack_from(">ih", _exactly(connection, size))
    except OSError:
        return False
    return bool(correlation == _CORRELATION and error == 0)


def _connected(host: str, port: int, authority: Path | None, seconds: float) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=seconds)
    if authority is None:
        return connection
    try:
        context = ssl.create_default_context(cafile=authority)
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data
