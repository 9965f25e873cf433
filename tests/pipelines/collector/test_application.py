"""The collector's interface: what it takes, what it refuses, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
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


def run(check) -> None:
    asyncio.run(check())


def test_messages_are_answered_once_they_are_stored() -> None:
    async def check() -> None:
        async with serving() as (app, store):
            sent = [message(shard) for shard in (1, 2)]
            answer = await ask(app, "POST", REPORTS, join_messages(sent))
            assert (answer.status, answer.body) == (204, b"")
            assert sorted(store.groups[0]) == sorted(zip((1, 2), sent, strict=True))

    run(check)


#: A message of two pseudonyms.
OF_TWO = encode_message(
    PLAN.fingerprint, 3, [(0, [Row(0, bytes([each]) * 16, bytes(16), 0, b"\1") for each in (1, 2)])]
)


@pytest.mark.parametrize(
    ("body", "status", "title"),
    [
        (b"", 400, "a body holds at least one message"),
        (b"\1\0", 400, "the body ends within the length of a message"),
        (b"\0\0\0\0", 400, "a message of 0 bytes; 1 to 1048576 are allowed"),
        (b"\xff\xff\xff\xff", 400, "a message of 4294967295 bytes; 1 to 1048576 are allowed"),
        (b"\5\0\0\0abc", 400, "the body ends within a message"),
        (join_messages([b"abc"]), 400, "a message has at least 40 bytes, not 3"),
        (join_messages([message()[:-1]]), 400, "the message ends within a group"),
        (join_messages([OF_TWO]), 400, "a device's message bears one pseudonym, not 2"),
        (
            join_messages([message(), message(fingerprint=bytes(32))]),
            422,
            "a message of a plan that is not known here",
        ),
        (
            join_messages([message(fingerprint=development_plan(PLAN).fingerprint)]),
            422,
            "a message of a plan that is not known here",
        ),
    ],
    ids=[
        "empty",
        "length",
        "nothing",
        "long",
        "short",
        "bytes",
        "group",
        "two",
        "plan",
        "development",
    ],
)
def test_what_is_no_message_is_refused_whole(body, status, title) -> None:
    async def check() -> None:
        async with serving() as (app, store):
            answer = await ask(app, "POST", REPORTS, body)
            assert answer.status == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert json.loads(answer.body) == {"title": title, "status": status}
            assert store.groups == []

    run(check)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_not_read(declared) -> None:
    part = bytes(600)
    headers = [("content-length", "1200")] if declared else []

    async def check() -> None:
        async with serving(limits=Limits(body_bytes=1000)) as (app, _):
            answer = await ask(app, "POST", REPORTS, part, part, headers=headers)
            assert answer.status == 413

    run(check)


def test_an_overloaded_collector_refuses_before_it_holds_more() -> None:
    async def check() -> None:
        async with serving(limits=Limits(waiting_bytes=1100), hold=60) as (app, store):
            first = asyncio.create_task(ask(app, "POST", REPORTS, join_messages([message()])))
            await asyncio.sleep(0.02)
            second = await ask(app, "POST", REPORTS, join_messages([message()]))
            assert (second.status, second.headers["retry-after"]) == (503, "5")
            assert store.groups == []
        # Messages that wait are written at the end.
        assert (await first).status == 204
        assert len(store.groups) == 1

    run(check)


def test_messages_of_few_bytes_count_for_what_they_cost() -> None:
    """Tens of thousands fit into one body; written together they would keep everybody waiting."""
    small = [message() for _ in range(20)]
    large = [message(rows=100)]

    async def status(app, messages) -> int:
        return (await ask(app, "POST", REPORTS, join_messages(messages))).status

    async def check() -> None:
        async with serving(limits=Limits(waiting_bytes=20_000)) as (app, store):
            assert await status(app, small) == 503
            assert store.groups == []
            assert await status(app, small[:10]) == 204
            assert await status(app, large) == 204
        room = Limits(waiting_bytes=len(join_messages(large)))
        async with serving(limits=room) as (app, _):
            # A large one counts as its bytes, and leaves nothing held.
            assert [await status(app, large) for _ in range(3)] == [204] * 3

    run(check)


@pytest.mark.parametrize("failure", [PublishError("full"), ValueError("a bug")])
def test_a_store_that_fails_is_a_503_without_its_reason(failure) -> None:
    async def check() -> None:
        async with serving(MemoryStore(failure)) as (app, store):
            answer = await ask(app, "POST", REPORTS, join_messages([message()]))
            assert (answer.status, answer.headers["retry-after"]) == (503, "60")
            assert str(failure).encode() not in answer.body
            store.failure = None
            answer = await ask(app, "POST", REPORTS, join_messages([message()]))
            assert answer.status == 204

    run(check)


def test_keys_say_which_app_and_can_be_changed_while_serving(tmp_path) -> None:
    path = tmp_path / "keys.json"
    key, other = new_key(path, "app"), new_key(path, "other")
    assert key not in path.read_text()
    keys = AppKeys(path)
    body = join_messages([message()])

    async def status(app, key, query="") -> int:
        headers = [("authorization", f"Bearer {key}")] if key else []
        return (await ask(app, "POST", REPORTS + query, body, headers=headers)).status

    async def check() -> None:
        limits = Limits(requests_per_second=0.001, burst=2)
        async with serving(keys=keys, limits=limits) as (app, _):
            assert await status(app, "") == 401
            assert await status(app, key[:-1]) == 401
            assert [await status(app, key) for _ in range(3)] == [204, 204, 429]
            assert await status(app, "", f"?key={other}") == 204
            assert drop_key(path, other) == "other"
            keys.reload()
            assert await status(app, other) == 401

    run(check)


def test_plans_are_served_with_a_tag() -> None:
    async def check() -> None:
        async with serving() as (app, _):
            answer = await ask(app, "GET", "/v1/plans/fleet.example")
            assert json.loads(answer.body) == {"plans": [json.loads(PLAN.to_json())]}
            tag = [("if-none-match", answer.headers["etag"])]
            again = await ask(app, "GET", "/v1/plans/fleet.example", headers=tag)
            assert (again.status, again.body) == (304, b"")
            assert (await ask(app, "GET", "/v1/plans/other.example")).status == 404

    run(check)


def test_nobody_is_sent_elsewhere() -> None:
    """A client that followed would send reports without TLS, to an address behind the proxy."""

    async def check() -> None:
        async with serving() as (app, _):
            for path in (REPORTS + "/", "/v1/plans/fleet.example/", "/healthz/"):
                for method in ("GET", "POST"):
                    answer = await ask(app, method, path)
                    assert answer.status == 404
                    assert "location" not in answer.headers

    run(check)


def test_pages_of_other_origins_may_send() -> None:
    async def check() -> None:
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
                sent = join_messages([message()])
                answer = await ask(app, "POST", REPORTS, sent, headers=[("origin", origin), *empty])
                assert answer.status == status, origin

    run(check)


def test_an_error_in_the_collector_is_said_once_and_without_its_text() -> None:
    warned: list[str] = []

    def broken():
        raise ValueError("planted")

    async def check() -> None:
        commits = GroupCommit(MemoryStore(), 0.001)
        app = application(commits, broken, warn=warned.append)
        for _ in range(2):
            events: list[dict[str, object]] = []
            with pytest.raises(ValueError, match="planted"):
                await ask(app, "POST", REPORTS, join_messages([message()]), sent=events)
            assert events[0]["status"] == 500
            assert b"planted" not in events[1]["body"]
        await commits.close()

    run(check)
    (each,) = warned
    assert "planted" not in each
    assert each.startswith("an error in the collector (ValueError, test_application.py:")


def test_a_large_body_that_is_being_read_gives_way_to_smaller_ones() -> None:
    async def check() -> None:
        async with serving(limits=Limits(waiting_bytes=1000, body_seconds=60)) as (app, _):
            reading = asyncio.create_task(ask(app, "POST", REPORTS, bytes(900), pause=1.0))
            while not reading.done():
                # The body that gives way is larger than this one.
                assert (await ask(app, "POST", REPORTS, bytes(400))).status == 400
                await asyncio.sleep(0.01)
            answer = reading.result()
            assert answer.status == 503
            assert answer.headers["retry-after"] == "5"

    run(check)


def test_the_framework_reports_no_request(monkeypatch, caplog) -> None:
    """FastAPI traces requests where it finds who takes that, or the environment names one."""
    trace = pytest.importorskip("opentelemetry.trace")

    class Provider:
        """Takes traces."""

        asked = 0

        def get_tracer(self, *_: object, **__: object) -> object:
            Provider.asked += 1
            return trace.NoOpTracer()

    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    async def check() -> None:
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
            await ask(app, "POST", REPORTS, join_messages([message()]))
        # A provider that is asked would be seen.
        assert Provider.asked == 0
        await ask(FastAPI(), "GET", "/")
        assert Provider.asked > 0

    run(check)
    assert "telemetry" not in caplog.text


def test_nothing_of_a_request_is_logged(caplog) -> None:
    async def check() -> None:
        headers = [("user-agent", "planted"), ("cookie", "planted"), ("x-real-ip", "planted")]
        async with serving() as (app, store):
            await ask(app, "POST", REPORTS, join_messages([message()]), headers=headers)
            store.failure = PublishError("full")
            await ask(app, "POST", REPORTS, join_messages([message()]), headers=headers)
            assert b"planted" not in b"".join(body for _, body in store.groups[0])

    caplog.set_level(0)
    run(check)
    assert "planted" not in caplog.text
    assert "203.0.113.9" not in caplog.text
