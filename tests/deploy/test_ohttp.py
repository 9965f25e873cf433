"""Oblivious HTTP from devices to estimates: relay, the gateway in Go, collector, with faults."""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from oblivious import Relay, prefixed

from clientsdk.publishers.binary_http import decode_response, encode_request
from clientsdk.publishers.encapsulation import KeyConfiguration
from clientsdk.publishers.ohttp import ObliviousPublisher
from clientsdk.testing import FakeClock, SeededClient
from deploy.errors import DeployError, MissingToolError, UnavailableError
from deploy.ohttp import service
from deploy.ohttp.service import LocalGateway
from deploy.ports import free_ports
from sotto.clocks import now_ms
from sotto.errors import PublishError
from sotto.log.reader import partitions
from sotto.log.writer import LogReader
from sotto.plan.compile import load_plan
from sotto.wire.format import Row, encode_message, pseudonym_of

pytestmark = pytest.mark.slow

ORIGIN = "telemetry.example"
HOUR = 3_600_000
PLAN = """\
collector: fleet.example
plan: trial
version: 1
owner: telemetry@fleet.example
expires: 2090-01-01
period: 7d
ceilings: {period: 12, lifetime: 12}
resolution: 1h
metrics:
  colour:
    {type: category, domain: [red, blue], outside: other, window: 364d, repeat: {once: first},
     ladder: [{epsilon: 4}]}
"""
DEVICES = 60


@pytest.fixture(scope="module", autouse=True)
def built():
    try:
        service.program()
    except (MissingToolError, UnavailableError) as error:
        pytest.skip(str(error))


@pytest.fixture
def gateway(tmp_path):
    gateway = LocalGateway(tmp_path / "gateway")
    yield gateway
    gateway.stop()


class Collector:
    """``sotto collect`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.said = folder / "collector.log"
        (folder / "plan.yaml").write_text(PLAN, encoding="ascii")
        self.key = self.sotto("collect", "--keys", "keys.json", "--new-key", "app").strip()

    def sotto(self, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "sotto.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(service.ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def start(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "sotto.cli", "collect"]
        command += ["--plan", "plan.yaml", "--log", "log", "--keys", "keys.json"]
        with open(self.said, "ab") as said:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(service.ROOT)},
                stdout=said,
                stderr=said,
            )
        served(f"{self.url}/healthz")

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
            self.process = None


@pytest.fixture
def collector(tmp_path):
    collector = Collector(tmp_path)
    yield collector
    collector.stop()


@pytest.fixture
def afterwards():
    """What is closed after a test."""
    with contextlib.ExitStack() as stack:
        yield stack


def test_from_devices_to_estimates_with_faults(tmp_path, gateway, collector, afterwards):
    """Nothing is lost or counted twice, and no party sees more than its part."""
    seeds = {1: os.urandom(32), 2: os.urandom(32)}
    gateway.folder.mkdir()
    gateway.write_keys({1: seeds[1]})
    gateway.start(ORIGIN, collector.url)
    pinned = gateway.public_keys()

    relay = afterwards.enter_context(Relay(f"127.0.0.1:{gateway.port}"))
    afterwards.callback(relay.shutdown)

    def publisher(keys: bytes, key: str = collector.key) -> ObliviousPublisher:
        made = ObliviousPublisher(relay.url, f"https://{ORIGIN}", keys, key=key, timeout=30)
        afterwards.callback(made.close)
        return made

    compiled = load_plan(tmp_path / "plan.yaml").compiled
    clock = FakeClock(now_ms() - 6 * HOUR)
    shipped = publisher(pinned)

    class Device(SeededClient):
        """Its publisher changes with an update of the app."""

        def __init__(self, number: int) -> None:
            self.relayed = _Changing(shipped)
            super().__init__(
                compiled, seed=number, clock=clock, publisher=self.relayed, leaks_values=True
            )
            assert self.record("colour", "red" if number % 3 else "blue")

    devices = [Device(number) for number in range(DEVICES)]
    clock.advance(hours=6)
    turn = iter(devices)

    def fails(device: Device, reason: str) -> None:
        flushed = device.flush()
        assert flushed.sent == 0
        assert reason in str(flushed.error)

    # The collector is away: the gateway says so, encrypted.
    first = next(turn)
    fails(first, "the collector answered with status 502")
    collector.start()
    first.relayed.now = publisher(pinned, "nobodys")
    fails(first, "the collector answered with status 401")
    first.relayed.now = shipped
    assert first.flush().sent == 1
    # The gateway is gone.
    second = next(turn)
    gateway.stop()
    fails(second, "the relay or gateway answered with status 502")
    gateway.start(ORIGIN, collector.url, gateway.port)
    assert second.flush().sent == 1
    # The answer is lost after the message was taken: it comes again, and counts once.
    third = next(turn)
    relay.answer = lambda body: (504, {}, relay.forward(body)[2][:0])
    fails(third, "the relay or gateway answered with status 504")
    relay.answer = relay.forward
    assert third.flush().sent == 1
    # Two keys for a while, then the new one alone: apps that were not updated wait.
    gateway.stop()
    gateway.write_keys({2: seeds[2], 1: seeds[1]})
    gateway.start(ORIGIN, collector.url, gateway.port)
    both = gateway.public_keys()
    assert KeyConfiguration.parse(both).key_id == 2
    fourth, fifth = next(turn), next(turn)
    fifth.relayed.now = publisher(both)
    assert fourth.flush().sent == fifth.flush().sent == 1
    gateway.stop()
    gateway.write_keys({2: seeds[2]})
    gateway.start(ORIGIN, collector.url, gateway.port)
    assert gateway.public_keys() != pinned
    sixth = next(turn)
    fails(sixth, "status 400; does the app have its current keys?")
    updated = publisher(gateway.public_keys())
    for device in (sixth, *turn):
        device.relayed.now = updated
        assert device.flush().sent == 1

    collector.sotto("aggregate", "--plan", "plan.yaml", "--log", "log", "--state", "state")
    table = collector.sotto("estimates", "--state", "state", "--format", "csv").splitlines()
    rows = {row["item"]: row for row in csv.DictReader(table)}
    assert {row["n"] for row in rows.values()} == {str(DEVICES)}, table
    assert float(rows["red"]["value"]) > float(rows["blue"]["value"]) > 0.2, table

    stored = [
        record.body
        for partition in partitions(collector.folder / "log")
        for record in LogReader(partition).records()
    ]
    assert len(stored) == DEVICES + 1
    pseudonyms = {pseudonym_of(message) for message in stored}
    assert len(pseudonyms) == DEVICES
    seen = b"".join(passed.body + repr(passed.headers).encode() for passed in relay.passed)
    seen += b"".join(answer for _, answer in relay.answers)
    secrets = [*pseudonyms, compiled.fingerprint, collector.key.encode(), ORIGIN.encode()]
    assert not any(secret in seen for secret in secrets)
    assert len({len(passed.body) for passed in relay.passed}) == 1
    assert {len(answer) for status, answer in relay.answers if status == 200} == {512 + 32}
    assert gateway.log_file.read_bytes() == b""
    assert "127.0.0.1" not in collector.said.read_text().replace(collector.url, "")


class _Changing:
    """A publisher that can be replaced."""

    def __init__(self, now: ObliviousPublisher) -> None:
        self.now = now

    def publish(self, shard: int, message: bytes) -> None:
        self.now.publish(shard, message)

    def close(self) -> None:
        self.now.close()


class Target(ThreadingHTTPServer):
    """Stands for the collector: keeps what it is asked, and answers as a test says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TargetHandler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status, self.fields, self.content = 204, {}, b""
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _TargetHandler(BaseHTTPRequestHandler):
    server: Target
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        length = {} if self.server.status == 204 else {"Content-Length": len(self.server.content)}
        for name, value in {**length, **self.server.fields}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def target():
    with Target() as server:
        yield server
        server.shutdown()


def post(gateway: LocalGateway, body: bytes, **headers: str) -> tuple[int, bytes]:
    """Send bytes to the gateway as a relay does."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
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
    return encode_request("https", authority, path, fields, b"content")


def test_the_gateway_forwards_the_message_and_nothing_about_who_sent_it(gateway, target):
    gateway.start(ORIGIN, f"http://127.0.0.1:{target.server_port}")
    fields = [
        ("content-type", "application/octet-stream"),
        ("authorization", "Bearer key"),
        ("user-agent", "a phone"),
        ("cookie", "who=me"),
        ("x-forwarded-for", "203.0.113.7"),
    ]
    outer = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7", "Via": "1.1 relay"}
    assert asked(gateway, report(fields), **outer) == (204, {}, b"")
    assert target.asked == [
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


def test_the_gateway_takes_chacha20_too(gateway, target):
    gateway.start(ORIGIN, f"http://127.0.0.1:{target.server_port}")
    keys = gateway.public_keys()[:-1] + b"\3"
    assert KeyConfiguration.parse(keys).aead.value == 3
    assert asked(gateway, report(), keys).status == 204


def test_what_the_collector_answers_comes_back_and_nothing_of_its_other_fields(gateway, target):
    gateway.start(ORIGIN, f"http://127.0.0.1:{target.server_port}")
    target.status, target.content = 503, b'{"title":"overloaded"}'
    target.fields = {
        "Retry-After": "5",
        "Content-Type": "application/problem+json",
        "Set-Cookie": "who=me",
        "Server": "python",
    }
    expected = {"retry-after": "5", "content-type": "application/problem+json"}
    assert asked(gateway, report()) == (503, expected, target.content)
    target.status, target.fields = 307, {"Location": "http://127.0.0.1:1/"}
    assert asked(gateway, report()).status == 307
    assert len(target.asked) == 2


def test_the_gateway_forwards_to_its_collector_alone_and_survives_what_is_damaged(gateway, target):
    gateway.start(ORIGIN, f"http://127.0.0.1:{target.server_port}")
    for other in ("127.0.0.1:22", "metadata.internal", f"{ORIGIN}:81", f"{ORIGIN}@other", ""):
        assert asked(gateway, report(authority=other)).status in (400, 403), other
    for other in ("/v1/plans/x", "/", "/v1/reports?key=1", "/v1/../v1/reports"):
        assert asked(gateway, report(path=other)).status == 403, other
    control = prefixed(b"POST", b"https", ORIGIN.encode(), b"/v1/reports")
    get = b"\0" + prefixed(b"GET", b"https", ORIGIN.encode(), b"/v1/reports") + b"\0\0\0"
    huge = b"\xff" * 8
    damaged = (
        *(b"", b"\0", b"\1\x40\xc8", b"\2" + control, get, bytes(1024)),
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
    assert target.asked == []
    assert post(gateway, sent)[0] == 200
    assert len(target.asked) == 1
    assert gateway.log_file.read_bytes() == b""


def test_many_devices_at_once_with_two_keys(gateway, target):
    gateway.folder.mkdir()
    gateway.write_keys({1: os.urandom(32), 2: os.urandom(32)})
    gateway.start(ORIGIN, f"http://127.0.0.1:{target.server_port}")
    first = gateway.public_keys()
    second = first[len(first) // 2 :]
    statuses: list[int] = []

    def device(keys: bytes) -> None:
        statuses.extend(asked(gateway, report(), keys).status for _ in range(25))

    threads = [threading.Thread(target=device, args=(keys,)) for keys in (first, second) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [204] * 200


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "line 1: a key is an identifier and a seed"),
        ("256 " + 64 * "0", "line 1: an identifier is a number from 0 to 255"),
        (f"1 {64 * '0'}\n1 {64 * '1'}", "line 2: an identifier is a number"),
        ("1 00", "line 1: a seed has 64 hexadecimal digits"),
    ],
)
def test_a_damaged_file_of_keys_is_an_error_without_the_keys(gateway, content, reason):
    gateway.folder.mkdir()
    gateway.key_file.write_text(content)
    with pytest.raises(DeployError, match=reason):
        gateway.start(ORIGIN, "http://127.0.0.1:1")
    assert not gateway.running
    assert "0000" not in gateway.log_file.read_text()


@contextlib.contextmanager
def caddy(folder: Path, name: str, **settings: str):
    """Run Caddy with one of the shipped configurations."""
    program = shutil.which("caddy")
    assert program is not None
    folder.mkdir()
    places = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with open(folder / "caddy.log", "wb") as log:
        process = subprocess.Popen(
            [program, "run", "--config", str(service.SOURCE.parent / f"Caddyfile.{name}")],
            env={**os.environ, **places, **settings},
            stdout=log,
            stderr=log,
        )
    try:
        yield folder / "caddy.log"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="no caddy on the path")
def test_the_shipped_proxies_hand_on_what_is_encrypted_and_nothing_else(tmp_path, gateway, target):
    gateway.start(ORIGIN, f"http://127.0.0.1:{target.server_port}")
    relay_port, gateway_port = free_ports(2)
    before_gateway = f"http://127.0.0.1:{gateway_port}"
    of_gateway = {"SOTTO_GATEWAY": before_gateway, "SOTTO_GATEWAY_PORT": str(gateway.port)}
    with Target() as between:
        of_relay = {
            "SOTTO_RELAY": f"https://localhost:{relay_port}",
            "SOTTO_GATEWAY": f"http://127.0.0.1:{between.server_port}",
        }
        with caddy(tmp_path / "relay", "relay", **of_relay) as said:
            context = trusted(tmp_path / "relay", relay_port)
            planted = ("Cookie", "User-Agent", "X-Forwarded-For", "X-Real-IP", "Forwarded", "Via")
            wanted = {"Content-Type": "message/ohttp-req"}
            for path, headers, status in (
                ("/ohttp", {**dict.fromkeys(planted, "planted"), **wanted}, 204),
                ("/ohttp", {"Content-Type": "text/plain"}, 404),
                ("/other", wanted, 404),
            ):
                connection = http.client.HTTPSConnection(
                    "localhost", relay_port, context=context, timeout=60
                )
                connection.request("POST", path, b"encrypted", headers)
                assert connection.getresponse().status == status
                connection.close()
            ((_, path, headers, body),) = between.asked
            assert (path, body) == ("/gateway", b"encrypted")
            assert headers.pop("Accept-Encoding") == "gzip"
            own = {"Host": f"127.0.0.1:{between.server_port}", "Content-Length": "9"}
            # An empty one keeps Caddy from naming itself.
            headers.pop("User-Agent", "")
            assert headers == wanted | own
        between.shutdown()
    of_relay["SOTTO_GATEWAY"] = before_gateway
    with (
        caddy(tmp_path / "again", "relay", **of_relay) as said_by_relay,
        caddy(tmp_path / "gateway-proxy", "gateway", **of_gateway) as said_by_gateway,
    ):
        context = trusted(tmp_path / "again", relay_port)
        keys = served(f"{before_gateway}/ohttp-keys")
        assert keys == gateway.public_keys()
        publisher = ObliviousPublisher(
            f"https://localhost:{relay_port}/ohttp",
            f"https://{ORIGIN}",
            keys,
            context=context,
            timeout=60,
        )
        publisher.publish(3, message())
        publisher.close()
        assert len(target.asked) == 1
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


def served(url: str) -> bytes:
    """What is at a URL, once there is somebody."""
    for _ in range(1200):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.05)
    return pytest.fail(f"nobody serves {url}")


def trusted(folder: Path, port: int) -> ssl.SSLContext:
    """What trusts Caddy's own authority, once Caddy answers."""
    root = folder / "caddy/pki/authorities/local/root.crt"
    for _ in range(1200):
        if root.exists():
            context = ssl.create_default_context(cafile=root)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as raw:
                context.wrap_socket(raw, server_hostname="localhost").close()
                return context
        time.sleep(0.05)
    return pytest.fail("Caddy does not answer")
