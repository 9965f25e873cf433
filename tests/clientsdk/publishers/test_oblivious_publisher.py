"""Messages through a relay: it sees none of them, and nobody but the gateway can say they came."""

from __future__ import annotations

import os
import socket
import sys

import pytest
from device_plans import metric, plan, reporter
from local_server import Answer
from oblivious import Behind, Relay, known, varint

from clientsdk import fetch_plan
from clientsdk.publishers.ohttp import KeyConfiguration, ObliviousPublisher
from sotto.errors import ParameterError, PublishError
from sotto.wire.batch import join_messages, split_messages
from sotto.wire.format import Row, encode_message

COLLECTOR = "https://telemetry.example"
PLAN = plan(metric("colour"))


def message(pseudonym: bytes = b"p" * 16, rows: int = 1) -> bytes:
    made = [Row(0, pseudonym, os.urandom(16), 0, b"\1") for _ in range(rows)]
    return encode_message(bytes(range(32)), 3, [(0, made)])


@pytest.fixture
def behind():
    return Behind()


@pytest.fixture
def relay(behind):
    with Relay() as server:
        server.given = behind
        yield server


@pytest.fixture
def publisher(relay, behind):
    publisher = ObliviousPublisher(
        relay.url, COLLECTOR, behind.gateway.configuration, key="secret", timeout=300
    )
    yield publisher
    publisher.close()


def test_a_plan_is_fetched_through_the_relay_and_no_connection_goes_past_it(
    publisher, relay, behind, monkeypatch
):
    """The collector sees the relay's address alone, and the relay neither plan nor collector."""
    served = b'{"plans":[' + PLAN.to_json() + b"]}"
    section = varint(len(served)) + served
    reached = []
    connect = socket.create_connection

    def noting(address, *more, **options):
        reached.append(address)
        return connect(address, *more, **options)

    monkeypatch.setattr(socket, "create_connection", noting)
    publisher.publish(3, message())
    behind.answer = b"\1" + varint(200) + b"\0" + section + b"\0"
    found = fetch_plan(publisher, PLAN.collector, expect=PLAN.fingerprint_hex, timeout=300)
    assert found == PLAN
    assert set(reached) == {("127.0.0.1", relay.server_port)}
    path = b"/v1/plans/" + PLAN.collector.encode()
    head = b"\0\3GET\5https\x11telemetry.example" + bytes([len(path)]) + path
    # Neither fields, of which the app's key would be one, nor content.
    assert behind.requests[1] == (head + b"\0\0\0").ljust(1024, b"\0")
    # To the relay it is a request like that of a message, and has a connection of its own.
    report, asked = relay.requests
    assert len(asked.body) == len(report.body)
    assert (asked.method, asked.path, asked.headers) == (report.method, report.path, report.headers)
    assert asked.client != report.client
    behind.answer = known(404)
    with pytest.raises(PublishError, match="404"):
        fetch_plan(publisher, PLAN.collector, expect=PLAN.fingerprint_hex, timeout=300)


def messages_in(request: bytes) -> list[bytes]:
    """The messages in a decrypted request without long fields."""
    head = b"\0\4POST\5https\x11telemetry.example\x0b/v1/reports"
    assert request.startswith(head)
    fields = b"\x0ccontent-type\x18application/octet-stream\x0dauthorization\x0dBearer secret"
    rest = request.removeprefix(head)
    assert rest[2:].startswith(fields), "other fields than the type and the app's key"
    rest = rest[2:].removeprefix(fields)
    length = int.from_bytes(rest[:2], "big") & 0x3FFF
    assert not rest[2 + length :].strip(b"\0")
    return split_messages(rest[2 : 2 + length])


def test_the_relay_sees_no_byte_of_a_message(relay, behind, publisher):
    sent = message()
    publisher.publish(3, sent)
    (passed,) = relay.requests
    assert messages_in(behind.requests[0]) == [sent]
    assert (passed.method, passed.path) == ("POST", "/relay")
    assert passed.headers == {
        "Host": f"127.0.0.1:{relay.server_port}",
        "Accept-Encoding": "identity",
        "Content-Length": "1079",
        "Content-Type": "message/ohttp-req",
    }
    seen = repr(passed).encode() + passed.body + relay.answers[0].body
    for part in (b"p" * 16, bytes(range(32)), b"secret", b"telemetry.example", sent[:8]):
        assert part not in seen


def test_all_ordinary_messages_have_one_length(relay, publisher):
    for rows in (1, 2, 5, 10):
        publisher.publish(3, message(rows=rows))
    assert {len(passed.body) for passed in relay.requests} == {1024 + 55}


@pytest.mark.parametrize(
    ("answer", "reason", "hint"),
    [
        (known(503, b"retry-after", b"120 "), "the collector answered with status 503", 120.0),
        (known(429, b"retry-after", b"soon"), "the collector answered with status 429", None),
        (known(401), "the collector answered with status 401: it asks for the app's key", None),
        (known(307), "the collector answered with status 307", None),
        (b"\0" * 9, "the gateway's answer cannot be read: a binary HTTP", None),
        (b"", "the gateway's answer cannot be read: a binary HTTP response ends", None),
    ],
)
def test_what_the_collector_answers(behind, publisher, answer, reason, hint):
    behind.answer = answer
    with pytest.raises(PublishError, match=reason) as caught:
        publisher.publish(3, message())
    assert caught.value.retry_after == hint
    behind.answer = known(204)
    publisher.publish(3, message())


@pytest.mark.parametrize(
    ("status", "headers", "reason", "hint"),
    [
        (400, {}, "the relay or gateway answered with status 400; does the app have its", None),
        (401, {}, "the relay or gateway answered with status 401; does the app have its", None),
        (503, {"Retry-After": "7"}, "the relay or gateway answered with status 503$", 7.0),
        (502, {}, "the relay or gateway answered with status 502$", None),
        (307, {"Location": "/other"}, "the relay or gateway answered with status 307$", None),
    ],
)
def test_what_relay_and_gateway_answer(behind, publisher, status, headers, reason, hint):
    change, behind.change = behind.change, lambda sealed: Answer(status, headers, b"{}")
    with pytest.raises(PublishError, match=reason) as caught:
        publisher.publish(3, message())
    assert caught.value.retry_after == hint
    behind.change = change
    publisher.publish(3, message())


def of_another_request(behind: Behind) -> bytes:
    sent, _ = KeyConfiguration.parse(behind.gateway.configuration).encapsulate(b"request")
    return behind.gateway.decapsulate(sent)[1](known(204))


@pytest.mark.parametrize(
    "forged",
    [
        lambda behind, sealed: b"",
        lambda behind, sealed: known(204),
        lambda behind, sealed: sealed[:-1] + bytes([sealed[-1] ^ 1]),
        lambda behind, sealed: sealed[:20],
        lambda behind, sealed: of_another_request(behind),
        lambda behind, sealed: sealed + bytes(1 << 20),
    ],
    ids=["nothing", "in the clear", "changed", "cut", "replayed", "too long"],
)
def test_a_relay_cannot_say_that_a_message_was_taken(behind, publisher, forged):
    change, behind.change = behind.change, lambda sealed: Answer(200, body=forged(behind, sealed))
    with pytest.raises(PublishError, match="gateway"):
        publisher.publish(3, message())
    behind.change = lambda sealed: Answer()
    with pytest.raises(PublishError, match="gateway"):
        publisher.publish(3, message())
    behind.change = change
    publisher.publish(3, message())


def test_a_client_sends_the_same_message_again_and_only_the_gateway_can_tell(
    relay, behind, publisher
):
    client = reporter(publisher)
    client.clock.advance(hours=2)
    behind.answer = known(503)
    assert client.flush().error is not None
    behind.answer = known(204)
    assert client.flush().sent == 1
    first, again = behind.requests
    assert messages_in(first) == messages_in(again)
    refused, taken = (passed.body for passed in relay.requests)
    assert refused[:7] == taken[:7]
    blocks = {refused[at : at + 16] for at in range(7, len(refused) - 15)}
    assert not any(taken[at : at + 16] in blocks for at in range(7, len(taken) - 15))


def test_a_connection_that_was_closed_meanwhile_is_made_anew_with_a_new_encapsulation(
    relay, behind, publisher
):
    behind.change = lambda sealed: Answer(200, {"Connection": "close"}, sealed)
    for _ in range(3):
        publisher.publish(3, message())
    assert len({passed.body for passed in relay.requests}) == 3


@pytest.mark.parametrize(
    ("relay", "collector", "keys"),
    [
        ("http://relay.example/ohttp", COLLECTOR, None),
        ("https://relay.example/ohttp", "http://telemetry.example", None),
        ("relay.example", COLLECTOR, None),
        ("https://relay.example/ohttp", COLLECTOR, b"keys"),
        ("https://relay.example/ohttp", COLLECTOR, "AQAg"),
    ],
)
def test_other_arguments_are_refused(behind, relay, collector, keys):
    given = behind.gateway.configuration if keys is None else keys
    with pytest.raises(ParameterError, match=r"must be such as 'https|must begin with|keys must"):
        ObliviousPublisher(relay, collector, given)


def test_a_collector_is_named_with_its_port_and_path(relay, behind):
    publisher = ObliviousPublisher(
        relay.url, "https://[2001:db8::1]:8443/sotto/", behind.gateway.configuration
    )
    publisher.publish(3, sent := message())
    publisher.close()
    (request,) = behind.requests
    assert b"\5https\x12[2001:db8::1]:8443\x11/sotto/v1/reports" in request
    assert join_messages([sent]) in request


def test_without_pyhpke_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("clientsdk.publishers.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyhpke", None)
    with pytest.raises(ModuleNotFoundError, match="sottovoce-tools"):
        import clientsdk.publishers.ohttp  # noqa: F401
