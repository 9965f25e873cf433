"""A network that can be cut, and healed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from waiting import wait_until

from benchmarks.soak.proxy import Network, Proxy
from deploy.ports import HOST


def _echo(listener: socket.socket) -> None:
    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1000):
                connection.sendall(data)

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


@pytest.fixture
def proxy():
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=_echo, args=(listener,), daemon=True).start()
        made = Proxy()
        made.target = listener.getsockname()[1]
        yield made
        made.close()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def connection(proxy):
    with socket.create_connection((HOST, proxy.port), timeout=300) as made:
        assert said(made, b"before") == b"before"
        yield made


def said(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(1000)


def ended(connection: socket.socket) -> bool:
    connection.settimeout(300)
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


def silent(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        connection.recv(1000)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("network", [Network.CUT, Network.DEAF])
def test_what_is_swallowed_is_lost_with_its_connection(proxy, connection, network):
    proxy.become(network)
    connection.sendall(b"lost")
    wait_until(lambda: any(each.swallowed for each in tuple(proxy._connections)))
    assert silent(connection)
    proxy.become(Network.WHOLE)
    assert ended(connection)
    with socket.create_connection((HOST, proxy.port), timeout=300) as another:
        assert said(another, b"after") == b"after"


def test_what_is_stalled_comes_late(proxy, connection):
    proxy.become(Network.STALLED)
    connection.sendall(b"late")
    assert silent(connection)
    proxy.become(Network.WHOLE)
    connection.settimeout(300)
    assert connection.recv(1000) == b"late"


@pytest.mark.parametrize("network", [Network.RESET, Network.REFUSED, Network.HALF_CLOSED])
def test_connections_end(proxy, connection, network):
    proxy.become(network)
    assert ended(connection)
    if network is Network.REFUSED:
        # Whether connecting still succeeds depends on how soon the reset comes.
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection((HOST, proxy.port), timeout=300) as another,
        ):
            assert ended(another)
    if network is not Network.RESET:
        proxy.become(Network.WHOLE)
    with socket.create_connection((HOST, proxy.port), timeout=300) as another:
        assert said(another, b"after") == b"after"


def test_what_is_torn_ends_in_its_middle(proxy, connection):
    proxy.become(Network.TORN)
    connection.sendall(b"12345678")
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1000):
            found += data
    assert found in (b"", b"12")
    proxy.become(Network.WHOLE)
    with socket.create_connection((HOST, proxy.port), timeout=300) as another:
        assert said(another, b"after") == b"after"


def test_a_slow_network_takes_its_time_and_loses_nothing(proxy, connection):
    sent = bytes(range(200)) * 3
    proxy.become(Network.SLOW)
    begin = time.monotonic()
    connection.sendall(sent)
    found = b""
    while len(found) < len(sent):
        found += connection.recv(1000)
    assert found == sent
    # Ten pieces went one way, with a pause after each.
    assert time.monotonic() - begin > 0.15
