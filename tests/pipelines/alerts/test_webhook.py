"""Alerts arrive once, at a webhook on loopback; or later, with a reason."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from certificates import Authority
from moving_results import MovingResults, when

from pipelines.alerts import webhook
from pipelines.alerts.configuration import Configuration, MetricWatched, WebhookFile
from pipelines.alerts.kept import Alert
from pipelines.alerts.watch import AlertWatch
from pipelines.alerts.webhook import NotificationError, Webhook, payload

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


#: An alert, as the file of alerts has it.
ALERT = {
    "raised": NOW,
    "collector": "tests.example",
    "plan": "moving",
    "metric": "colour",
    "segment": "",
    "kind": "share",
    "unit": "share",
    "revision": 4,
    "direction": "up",
    "since": when(30),
    "window_start": when(31),
    "window_end": when(32),
    "expected": 0.2,
    "change": 0.1,
    "low": 0.06,
    "high": 0.14,
    "sigma": 5,
    "false_alarms_per_year": 1,
    "figures": 3,
    "windows_between_false_alarms": 156.5,
    "windows": 2,
    "predicted_windows": 3,
    "news": True,
}


def alert(item="red", id="a1"):
    return Alert.model_validate({**ALERT, "item": item, "id": id})


class Receiver(BaseHTTPRequestHandler):
    """Notes what is posted, and answers as the server says."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, dict(self.headers), body))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/other")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def receiving(*answers: int, context: ssl.SSLContext | None = None) -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.received, server.answers = [], list(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def url(server, scheme="http"):
    return f"{scheme}://localhost:{server.server_port}/hook?of=us"


def test_a_webhook_is_signed_as_the_standard_has_it(tmp_path):
    secret = bytes(range(32))
    file = tmp_path / "secret"
    file.write_text(f"whsec_{base64.b64encode(secret).decode()}\n")
    with receiving() as server:
        Webhook(WebhookFile(url=url(server), secret_file=file)).send(alert(), NOW)
    ((path, headers, body),) = server.received
    assert path == "/hook?of=us"
    assert json.loads(body) == payload(alert())
    assert json.loads(body)["data"]["change"] == 0.1
    assert headers["webhook-id"] == "a1"
    assert headers["webhook-timestamp"] == "1767323040"
    signed = hmac.digest(secret, b"a1.1767323040." + body, hashlib.sha256)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"


@pytest.mark.parametrize(("status", "why"), [(302, "redirects are not followed"), (500, "500")])
def test_an_answer_that_is_no_success_is_an_error(status, why):
    with receiving(status) as server:
        hook = Webhook(WebhookFile(url=url(server)))
        with pytest.raises(NotificationError, match=why):
            hook.send(alert(), NOW)
    assert [path for path, *_ in server.received] == ["/hook?of=us"]
    assert "webhook-signature" not in server.received[0][1]
    with pytest.raises(NotificationError, match="localhost: Connection refused"):
        hook.send(alert(), NOW)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """What a server on this machine has, and who trusts it."""
    made = Authority(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*made.certify("localhost"))
    return SimpleNamespace(server=server, client=ssl.create_default_context(cafile=str(made.file)))


def test_a_certificate_is_checked(authority):
    with receiving(context=authority.server) as server:
        to = WebhookFile(url=url(server, "https"))
        with pytest.raises(NotificationError, match="CERTIFICATE_VERIFY"):
            Webhook(to).send(alert(), NOW)
        Webhook(to, authority.client).send(alert(), NOW)
    assert len(server.received) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_answer_that_drips_is_given_up_after_a_time(monkeypatch, scheme, authority):
    """A byte at a time, instead of a status or of a TLS handshake."""
    monkeypatch.setattr(webhook, "TIMEOUT", 0.5)
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 2" if scheme == "http" else b"\x16\x03\x03")
                while not stopped.wait(0.05):
                    connection.sendall(b"x" if scheme == "http" else b"\x40")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        to = WebhookFile(url=f"{scheme}://localhost:{server.getsockname()[1]}/hook")
        with pytest.raises(NotificationError, match=r"localhost: no answer within 0\.5 s"):
            Webhook(to, authority.client).send(alert(), NOW)
        stopped.set()
        thread.join()


class Clock:
    """Says what time it is to be."""

    now = NOW

    def __call__(self):
        return self.now


def test_what_is_not_delivered_is_tried_again_and_arrives_once(tmp_path):
    results = MovingResults(tmp_path)
    results.write({"red": [(0.2, 0.02)] * 20 + [(0.5, 0.02)]})
    clock, warnings = Clock(), []
    with receiving(503, 500) as server:
        configuration = Configuration.model_validate({"notify": {"webhook": {"url": url(server)}}})
        path = tmp_path / "alerts.json"
        watch = AlertWatch(results.reader(), configuration, path, clock=clock, warn=warnings.append)
        assert watch.look().undelivered == 1
        # Too early to try again.
        assert watch.deliver() == 1
        assert len(server.received) == 1
        clock.now += timedelta(seconds=10)
        assert watch.deliver() == 1
        clock.now += timedelta(seconds=20)
        assert watch.deliver() == 0
        clock.now += timedelta(days=1)
        # Another process that has the same file.
        assert (
            AlertWatch(results.reader(), configuration, path, clock=clock).look().undelivered == 0
        )
    ids = {headers["webhook-id"] for _, headers, _ in server.received}
    bodies = {body for *_, body in server.received}
    assert (len(server.received), len(ids), len(bodies)) == (3, 1, 1)
    assert warnings == [
        "an alert is not delivered: localhost answered 503",
        "an alert is not delivered: localhost answered 500",
    ]
    (delivery,) = watch.kept().alerts[0].deliveries.values()
    assert (delivery.attempts, delivery.problem) == (3, None)
    # Of a channel that is not configured any more nothing is pending.
    kept = watch.kept()
    kept.alerts[0].deliveries["webhook"].next = NOW
    path.write_text(kept.model_dump_json())
    quiet = AlertWatch(results.reader(), Configuration(), path, clock=clock)
    assert quiet.deliver() == 0


def test_one_alert_that_is_refused_does_not_hold_up_the_others(tmp_path):
    results = MovingResults(tmp_path)
    jump = [(0.2, 0.02)] * 20 + [(0.5, 0.02)]
    results.write({"blue": jump, "green": jump, "red": jump})
    with receiving(400) as server:
        configuration = Configuration.model_validate({"notify": {"webhook": {"url": url(server)}}})
        path = tmp_path / "alerts.json"
        watch = AlertWatch(results.reader(), configuration, path, warn=lambda text: None)
        assert watch.look().undelivered == 1
    items = [json.loads(body)["data"]["item"] for *_, body in server.received]
    assert items == ["blue", "green", "red"]


def test_a_watch_that_runs_sends_what_comes(tmp_path):
    results = MovingResults(tmp_path)
    watched = (MetricWatched(metric="colour", items=("red",)),)
    stopped, arrived, warnings = threading.Event(), threading.Event(), []

    def send(alert, now):
        assert alert.item == "red"
        arrived.set()

    watch = AlertWatch(
        results.reader(),
        Configuration(metrics=watched),
        tmp_path / "alerts.json",
        send,
        warn=warnings.append,
    )
    thread = threading.Thread(target=watch.run, args=(stopped, 0.02))
    thread.start()
    try:
        # There are no results yet, which is said once and not the end.
        results.write({"red": [(0.2, 0.02)] * 20})
        results.write({"red": [(0.5, 0.02)]}, first=20)
        assert arrived.wait(600)
    finally:
        stopped.set()
        thread.join()
    assert len(warnings) == len(set(warnings))
    assert watch.last is not None
    assert len(watch.last.kept) == 1
