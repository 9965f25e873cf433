"""Messages over HTTP: taken once durable, the same bytes again, never unbounded."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from device_plans import reporter
from publishing import Collector, Handler, refuse

from clientsdk.publishers.http import Address, HttpPublisher
from sotto.errors import ParameterError, PublishError
from sotto.wire.batch import split_messages
from sotto.wire.format import Row, encode_message


def message(pseudonym: bytes = b"p" * 16) -> bytes:
    return encode_message(bytes(32), 3, [(0, [Row(0, pseudonym, os.urandom(16), 0, b"\1")])])


@pytest.fixture
def collector():
    with Collector() as server:
        yield server
        server.shutdown()


@pytest.fixture
def publisher(collector):
    publisher = HttpPublisher(collector.url, key="secret", timeout=300)
    yield publisher
    publisher.close()


def test_a_request_holds_the_message_and_nothing_about_the_device(collector, publisher):
    sent = message()
    publisher.publish(3, sent)
    ((_, headers, body),) = collector.taken
    assert split_messages(body) == [sent]
    assert headers == {
        "Host": f"127.0.0.1:{collector.server_port}",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "Content-Type": "application/octet-stream",
        "Authorization": "Bearer secret",
    }


def test_a_connection_is_for_one_pseudonym(collector, publisher):
    for name in (b"a", b"a", b"b", b"b", b"a"):
        publisher.publish(3, message(name * 16))
    first, again, other, same, back = collector.connections
    assert first == again != other == same != back != first


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ([("Retry-After", "120")], 120.0),
        ([("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
        ([("Retry-After", "-5")], None),
        ([], None),
    ],
)
def test_a_refusal_says_when_to_come_again(collector, publisher, headers, hint):
    collector.answer = refuse(503, *headers)
    with pytest.raises(PublishError, match="status 503") as caught:
        publisher.publish(3, message())
    assert caught.value.retry_after == hint
    collector.answer = Handler.take
    publisher.publish(3, message())


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "status 401: it asks for the app's key"),
        (404, "status 404: the url is the collector's own, without /v1/reports"),
        (422, "status 422: it does not know the plan"),
        (503, "status 503$"),
        (405, "status 405: what answers there is no collector"),
        (301, "status 301: redirects are not followed: give the last address"),
    ],
)
def test_a_refusal_says_what_may_be_wrong(collector, publisher, status, said):
    collector.answer = refuse(status)
    with pytest.raises(PublishError, match=said):
        publisher.publish(3, message())


def test_http_and_https_that_were_confused_are_told_apart(collector):
    with pytest.raises(PublishError, match="where it takes http\\?"):
        HttpPublisher(collector.url.replace("http:", "https:")).publish(3, message())


def test_redirects_are_not_followed(collector, publisher):
    collector.answer = refuse(307, ("Location", f"{collector.url}/v1/reports"))
    with pytest.raises(PublishError, match="status 307"):
        publisher.publish(3, message())
    assert len(collector.taken) == 1


def test_a_connection_that_was_closed_meanwhile_is_made_anew(collector, publisher):
    def take_and_close(handler: Handler) -> None:
        handler.take()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    collector.answer = take_and_close
    for _ in range(3):
        publisher.publish(3, message())
    assert len(collector.taken) == 3


def silence(handler: Handler) -> None:
    time.sleep(600)


def trickle(handler: Handler) -> None:
    for _ in range(6000):
        handler.wfile.write(b"H")
        time.sleep(0.1)


@pytest.mark.parametrize("answer", [silence, trickle])
def test_no_call_is_unbounded(collector, answer):
    collector.answer = answer
    publisher = HttpPublisher(collector.url, timeout=0.5)
    begin = time.monotonic()
    with pytest.raises(PublishError, match="in time"):
        publisher.publish(3, message())
    assert time.monotonic() - begin < 300
    publisher.close()


def test_what_was_given_up_is_not_sent_later(collector, monkeypatch):
    """As when the look-up of the name takes long: consent may be withdrawn meanwhile."""
    may_go_on, ended = threading.Event(), threading.Event()
    original = socket.create_connection

    def slow(*arguments, **options):
        may_go_on.wait(600)
        try:
            return original(*arguments, **options)
        finally:
            ended.set()

    monkeypatch.setattr(socket, "create_connection", slow)
    publisher = HttpPublisher(collector.url, timeout=0.5)
    with pytest.raises(PublishError, match="in time"):
        publisher.publish(3, message())
    may_go_on.set()
    assert ended.wait(600)
    for thread in threading.enumerate():
        if thread.name == "sotto-http":
            thread.join(600)
    assert collector.taken == []


def test_nobody_there_is_an_error_without_an_address(collector):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        publisher = HttpPublisher(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(PublishError) as caught:
            publisher.publish(3, message())
    assert str(caught.value) == (
        "the collector cannot be reached (ConnectionRefusedError): nothing listens there"
    )


def test_a_client_sends_the_same_bytes_again(collector, publisher):
    client = reporter(publisher)
    client.clock.advance(hours=2)
    collector.answer = refuse(503, ("Retry-After", "120"))
    # The sender waits for so long: tests/clientsdk/sending/test_worker.py.
    assert client.flush().error.retry_after == 120
    collector.answer = Handler.take
    assert client.flush().sent == 1
    assert collector.bodies[0] == collector.bodies[1]


def test_a_client_closes_the_publisher_that_it_made(collector, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(Handler, "finish", lambda handler: ended.set())
    client = reporter(collector.url)
    client.clock.advance(hours=2)
    assert client.flush().sent == 1
    assert not ended.is_set()
    client.close()
    assert ended.wait(300)


def test_closing_does_not_wait_for_a_message_under_way(collector, publisher):
    may_answer, ended = threading.Event(), threading.Event()

    def take_late(handler: Handler) -> None:
        may_answer.wait(300)
        handler.take()
        if not handler.rfile.read(1):
            ended.set()

    collector.answer = take_late
    sending = threading.Thread(target=publisher.publish, args=(3, message()))
    sending.start()
    while not collector.taken:
        time.sleep(0.01)
    publisher.close()
    may_answer.set()
    sending.join(300)
    # Its connection is not kept.
    assert ended.wait(300)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://[::1]:8470", "::1", 8470),
        ("http://[::1]", "::1", 80),
        ("https://[::1]", "::1", 443),
    ],
)
def test_an_address_of_ipv6_needs_no_port(url, host, port):
    connection = Address(url, None).connection()
    assert (connection.host, connection.port) == (host, port)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1.telemetry.example",
        "http://192.168.0.7",
        "ftp://telemetry.example",
        "https://",
        "https://telemetry.example?key=1",
        "https://telemetry.example:port",
        "https://telemetry\x7f.example",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(ParameterError, match="https://"):
        HttpPublisher(url)
