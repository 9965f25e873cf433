"""A client of an ASGI application in the same process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Answer:
    """The answer to a request; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


async def exchange(
    app: ASGIApp,
    method: str,
    path: str,
    *body: bytes,
    headers: Iterable[tuple[str, str]] = (),
    pause: float = 0.0,
    sent: list[Message] | None = None,
) -> Answer:
    """Make one request; ``path`` may have a query, and the parts of the body come one by one.

    ``pause``: seconds after which more of a body that does not end is awaited. ``sent``: takes the
    events of the answer as they are sent.
    """
    parts, events = list(body), [] if sent is None else sent

    async def receive() -> Message:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts or pause)}
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": b"", "more_body": bool(pause)}

    async def send(event: Message) -> None:
        events.append(event)

    route, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": route,
        "raw_path": route.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        "server": ("127.0.0.1", 80),
        "client": ("203.0.113.9", 4711),
        "state": {},
    }
    await app(scope, receive, send)
    return answer_of(events)


def answer_of(events: Sequence[Message]) -> Answer:
    """Return the answer that an application has sent."""
    start, *rest = events
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(each.get("body", b"") for each in rest))


def get(
    app: ASGIApp,
    path: str,
    query: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Make a GET request; ``path`` may have a query of its own."""
    asked = f"{path}?{urlencode(query, doseq=True)}" if query else path
    return asyncio.run(exchange(app, "GET", asked, headers=(headers or {}).items()))
