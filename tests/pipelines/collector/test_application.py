"""The collector's interface: what it takes, what it refuses, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from asgi_client import Answer
from asgi_client import exchange as ask
from fastapi import FastAPI
from live_collector import PLAN, message
from memory_store import MemoryStore

from pipelines.collector.application import application
from pipelines.collector.commits import GroupCommit
from pipelines.collector.keys import AppKeys, drop_key, new_key
from pipelines.collector.limits import Limits
from pipelines.collector.plans import ServedPlans
from sotto.errors import PublishError
from sotto.plan.development import development_plan
from sotto.wire.batch import join_messages
from sotto.wire.format import Row, encode_message

REPORTS = "/v1/reports"


@asynccontextmanager
async def serving(store=None, hold=0.001, **options):
    """An application and its store."""
    store = MemoryStore() if store is None else store
    commits = GroupCommit(store, hold, pause=0)
    known = ServedPlans([PLAN])
    yield application(commits, lambda: known, **options), store
    await commits.close()
    assert store.closed


async def post(app, *messages: bytes, query: str = "", **more) -> Answer:
    """Post messages, or one."""
    return await ask(app, "POST", REPORTS + query, join_messages(messages or [message()]), **more)


async def test_messages_are_answered_once_they_are_stored() -> None:
    async with serving() as (app, store):
        sent = [message(shard) for shard in (1, 2)]
        answer = await post(app, *sent)
        assert (answer.status, answer.body) == (204, b"")
        assert sorted(store.groups[0]) == sorted(zip((1, 2), sent, strict=True))


#: A message of two pseudonyms.
OF_TWO = encode_message(
    PLAN.fingerprint, 3, [(0, [Row(0, bytes([each]) * 16, bytes(16), 0, b"\1") for each in (1, 2)])]
)


UNKNOWN = "a message of a plan that is not known here"
DEVELOPMENT = development_plan(PLAN).fingerprint
#: Bodies that are refused, with the status and the title of the answer.
REFUSED = {
    "empty": (b"", 400, "a body holds at least one message"),
    "length": (b"\1\0", 400, "the body ends within the length of a message"),
    "nothing": (bytes(4), 400, "a message of 0 bytes; 1 to 1048576 are allowed"),
    "long": (b"\xff" * 4, 400, "a message of 4294967295 bytes; 1 to 1048576 are allowed"),
    "short": (b"\5\0\0\0abc", 400, "the body ends within a message"),
    "bytes": (join_messages([b"abc"]), 400, "a message has at least 40 bytes, not 3"),
    "group": (join_messages([message()[:-1]]), 400, "the message ends within a group"),
    "two": (join_messages([OF_TWO]), 400, "a device's message bears one pseudonym, not 2"),
    "plan": (join_messages([message(), message(fingerprint=bytes(32))]), 422, UNKNOWN),
    "development": (join_messages([message(fingerprint=DEVELOPMENT)]), 422, UNKNOWN),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_message_is_refused_whole(name) -> None:
    body, status, title = REFUSED[name]
    async with serving() as (app, store):
        answer = await ask(app, "POST", REPORTS, body)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.body) == {"title": title, "status": status}
        assert store.groups == []


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_large_is_not_read(declared) -> None:
    part = bytes(600)
    headers = [("content-length", "1200")] if declared else []
    async with serving(limits=Limits(body_bytes=1000)) as (app, _):
        answer = await ask(app, "POST", REPORTS, part, part, headers=headers)
        assert answer.status == 413


async def test_an_overloaded_collector_refuses_before_it_holds_more() -> None:
    async with serving(limits=Limits(waiting_bytes=1100), hold=60) as (app, store):
        first = asyncio.create_task(post(app))
        await asyncio.sleep(0.02)
        second = await post(app)
        assert (second.status, second.headers["retry-after"]) == (503, "5")
        assert store.groups == []
    # Messages that wait are written at the end.
    assert (await first).status == 204
    assert len(store.groups) == 1


async def test_messages_of_few_bytes_count_for_what_they_cost() -> None:
    """Tens of thousands fit into one body; written together they would keep everybody waiting."""
    small = [message() for _ in range(20)]
    large = [message(rows=100)]
    async with serving(limits=Limits(waiting_bytes=20_000)) as (app, store):
        assert (await post(app, *small)).status == 503
        assert store.groups == []
        assert (await post(app, *small[:10])).status == 204
        assert (await post(app, *large)).status == 204
    room = Limits(waiting_bytes=len(join_messages(large)))
    async with serving(limits=room) as (app, _):
        # A large one counts as its bytes, and leaves nothing held.
        assert [(await post(app, *large)).status for _ in range(3)] == [204] * 3


@pytest.mark.parametrize("failure", [PublishError("full"), ValueError("a bug")])
async def test_a_store_that_fails_is_a_503_without_its_reason(failure) -> None:
    async with serving(MemoryStore(failure)) as (app, store):
        answer = await post(app)
        assert (answer.status, answer.headers["retry-after"]) == (503, "60")
        assert str(failure).encode() not in answer.body
        store.failure = None
        assert (await post(app)).status == 204


async def test_keys_say_which_app_and_can_be_changed_while_serving(tmp_path) -> None:
    path = tmp_path / "keys.json"
    key, other = new_key(path, "app"), new_key(path, "other")
    assert key not in path.read_text()
    keys = AppKeys(path)

    async def status(app, key, query="") -> int:
        headers = [("authorization", f"Bearer {key}")] if key else []
        return (await post(app, query=query, headers=headers)).status

    limits = Limits(requests_per_second=0.001, burst=2)
    async with serving(keys=keys, limits=limits) as (app, _):
        assert await status(app, "") == 401
        assert await status(app, key[:-1]) == 401
        assert [await status(app, key) for _ in range(3)] == [204, 204, 429]
        assert await status(app, "", f"?key={other}") == 204
        assert drop_key(path, other) == "other"
        keys.reload()
        assert await status(app, other) == 401


async def test_plans_are_served_with_a_tag() -> None:
    async with serving() as (app, _):
        answer = await ask(app, "GET", "/v1/plans/fleet.example")
        assert json.loads(answer.body) == {"plans": [json.loads(PLAN.to_json())]}
        tag = [("if-none-match", answer.headers["etag"])]
        again = await ask(app, "GET", "/v1/plans/fleet.example", headers=tag)
        assert (again.status, again.body) == (304, b"")
        assert (await ask(app, "GET", "/v1/plans/other.example")).status == 404


async def test_nobody_is_sent_elsewhere() -> None:
    """A client that followed would send reports without TLS, to an address behind the proxy."""
    async with serving() as (app, _):
        for path in (REPORTS + "/", "/v1/plans/fleet.example/", "/healthz/"):
            for method in ("GET", "POST"):
                answer = await ask(app, method, path)
                assert answer.status == 404
                assert "location" not in answer.headers


async def test_pages_of_other_origins_may_send() -> None:
    asked = [("origin", "https://app.example"), ("access-control-request-method", "POST")]
    async with serving() as (app, _):
        answer = await ask(app, "OPTIONS", REPORTS, headers=asked)
        assert answer.headers["access-control-allow-origin"] == "*"
    async with serving(origins=["https://other.example"]) as (app, _):
        answer = await ask(app, "OPTIONS", REPORTS, headers=asked)
        assert "access-control-allow-origin" not in answer.headers
        # A proxy may send an empty one for a client that is no page.
        statuses = {"": 204, "https://other.example": 204}
        statuses |= {"https://app.example": 403, "null": 403}
        empty = [("authorization", ""), ("if-none-match", "")]
        for origin, status in statuses.items():
            answer = await post(app, headers=[("origin", origin), *empty])
            assert answer.status == status, origin


async def test_an_error_in_the_collector_is_said_once_and_without_its_text() -> None:
    warned: list[str] = []

    def broken():
        raise ValueError("planted")

    commits = GroupCommit(MemoryStore(), 0.001)
    app = application(commits, broken, warn=warned.append)
    for _ in range(2):
        events: list[dict[str, object]] = []
        with pytest.raises(ValueError, match="planted"):
            await post(app, sent=events)
        assert events[0]["status"] == 500
        assert b"planted" not in events[1]["body"]
    await commits.close()
    (each,) = warned
    assert "planted" not in each
    assert each.startswith("an error in the collector (ValueError, test_application.py:")


async def test_a_large_body_that_is_being_read_gives_way_to_smaller_ones() -> None:
    async with serving(limits=Limits(waiting_bytes=1000, body_seconds=60)) as (app, _):
        reading = asyncio.create_task(ask(app, "POST", REPORTS, bytes(900), pause=1.0))
        while not reading.done():
            # The body that gives way is larger than this one.
            assert (await ask(app, "POST", REPORTS, bytes(400))).status == 400
            await asyncio.sleep(0.01)
        answer = reading.result()
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


async def test_the_framework_reports_no_request(monkeypatch, caplog) -> None:
    """FastAPI traces requests where it finds who takes that, or the environment names one."""
    trace = pytest.importorskip("opentelemetry.trace")

    asked = []

    def provider():
        asked.append("provider")
        return trace.NoOpTracerProvider()

    monkeypatch.setattr(trace, "get_tracer_provider", provider)
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    started = asyncio.Event()

    async def receive():
        if started.is_set():
            return {"type": "lifespan.shutdown"}
        return {"type": "lifespan.startup"}

    async def send(_: object) -> None:
        started.set()

    app = application(GroupCommit(MemoryStore()), lambda: ServedPlans([PLAN]))
    await app({"type": "lifespan", "state": {}}, receive, send)
    async with serving() as (app, _):
        await post(app)
    assert asked == []
    # A provider that is asked would be seen.
    await ask(FastAPI(), "GET", "/")
    assert asked
    assert "telemetry" not in caplog.text


def test_nothing_of_a_request_is_logged(caplog) -> None:
    """Also when the loop ends: then it logs what failed in tasks that are left."""

    async def check() -> None:
        headers = [("user-agent", "planted"), ("cookie", "planted"), ("x-real-ip", "planted")]
        async with serving() as (app, store):
            await post(app, headers=headers)
            store.failure = PublishError("full")
            await post(app, headers=headers)
            assert b"planted" not in b"".join(body for _, body in store.groups[0])

    caplog.set_level(0)
    asyncio.run(check())
    assert "planted" not in caplog.text
    assert "203.0.113.9" not in caplog.text
