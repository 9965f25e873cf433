"""An app asks a collector for the plan that it pins: nothing else is taken, nothing is told."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from device_plans import metric, plan

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, fetch_plan
from pipelines.collector.plans import Plans
from sotto.errors import ParameterError, PlanError, PublishError

PLAN = plan(metric("colour"))
NEXT = replace(PLAN, version=PLAN.version + 1)
LATER = replace(NEXT, expires=NEXT.expires + 1000)
OTHER = replace(PLAN, version=PLAN.version + 2)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        time.sleep(self.server.pause)
        self.send_response(self.server.status)
        self.send_header("ETag", '"1"')
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Serves one document."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.status, self.content, self.pause = 200, Plans([PLAN, LATER, OTHER]).body, 0.0
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server():
    with Server() as server:
        yield server
        server.shutdown()


def fetch(server: Server, *pinned, **options):
    expect = [each.fingerprint_hex for each in pinned]
    return fetch_plan(server.url, "fleet.example", expect=expect, **options)


def test_the_newest_pinned_version_is_returned(server):
    assert fetch(server, PLAN) == PLAN
    assert fetch(server, PLAN, NEXT) == LATER
    assert fetch_plan(server.url, "fleet.example", expect=NEXT.fingerprint_hex.upper()) == LATER


def test_an_app_takes_what_it_has_fetched(server):
    found = fetch(server, NEXT)
    pinned = NEXT.fingerprint_hex
    client = Client(found, state=NO_LIFETIME_BOUND, publisher=MemoryPublisher(), expect=pinned)
    assert client.plan == LATER
    client.close()


def test_all_devices_send_the_same(server):
    fetch(server, PLAN)
    fetch(server, PLAN)
    first, second = server.asked
    assert first == second
    host = server.url.removeprefix("http://")
    assert first == ("/v1/plans/fleet.example", {"Host": host, "Accept-Encoding": "identity"})


def test_what_is_not_pinned_is_not_taken(server):
    with pytest.raises(PlanError, match="3 plans, and none with a fingerprint"):
        fetch(server, replace(PLAN, plan="another"))


def test_a_document_that_was_changed_is_another_plan(server):
    document = json.loads(PLAN.to_json())
    document["ceilings"] = {"period": 10**12 - 1, "lifetime": 10**12}
    server.content = json.dumps({"plans": [document]}).encode()
    with pytest.raises(PlanError):
        fetch(server, PLAN)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"plans": 7}', b"\xff", b"[" * 100_000, b'{"plans":' + b"[" * 100_000],
)
def test_what_is_no_list_of_plans_is_an_error(server, content):
    server.content = content
    with pytest.raises(PublishError, match="no list of plans"):
        fetch(server, PLAN)


@pytest.mark.parametrize("each", [7, None, [], {}, {"format": 99}, {"format": float("nan")}])
def test_plans_of_other_formats_are_passed_over(server, each):
    documents = [each, json.loads(PLAN.to_json()), {"plans": [each]}]
    server.content = json.dumps({"plans": documents}).encode()
    assert fetch(server, PLAN) == PLAN


def test_a_refusal_is_an_error(server):
    server.status = 404
    with pytest.raises(PublishError, match="status 404") as caught:
        fetch(server, PLAN)
    assert caught.value.retry_after == 7


def test_size_and_time_are_bounded(server):
    server.content = b'{"plans":[' + b" " * (5 << 20) + b"]}"
    with pytest.raises(PublishError, match="no list of plans"):
        fetch(server, PLAN)
    server.pause = 600
    begin = time.monotonic()
    with pytest.raises(PublishError, match="in time"):
        fetch(server, PLAN, timeout=0.5)
    assert time.monotonic() - begin < 300


@pytest.mark.parametrize("expect", ["", "12", [], ["0" * 63], "g" * 64])
def test_pins_are_fingerprints(server, expect):
    with pytest.raises(ParameterError, match="64 hexadecimal digits"):
        fetch_plan(server.url, "fleet.example", expect=expect)
    assert server.asked == []
