"""HTTP between a device and a collector: the SDK's side, the collector's side, and the waits."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from clientsdk.publishers import http
from clientsdk.sending import backoff
from pipelines.collector.application import application
from pipelines.collector.commits import GroupCommit
from pipelines.collector.keys import AppKeys
from pipelines.collector.limits import Limits
from pipelines.collector.plans import ServedPlans
from sotto.errors import PlanError, PublishError
from sotto.plan.compiled import CompiledPlan, canonical
from tests import asgi_client
from tests.conformance import files
from tests.local_server import Answer, LocalServer, Request
from tests.pipelines.memory_store import MemoryStore

#: Headers that HTTP itself needs.
_PLUMBING = {"host", "content-length", "accept-encoding", "connection"}
_KEY = "an-app-key"
_PLANS = ("device", "every")
#: Headers of answers that are compared.
_ANSWERED = ("content-type", "www-authenticate", "access-control-allow-origin")


# The device's side, against a server that answers as a vector says.


class _Server(LocalServer):
    """Answers one request after another as a vector says; closes a connection where it says so."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        super().__init__(self._next)
        self._answers = list(answers)

    def _next(self, asked: Request) -> Answer | None:
        answer = self._answers.pop(0)
        if "status" not in answer:
            return None
        asked.handler.close_connection = answer.get("closes", False)
        return Answer(answer["status"], answer.get("headers", {}), answer.get("body", "").encode())

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The requests as vectors have them, with the numbers of their connections."""
        connections = list(dict.fromkeys(each.handler for each in self.requests))
        return [
            {
                "connection": 1 + connections.index(each.handler),
                "method": each.method,
                "path": each.path,
                "headers": {
                    name.lower(): value
                    for name, value in sorted(each.headers.items())
                    if name.lower() not in _PLUMBING
                },
                "body": each.body.hex(),
            }
            for each in self.requests
        ]


def _exchange(case: dict[str, Any]) -> dict[str, Any]:
    """Publish the messages of a case; return the requests that came, and what became of each."""
    outcomes: list[dict[str, Any]] = []
    # However slow this machine is, a connection is kept because of what it is for.
    kept = mock.patch.object(http, "_IDLE", 3600.0)
    with _Server(case["answers"]) as server, closing(_publisher(case, server.url)) as publisher:
        for number, message in enumerate(case["messages"]):
            try:
                with kept:
                    publisher.publish(0, bytes.fromhex(message))
                outcomes.append({"taken": True})
            except PublishError as error:
                hint = getattr(error, "retry_after", None)
                outcomes.append({"taken": False} | ({} if hint is None else {"after": hint}))
            if case["answers"][number].get("closes"):
                # Only then the next message finds a connection that is closed.
                server.closed.acquire(timeout=600)
    return {"requests": server.asked, "outcomes": outcomes}


def _publisher(case: dict[str, Any], url: str) -> http.HttpPublisher:
    return http.HttpPublisher(url + case.get("prefix", ""), key=case.get("key"), timeout=600)


def _fetch(case: dict[str, Any]) -> dict[str, Any]:
    """Ask for a plan once for each answer; return the requests, and what was taken each time."""
    taken: list[str | None] = []
    with _Server(case["answers"]) as server:
        for _ in case["answers"]:
            try:
                found = http.fetch_plan(
                    server.url, case["asks"], expect=case["expect"], timeout=600
                )
                taken.append(found.digest.hex())
            except (PublishError, PlanError):
                taken.append(None)
    return {"requests": server.asked, "taken": taken}


# The collector's side, in process.


async def _ask(app: Any, request: dict[str, Any], etag: str) -> asgi_client.Answer:
    """Make a request of a case; the body of one that stalls never comes."""
    headers = {key: value.format(etag=etag) for key, value in request.get("headers", {}).items()}
    body = [] if request.get("stalls") else [bytes.fromhex(request.get("body", ""))]
    return await asgi_client.exchange(
        app,
        request["method"],
        request["path"],
        *body,
        headers=headers.items(),
        pause=0.0 if body else 3600.0,
    )


async def _collect(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make the requests of a case; return the answers, and what was stored."""
    given = case.get("collector", {})
    keys = None
    if given.get("keys"):
        path = folder / "keys.json"
        path.write_text(json.dumps({"apps": {"app": [hashlib.sha256(_KEY.encode()).hexdigest()]}}))
        keys = AppKeys(path)
    limits = Limits(
        body_bytes=given.get("body_bytes", 4096),
        body_seconds=given.get("body_seconds", 60.0),
        requests_per_second=0.001,
        burst=given.get("burst", 100),
    )
    fails = given.get("store") == "fails"
    store = MemoryStore(PublishError("the disk is full") if fails else None)
    commits = GroupCommit(store, 0.0, warn=lambda _: None)
    known = ServedPlans([CompiledPlan.from_json(files.plan(name)) for name in _PLANS])
    app = application(commits, lambda: known, keys, limits, given.get("origins", ("*",)))
    answers, etag = [], ""
    try:
        for request in case["requests"]:
            found = await _ask(app, request, etag)
            headers, etag = found.headers, found.headers.get("etag", etag)
            answer: dict[str, Any] = {"status": found.status}
            kept = {name: headers[name] for name in _ANSWERED if name in headers}
            if kept:
                answer["headers"] = kept
            if "retry-after" in headers:
                answer["after"] = int(headers["retry-after"])
            if headers.get("content-type") == "application/json":
                answer["plans"] = [_named(each) for each in found.json()["plans"]]
            answers.append(answer)
    finally:
        await commits.close()
    return {
        "answers": answers,
        "stored": sorted(body.hex() for group in store.groups for _, body in group),
    }


def _named(document: Any) -> str:
    text = canonical(document).decode()
    [name] = [each["name"] for each in files.read("plans")["plans"] if each["json"] == text]
    return str(name)


# How long to wait.


def _bounds(failures: int, hint: float | None) -> list[float]:
    """Return the least wait, and that which no wait reaches."""
    found = []
    for chance in (0.0, 1.0):
        with mock.patch.object(backoff, "chance", return_value=chance):
            found.append(backoff.delay(failures, hint))
    return found


def write() -> None:
    """Write what comes of each case anew; bodies of messages are of plan 'device' as it stands."""
    content = files.read("exchange")
    for case in content["device"]:
        case |= _exchange(case)
    for case in content["fetches"]:
        case |= _fetch(case)
    with TemporaryDirectory() as folder:
        for case in content["collector"]:
            case |= asyncio.run(_collect(case, Path(folder)))
    for wait in content["waits"]:
        wait["seconds"] = _bounds(wait["failures"], wait["after"])
    files.write("exchange", **content)


def check() -> Iterator[str | None]:
    content = files.read("exchange")
    for case in content["device"]:
        got = _exchange(case)
        expected = {key: case[key] for key in ("requests", "outcomes")}
        yield None if got == expected else f"device, {case['name']}: {got}"
    for case in content["fetches"]:
        got = _fetch(case)
        good = got == {key: case[key] for key in ("requests", "taken")}
        yield None if good else f"fetches, {case['name']}: {got}"
    with TemporaryDirectory() as folder:
        for case in content["collector"]:
            got = asyncio.run(_collect(case, Path(folder)))
            expected = {key: case[key] for key in ("answers", "stored")}
            good = _comparable(got) == _comparable(expected)
            yield None if good else f"collector, {case['name']}: {got}"
    for wait in content["waits"]:
        good = _bounds(wait["failures"], wait["after"]) == wait["seconds"]
        yield None if good else f"waits, {wait['failures']} failures, {wait['after']}"


def _comparable(got: dict[str, Any]) -> dict[str, Any]:
    """Leave out how long an app over its limit is to wait: that depends on the time."""
    answers = [
        {**each, "after": each["after"] >= 1} if each["status"] == 429 else each
        for each in got["answers"]
    ]
    return {**got, "answers": answers}
