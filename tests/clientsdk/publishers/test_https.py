"""TLS to a collector: whom a device trusts, and that no session joins two pseudonyms."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager

import pytest
from certificates import Authority
from messages import message

from clientsdk import HttpPublisher, fetch_plan
from clientsdk.publishers import http
from sotto.errors import PublishError

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def known(authority):
    return ssl.create_default_context(cafile=str(authority.file))


@contextmanager
def serving(files):
    """A server that answers each request with 204, notes sessions that are resumed, and gives
    tickets.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    listener = socket.create_server(("127.0.0.1", 0))
    resumed: list[bool] = []
    threads: list[threading.Thread] = []

    def answer(raw: socket.socket) -> None:
        try:
            with context.wrap_socket(raw, server_side=True) as connection:
                resumed.append(bool(connection.session_reused))
                while connection.recv(65536):
                    connection.sendall(ANSWER)
        except OSError:
            raw.close()

    def accept() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=answer, args=(raw,)))
            threads[-1].start()

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", resumed
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(300)


@pytest.mark.parametrize(
    "case", [("other.example", 1), ("127.0.0.1", -1), ("127.0.0.2", 1)], ids=lambda case: case[0]
)
def test_wrong_and_expired_certificates_are_refused(authority, known, case):
    name, days = case
    with serving(authority.certify(name, days=days)) as (url, resumed):
        publisher = HttpPublisher(url, context=known)
        with pytest.raises(PublishError, match=r"\(SSLCertVerificationError\)"):
            publisher.publish(3, message())
        assert resumed == []
        publisher.close()


def test_unknown_authorities_are_refused(authority, tmp_path):
    other = ssl.create_default_context(cafile=str(Authority(tmp_path).file))
    with serving(authority.certify()) as (url, _):
        for context in (None, other):
            with pytest.raises(PublishError, match=r"\(SSLCertVerificationError\)"):
                HttpPublisher(url, context=context).publish(3, message())
            with pytest.raises(PublishError, match=r"\(SSLCertVerificationError\)"):
                fetch_plan(url, "fleet.example", expect="0" * 64, context=context)


def test_no_session_is_resumed(authority, known, monkeypatch):
    monkeypatch.setattr(http, "_IDLE", 600.0)
    with serving(authority.certify()) as (url, resumed):
        publisher = HttpPublisher(url, context=known)
        for each in (b"a", b"a", b"b", b"a", b"c"):
            publisher.publish(3, message(pseudonym=each * 16))
        publisher.close()
        assert resumed == [False] * 4
        # A session that is resumed would be seen.
        sessions = None
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        for _ in range(2):
            with known.wrap_socket(
                socket.create_connection(place), server_hostname=place[0], session=sessions
            ) as connection:
                connection.sendall(b"a")
                assert connection.recv(100) == ANSWER
                sessions = connection.session
        assert resumed[4:] == [False, True]
