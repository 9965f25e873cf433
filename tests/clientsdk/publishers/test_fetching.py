"""An app asks a collector for the plan that it pins: nothing else is taken, nothing is told."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from device_plans import metric, plan
from local_server import LocalServer, Request
from waiting import wait_until

from clientsdk import fetch_plan
from clientsdk.publishers import http
from clientsdk.publishers.http import HttpPublisher
from pipelines.collector.plans import ServedPlans
from sotto.errors import ParameterError, PlanError, PublishError
from sotto.plan.compiled import CompiledPlan

PLAN = plan(metric("colour"))
NEXT = replace(PLAN, version=PLAN.version + 1)
LATER = replace(NEXT, expires=NEXT.expires + 1000)
OTHER = replace(PLAN, version=PLAN.version + 2)


class Server(LocalServer):
    """Serves one document, whose length it does not say."""

    def __init__(self) -> None:
        super().__init__(self._serve)
        self.status, self.content = 200, ServedPlans([PLAN, LATER, OTHER]).body
        #: With what an answer goes on and on until the test has ended.
        self.drips = b""
        self.ended = threading.Event()

    def _serve(self, asked: Request) -> None:
        answer = asked.handler
        answer.send_response(self.status)
        headers = {"ETag": '"1"', "Set-Cookie": "a=b", "Retry-After": "7"}
        if b"\r" in self.drips:
            headers["Transfer-Encoding"] = "chunked"
        for header in headers.items():
            answer.send_header(*header)
        answer.end_headers()
        with contextlib.suppress(OSError):
            answer.wfile.write(self.content)
            while self.drips and not self.ended.wait(0.05):
                answer.wfile.write(self.drips)


@pytest.fixture
def server():
    with Server() as server:
        yield server
        server.ended.set()


def fetch(server: Server, *pinned, **options):
    expect = [each.fingerprint_hex for each in pinned]
    return fetch_plan(server.url, "fleet.example", expect=expect, **options)


def test_the_newest_pinned_version_is_returned(server):
    assert fetch(server, PLAN) == PLAN
    assert fetch(server, PLAN, NEXT) == LATER
    keyed = HttpPublisher(server.url, key="secret")
    assert fetch_plan(keyed, "fleet.example", expect=NEXT.fingerprint_hex.upper()) == LATER
    # Nothing about the app or the device, and the same of all.
    assert {frozenset(asked.headers) for asked in server.requests} == {
        frozenset(["Host", "Accept-Encoding"])
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"plans": 7}', b"\xff", b"[" * 100_000, b'{"plans":' + b"[" * 100_000],
)
def test_what_is_no_list_of_plans_is_an_error(server, content):
    server.content = content
    with pytest.raises(PublishError, match="list"):
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


def test_the_size_of_an_answer_is_bounded(server):
    server.content = b'{"plans":[' + b" " * (5 << 20) + b"]}"
    with pytest.raises(PublishError, match="list"):
        fetch(server, PLAN)


@pytest.fixture
def built(monkeypatch):
    """The documents that were built as plans: with their mechanisms, which takes long."""
    documents: list[bytes] = []
    build = CompiledPlan.from_json

    def counting(data: bytes, *name: str) -> CompiledPlan:
        documents.append(data)
        return build(data, *name)

    monkeypatch.setattr(CompiledPlan, "from_json", counting)
    return documents


def many(number: int, **changes: object) -> list[object]:
    document = json.loads(PLAN.to_json())
    return [{**document, "expires": PLAN.expires + each, **changes} for each in range(number)]


def test_no_document_is_built_but_one_with_an_expected_fingerprint(server, built):
    strange = many(500, version=PLAN.version + 7)
    documents = [*strange, json.loads(NEXT.to_json()), *many(20), json.loads(LATER.to_json())]
    server.content = json.dumps({"plans": documents}).encode()
    assert fetch(server, NEXT, PLAN) == LATER
    assert built == [LATER.to_json()]
    with pytest.raises(PlanError):
        fetch(server, replace(PLAN, plan="another"))
    assert len(built) == 1


def test_documents_that_only_seem_to_be_the_newest_are_passed_over(server, built):
    strange = [*many(3, owner=""), *many(2, extra=1), *many(2, expires="late"), *many(1, owner=7)]
    server.content = json.dumps({"plans": [*strange, json.loads(PLAN.to_json())]}).encode()
    assert fetch(server, PLAN) == PLAN
    assert len(built) <= 7


def test_the_deadline_also_ends_the_reading_of_what_was_served(server, built, monkeypatch):
    """Time passes with every document that is built; one more is never begun after the deadline."""
    server.content = json.dumps({"plans": many(500, owner="")}).encode()
    passed = iter(range(10**6))
    begun = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: begun + (next(passed) / 10 if built else 0.0))
    monkeypatch.setattr(http, "time", clock)
    with pytest.raises(PublishError, match="in time"):
        fetch(server, PLAN, timeout=1)
    assert 1 <= len(built) <= 11


@pytest.mark.parametrize("drips", [b" ", b"1\r\n \r\n"])
def test_an_answer_that_never_ends_is_given_up_at_the_deadline(server, drips):
    server.drips, server.content = drips, b""
    with pytest.raises(PublishError, match="in time"):
        fetch(server, PLAN, timeout=0.5)
    # The answer's end comes with the test's, not before: the deadline has ended the request.
    wait_until(lambda: "sotto-http" not in {each.name for each in threading.enumerate()})


@pytest.mark.parametrize("expect", ["", "12", [], ["0" * 63], "g" * 64])
def test_pins_are_fingerprints(server, expect):
    with pytest.raises(ParameterError, match="64 hexadecimal digits"):
        fetch_plan(server.url, "fleet.example", expect=expect)
    assert server.requests == []
