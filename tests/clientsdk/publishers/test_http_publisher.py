"""Messages over HTTP: taken once durable, the same bytes again, never unbounded."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from device_plans import metric, reporter
from local_server import Answer, Request
from messages import message
from publishing import Collector
from waiting import wait_until

from clientsdk.publishers.http import Address, HttpPublisher
from clientsdk.sending import sender
from sotto.errors import ParameterError, PublishError


@pytest.fixture
def collector():
    with Collector() as server:
        yield server


@pytest.fixture
def publisher(collector):
    publisher = HttpPublisher(collector.url, key="secret", timeout=300)
    yield publisher
    publisher.close()


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
    collector.answer = Answer(status)
    with pytest.raises(PublishError, match=said):
        publisher.publish(3, message())


def test_http_and_https_that_were_confused_are_told_apart(collector):
    with pytest.raises(PublishError, match="where it takes http\\?"):
        HttpPublisher(collector.url.replace("http:", "https:")).publish(3, message())


def silence(asked: Request) -> None:
    time.sleep(600)


def trickle(asked: Request) -> None:
    for _ in range(6000):
        asked.handler.wfile.write(b"H")
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
    wait_until(lambda: "sotto-http" not in {each.name for each in threading.enumerate()})
    assert collector.requests == []


def test_nobody_there_is_an_error_without_an_address(collector):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        publisher = HttpPublisher(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(PublishError) as caught:
            publisher.publish(3, message())
    assert str(caught.value) == (
        "the collector cannot be reached (ConnectionRefusedError): nothing listens there"
    )


def test_a_client_closes_the_publisher_that_it_made(collector, monkeypatch):
    closed = threading.Event()
    monkeypatch.setattr(HttpPublisher, "close", lambda publisher: closed.set())
    client = reporter(collector.url)
    client.clock.advance(hours=2)
    assert client.flush().sent == 1
    assert not closed.is_set()
    client.close()
    assert closed.is_set()


def test_a_connection_ends_with_the_flush_that_made_it(collector, publisher, monkeypatch):
    """Otherwise it would end when another pseudonym's begins."""
    monkeypatch.setattr(sender, "BATCH", 1)
    # However slow this machine is.
    monkeypatch.setattr("clientsdk.publishers.http._IDLE", 3600.0)
    client = reporter(publisher, metric("colour", "every", 2))
    client.record("colour", "b")
    client.clock.advance(hours=2)
    client.flush()
    assert collector.connections == 2 * collector.connections[:1]
    assert collector.closed.acquire(timeout=300)


@pytest.mark.parametrize("closed", [False, True])
def test_a_child_of_a_fork_has_a_connection_of_its_own(collector, publisher, closed):
    publisher.publish(3, message())
    if closed:
        # As by a child that closes all that it has inherited.
        publisher._connection.sock.close()
    # As after a fork.
    publisher._process = 0
    publisher.publish(3, message())
    assert len(set(collector.connections)) == 2


def test_closing_does_not_wait_for_a_message_under_way(collector, publisher):
    may_answer = threading.Event()

    def take_late(asked: Request) -> Answer:
        may_answer.wait(300)
        return Answer()

    collector.answer = take_late
    sending = threading.Thread(target=publisher.publish, args=(3, message()))
    sending.start()
    wait_until(lambda: collector.requests)
    publisher.close()
    may_answer.set()
    sending.join(300)
    # Its connection is not kept.
    assert collector.closed.acquire(timeout=300)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://[::1]:8470", "::1", 8470),
        ("http://[::1]", "::1", 80),
        ("https://[::1]", "::1", 443),
        (" HTTPS://Telemetry.Example:/v1/reports#now ", "telemetry.example", 443),
        ("http://LOCALHOST#top", "localhost", 80),
    ],
)
def test_an_address_needs_no_port(url, host, port):
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
        "https://telemetry.example/path?key=1",
        "https://telemetry.example:port",
        "https://telemetry.example:65536",
        "https://telemetry.example:000443",
        "https://telemetry.example:1:2",
        "https://telemetry .example",
        "https://telemetry.example/a path",
        "https://me@telemetry.example",
        "https://:443",
        "https://[telemetry.example]",
        "https://[::1]8470",
        "https://[::1",
        "https://::1",
        "https://telemetry\x7f.example",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(ParameterError, match="https://"):
        HttpPublisher(url)
