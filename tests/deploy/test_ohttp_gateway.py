"""The gateway in Go, and the proxies before it: what they hand on, and what they survive."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_server import Answer, LocalServer
from oblivious import prefixed, served
from serving import caddy, trusted
from waiting import at_once

from clientsdk.publishers.ohttp import (
    KeyConfiguration,
    ObliviousPublisher,
    decode_response,
    encode_request,
)
from deploy.errors import DeployError
from deploy.ohttp import service
from deploy.ohttp.service import LocalGateway
from deploy.ports import free_ports
from sotto.errors import PublishError
from sotto.wire.format import Row, encode_message

pytestmark = pytest.mark.slow

ORIGIN = "telemetry.example"


@pytest.fixture
def target():
    """A server that stands for the collector."""
    with LocalServer() as server:
        yield server


def requests_of(server: LocalServer) -> list[tuple[str, str, dict[str, str], bytes]]:
    return [(each.method, each.path, each.headers, each.body) for each in server.requests]


def post(gateway: LocalGateway, body: bytes, **headers: str) -> tuple[int, bytes]:
    """Send bytes to the gateway as a relay does."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=300)
    try:
        connection.request(
            "POST", "/gateway", body, {"Content-Type": "message/ohttp-req", **headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def asked(gateway: LocalGateway, request: bytes, keys: bytes = b"", **headers: str):
    """Return the decrypted answer to a binary HTTP request."""
    configuration = KeyConfiguration.parse(keys or gateway.public_keys())
    sent, exchange = configuration.encapsulate(request)
    status, answer = post(gateway, sent, **headers)
    assert status == 200
    return decode_response(exchange.decapsulate(answer))


def report(fields=(), authority: str = ORIGIN, path: str = "/v1/reports") -> bytes:
    return encode_request("POST", "https", authority, path, fields, b"content")


@pytest.mark.real_randomness
def test_the_gateway_forwards_the_message_and_nothing_about_who_sent_it(gateway, target):
    gateway.start(ORIGIN, target.url)
    fields = [
        ("content-type", "application/octet-stream"),
        ("authorization", "Bearer key"),
        ("user-agent", "a phone"),
        ("cookie", "who=me"),
        ("x-forwarded-for", "203.0.113.7"),
    ]
    outer = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7", "Via": "1.1 relay"}
    assert asked(gateway, report(fields), **outer) == (204, {}, b"")
    assert requests_of(target) == [
        (
            "POST",
            "/v1/reports",
            {
                "Host": ORIGIN,
                "Content-Length": "7",
                "Content-Type": "application/octet-stream",
                "Authorization": "Bearer key",
            },
            b"content",
        )
    ]


@pytest.mark.real_randomness
def test_the_gateway_asks_for_plans_and_says_nothing_about_who_asks(gateway, target):
    gateway.start(ORIGIN, target.url)
    target.answer = Answer(200, body=bytes(range(256)) * 4096)
    fields = [("authorization", "Bearer key"), ("if-none-match", "a"), ("cookie", "who=me")]
    where = "GET", "https", ORIGIN, "/v1/plans/fleet.example"
    answer = asked(gateway, encode_request(*where, fields, b""))
    assert (answer.status, answer.content) == (200, target.answer.body)
    assert requests_of(target) == [("GET", "/v1/plans/fleet.example", {"Host": ORIGIN}, b"")]
    for path in ("/v1/reports", "/v1/plans/", "/v1/plans/a?b", "/v1/plans/../reports", "/metrics"):
        assert asked(gateway, encode_request("GET", "https", ORIGIN, path, [], b"")).status == 403
    assert len(target.requests) == 1


@pytest.mark.real_randomness
def test_the_gateway_takes_chacha20_too(gateway, target):
    gateway.start(ORIGIN, target.url)
    keys = gateway.public_keys()[:-1] + b"\3"
    assert KeyConfiguration.parse(keys).aead.value == 3
    assert asked(gateway, report(), keys).status == 204


@pytest.mark.real_randomness
def test_what_the_collector_answers_comes_back_and_nothing_of_its_other_fields(gateway, target):
    gateway.start(ORIGIN, target.url)
    fields = {
        "Retry-After": "5",
        "Content-Type": "application/problem+json",
        "Set-Cookie": "who=me",
        "Server": "python",
    }
    target.answer = Answer(503, fields, b'{"title":"overloaded"}')
    expected = {"retry-after": "5", "content-type": "application/problem+json"}
    assert asked(gateway, report()) == (503, expected, target.answer.body)
    target.answer = Answer(307, {"Location": "http://127.0.0.1:1/"})
    assert asked(gateway, report()).status == 307
    assert len(target.requests) == 2


@pytest.mark.real_randomness
def test_the_gateway_forwards_to_its_collector_alone_and_survives_what_is_damaged(gateway, target):
    gateway.start(ORIGIN, target.url)
    for other in ("127.0.0.1:22", "metadata.internal", f"{ORIGIN}:81", f"{ORIGIN}@other", ""):
        assert asked(gateway, report(authority=other)).status in (400, 403), other
    for other in ("/v1/plans/x", "/", "/v1/reports?key=1", "/v1/../v1/reports"):
        assert asked(gateway, report(path=other)).status == 403, other
    control = prefixed(b"POST", b"https", ORIGIN.encode(), b"/v1/reports")
    put = b"\0" + prefixed(b"PUT", b"https", ORIGIN.encode(), b"/v1/reports") + b"\0\0\0"
    huge = b"\xff" * 8
    damaged = (
        *(b"", b"\0", b"\1\x40\xc8", b"\2" + control, put, bytes(1024)),
        *(b"\0" + huge, b"\0" + control + huge, b"\0" + control + b"\0" + huge),
        b"\0" + control + b"\0\1c" + huge,
        b"\0" + control + b"\0\1c" + prefixed(prefixed(b"trailer", b"text")),
        b"\0" + control + prefixed(b"\x40\xff"),
        b"\0" + control + prefixed(prefixed(b"name") + huge) + b"\0\0",
        b"\0" + control + prefixed(prefixed(b":path", b"/")) + b"\1c\0",
    )
    for request in damaged:
        assert asked(gateway, request).status == 400, request
    sent, _ = KeyConfiguration.parse(gateway.public_keys()).encapsulate(report())
    problem = "https://iana.org/assignments/http-problem-types#ohttp-key"
    for at in (0, 2, 4, 6, 7, 38, 39, len(sent) - 1):
        changed = bytearray(sent)
        changed[at] ^= 0x55
        status, answer = post(gateway, bytes(changed))
        assert (status, json.loads(answer)["type"]) == (400, problem), at
    for cut in (0, 1, 6, 7, 38, 39, 54, len(sent) - 1):
        assert post(gateway, sent[:cut])[0] == 400, cut
    assert post(gateway, sent, **{"Content-Type": "text/plain"})[0] == 415
    assert post(gateway, bytes(5 << 20))[0] == 413
    assert requests_of(target) == []
    assert post(gateway, sent)[0] == 200
    assert len(target.requests) == 1
    assert gateway.log_file.read_bytes() == b""


@pytest.mark.real_randomness
def test_requests_that_wait_are_limited_by_their_bytes(gateway, target):
    """Anybody can send large ones, as many as they like."""
    gateway.start(ORIGIN, target.url)
    sent, _ = KeyConfiguration.parse(gateway.public_keys()).encapsulate(report())
    head = (
        f"POST /gateway HTTP/1.1\r\nHost: {ORIGIN}\r\nContent-Type: message/ohttp-req\r\n"
        f"Content-Length: {4 << 20}\r\n\r\n"
    )

    def hold(held: contextlib.ExitStack) -> socket.socket:
        """Send all but the last byte, for which the gateway waits for 20 seconds."""
        waiting = held.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 60))
        waiting.sendall(head.encode() + bytes((4 << 20) - 1))
        return waiting

    with contextlib.ExitStack() as held:
        waiting = [hold(held) for _ in range(16)]
        for _ in attempts():
            if post(gateway, sent)[0] == 503:
                break
            # One that was still being read when that came was itself the one too many.
            answered, _, _ = select.select(waiting, [], [], 0)
            waiting = [hold(held) if each in answered else each for each in waiting]
    for _ in attempts():
        if post(gateway, sent)[0] == 200:
            break


def attempts() -> Iterator[None]:
    """Yield every 20 ms, for five minutes at most."""
    deadline = time.monotonic() + 300
    while True:
        yield
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.real_randomness
def test_many_devices_at_once_with_two_keys(gateway, target):
    gateway.folder.mkdir()
    gateway.write_keys({1: os.urandom(32), 2: os.urandom(32)})
    gateway.start(ORIGIN, target.url)
    first = gateway.public_keys()
    second = first[len(first) // 2 :]
    statuses: list[int] = []

    def device(keys: bytes) -> None:
        statuses.extend(asked(gateway, report(), keys).status for _ in range(25))

    at_once(device, (first, second) * 4)
    assert statuses == [204] * 200


@pytest.mark.real_randomness
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "line 1: a key is an identifier and a seed"),
        ("256 " + 64 * "0", "line 1: an identifier is a number from 0 to 255"),
        (f"1 {64 * '0'}\n1 {64 * '1'}", "line 2: an identifier is a number"),
        ("1 00", "line 1: a seed has 64 hexadecimal digits"),
        (f"1 {64 * '0'}", "-origin must be a host's name alone"),
    ],
)
def test_damaged_keys_or_a_url_for_a_name_end_it_without_the_keys(gateway, content, reason):
    gateway.folder.mkdir()
    gateway.key_file.write_text(content)
    with pytest.raises(DeployError, match=reason):
        gateway.start(f"https://{ORIGIN}", "http://127.0.0.1:1")
    assert not gateway.running
    assert "0000" not in gateway.log_file.read_text()


def proxy(folder: Path, name: str, **settings: str) -> contextlib.AbstractContextManager[Path]:
    """Run Caddy with one of the shipped configurations."""
    folder.mkdir()
    return caddy(folder, service.SOURCE.parent / f"Caddyfile.{name}", **settings)


@pytest.mark.real_randomness
def test_the_shipped_proxies_hand_on_what_is_encrypted_and_nothing_else(tmp_path, gateway, target):
    gateway.start(ORIGIN, target.url)
    relay_port, gateway_port = free_ports(2)
    before_gateway = f"http://127.0.0.1:{gateway_port}"
    of_gateway = {"SOTTO_GATEWAY": before_gateway, "SOTTO_GATEWAY_PORT": str(gateway.port)}
    with LocalServer() as between:
        of_relay = {"SOTTO_RELAY": f"https://localhost:{relay_port}", "SOTTO_GATEWAY": between.url}
        with proxy(tmp_path / "relay", "relay", **of_relay) as said:
            context = trusted(tmp_path / "relay", relay_port)
            planted = ("Cookie", "User-Agent", "X-Forwarded-For", "X-Real-IP", "Forwarded", "Via")
            wanted = {"Content-Type": "message/ohttp-req"}
            known = {**dict.fromkeys(planted, "planted"), **wanted}

            def sent(path: str, headers: dict[str, str]) -> int:
                connection = http.client.HTTPSConnection(
                    "localhost", relay_port, context=context, timeout=300
                )
                connection.request("POST", path, b"encrypted", headers)
                status = connection.getresponse().status
                connection.close()
                return status

            assert sent("/ohttp?planted", known) == 204
            assert sent("/ohttp", {"Content-Type": "text/plain"}) == 404
            assert sent("/other", wanted) == 404
            ((_, path, headers, body),) = requests_of(between)
            assert (path, body) == ("/gateway", b"encrypted")
            assert headers.pop("Accept-Encoding") == "gzip"
            own = {"Host": f"127.0.0.1:{between.server_port}", "Content-Length": "9"}
            # An empty one keeps Caddy from naming itself.
            headers.pop("User-Agent", "")
            assert headers == wanted | own
            # The answer is no HTTP; a line of log about the failed request would name its sender.
            between.answer = Answer(204, {"a line without a colon\r\n": ""})
            assert sent("/ohttp?planted", known) == 502
    of_relay["SOTTO_GATEWAY"] = before_gateway
    with (
        proxy(tmp_path / "again", "relay", **of_relay) as said_by_relay,
        proxy(tmp_path / "gateway-proxy", "gateway", **of_gateway) as said_by_gateway,
    ):
        context = trusted(tmp_path / "again", relay_port)
        keys = served(f"{before_gateway}/ohttp-keys")
        assert keys == gateway.public_keys()
        publisher = ObliviousPublisher(
            f"https://localhost:{relay_port}/ohttp",
            f"https://{ORIGIN}",
            keys,
            context=context,
            timeout=300,
        )
        publisher.publish(3, message())
        publisher.close()
        assert len(target.requests) == 1
        gateway.stop()
        with pytest.raises(PublishError, match="status 502"):
            publisher.publish(3, message())
        publisher.close()
    for log in (said, said_by_relay, said_by_gateway):
        text = log.read_text()
        assert "planted" not in text
        assert "remote" not in text


def message() -> bytes:
    return encode_message(bytes(32), 3, [(0, [Row(0, bytes(16), os.urandom(16), 0, b"\1")])])
