"""The collector's HTTP interface, as an ASGI application.

A request is read, checked for framing, size and plan, and answered once its messages are durable.
Whether a report is acceptable is decided later, by whoever aggregates. Nothing of a request but
its messages is kept or logged: no address, header, cookie or user agent.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipelines.collector.commits import GroupCommit
from pipelines.collector.keys import AppKeys
from pipelines.collector.limits import Limits, OverloadError, Room, Share, TokenBucket
from pipelines.collector.plans import ServedPlans
from pipelines.http import problems
from pipelines.http.kept import answered
from pipelines.http.server import NO_TELEMETRY
from sotto.errors import FormatError, PublishError
from sotto.wire.batch import split_messages
from sotto.wire.format import HEADER, pseudonym_of

#: The header fields that reach the collector; it gets no others.
HEADERS = frozenset(
    {
        *(b"authorization", b"content-length", b"content-type", b"if-none-match", b"origin"),
        *(b"access-control-request-method", b"access-control-request-headers"),
    }
)
#: Seconds after which a client may try again if the collector is overloaded, if its disk or broker
#: has failed, and if it does not know the plan.
_BUSY, _FAILED, _UNKNOWN = 5, 60, 3600
_WHO = "anybody"
#: The fewest bytes that a message counts as, of the room for waiting requests.
_MESSAGE_BYTES = 1024

_logger = logging.getLogger(__name__)


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    texts = {
        400: "not a body of messages",
        401: "no key of an app",
        403: "a page of an origin that may not send",
        404: "no such collector",
        408: "the request did not arrive in time",
        413: "too large",
        422: "a plan that the collector does not know",
        429: "too many requests of this app",
        503: "overloaded, or the disk or broker has failed",
    }
    return {
        status: {"description": texts[status], "content": problems.CONTENT} for status in statuses
    }


def application(
    commits: GroupCommit,
    plans: Callable[[], ServedPlans],
    keys: AppKeys | None = None,
    limits: Limits | None = None,
    origins: Sequence[str] = ("*",),
    warn: Callable[[str], None] = _logger.warning,
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    commits : GroupCommit
        Takes the messages; closed when the application shuts down.
    plans : callable
        Returns the plans that are known now.
    keys : AppKeys, optional
        Without it no request needs a key, and all share one limit of rate.
    limits : Limits, optional
    origins : sequence of str
        Web origins whose pages may send; ``*`` for all.
    warn : callable
        Called once for each place in the code at which an unexpected error was raised.
    """
    bounds = limits or Limits()
    buckets: dict[str, TokenBucket] = {}
    faults = problems.Faults(warn, "collector")
    room = Room(bounds.waiting_bytes, (bounds.connections + 1) // 2)

    def admit(request: Request) -> None:
        """Refuse a request of another origin's page, without a key, or beyond the rate."""
        origin = request.headers.get("origin")
        # A proxy may send an empty field if the client has sent none.
        if origin and "*" not in origins and origin not in origins:
            raise HTTPException(403, "pages of this origin may not send")
        app = _WHO
        if keys is not None:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            given = key if scheme.lower() == "bearer" else request.query_params.get("key", "")
            found = keys.app_of(given)
            if found is None:
                raise HTTPException(401, "a key of an app is needed: Authorization: Bearer KEY")
            app = found
        if app not in buckets:
            buckets[app] = TokenBucket(bounds.requests_per_second, bounds.burst)
        if wait := buckets[app].take():
            raise _later(429, "too many requests of this app", wait)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await commits.close()

    app = FastAPI(
        title="Sotto collector",
        version="1",
        description=__doc__,
        docs_url=None,
        redoc_url=None,
        # Only the proxy in front knows the server's name, and whether TLS is used.
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=NO_TELEMETRY,
    )
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "if-none-match"],
        expose_headers=["etag", "retry-after"],
        max_age=86_400,
    )

    @app.exception_handler(HTTPException)
    async def _refusal(_: Request, error: HTTPException) -> Response:
        headers = {"cache-control": "no-store", **(error.headers or {})}
        if error.status_code == 401:
            headers["www-authenticate"] = "Bearer"
        if error.status_code in (408, 413):
            # The rest of the body is not waited for.
            headers["connection"] = "close"
        return problems.problem(error.status_code, error.detail, headers)

    @app.exception_handler(Exception)
    async def _fault(_: Request, error: Exception) -> Response:
        faults.note(error)
        return problems.problem(500, "an error in the collector", {"cache-control": "no-store"})

    @app.post(
        "/v1/reports",
        status_code=204,
        response_class=Response,
        summary="Take messages of a device",
        responses=_responses(400, 401, 403, 408, 413, 422, 429, 503),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            },
            "parameters": [
                {
                    "name": "key",
                    "in": "query",
                    "required": False,
                    "description": "a key of an app, where no header can be sent",
                    "schema": {"type": "string"},
                }
            ],
        },
    )
    async def post_reports(request: Request) -> Response:
        """Answer 204 once all messages of the body are durable: they need not be sent again.

        The body is one or more messages, each after its length as an unsigned 32-bit number,
        little-endian. After any other answer the same bytes may be sent again, not before
        Retry-After if there is one; what arrives twice is counted once.
        """
        admit(request)
        try:
            with room.share() as share:
                messages = _split(await _body(request, bounds, share))
                # Small messages cost more time and memory than their bytes.
                share.grow(sum(max(0, _MESSAGE_BYTES - len(each)) for each in messages))
                await commits.write(_checked(messages, plans().fingerprints))
        except OverloadError:
            # The rest of the body, if it has not arrived, is not waited for.
            raise _later(503, "overloaded", _BUSY, connection="close") from None
        except PublishError:
            raise _later(503, "messages cannot be kept now", _FAILED) from None
        return Response(status_code=204)

    @app.get(
        "/v1/plans/{collector}",
        summary="The collector's compiled plans",
        responses={304: {"description": "not changed"}, **_responses(404)},
    )
    async def get_plans(request: Request, collector: str) -> Response:
        """Return all plans whose reports are taken, as `sotto plan compile` writes them."""
        known = plans()
        if collector != known.collector:
            raise HTTPException(404, "no such collector")
        return answered(request, known.body, "application/json", known.etag, "public, max-age=300")

    @app.get("/healthz", summary="Whether the collector answers", response_class=Response)
    async def get_health() -> Response:
        return Response("ok\n", media_type="text/plain")

    return app


def _later(status: int, title: str, seconds: float, **headers: str) -> HTTPException:
    """Return a refusal that says after how many seconds to come again, with further headers."""
    return HTTPException(status, title, {"retry-after": str(max(1, math.ceil(seconds))), **headers})


async def _body(request: Request, limits: Limits, share: Share) -> bytes:
    """Return the request's body, if it arrives in time and is not too large."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limits.body_bytes:
        raise HTTPException(413, f"a body has at most {limits.body_bytes} bytes")
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(limits.body_seconds) as deadline:

            def give_way() -> None:
                # Stop waiting for the rest of the body; a RuntimeError says that its time is over.
                with suppress(RuntimeError):
                    deadline.reschedule(0)

            share.on_eviction = give_way
            async for part in request.stream():
                share.grow(len(part))
                if share.size > limits.body_bytes:
                    raise HTTPException(413, f"a body has at most {limits.body_bytes} bytes")
                parts.append(part)
        share.whole()
    except TimeoutError:
        if share.evicted:
            raise OverloadError("others need the room") from None
        raise HTTPException(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise HTTPException(400, "the body did not arrive") from None
    return b"".join(parts)


def _split(body: bytes) -> list[bytes]:
    """Return the body's messages."""
    try:
        return split_messages(body)
    except FormatError as error:
        raise HTTPException(400, str(error)) from None


def _checked(messages: Sequence[bytes], fingerprints: set[bytes]) -> list[tuple[int, bytes]]:
    """Return messages of known plans, each with its shard."""
    found = []
    try:
        for message in messages:
            pseudonym_of(message)
            _, _, _, shard, _, fingerprint = HEADER.unpack_from(message)
            if fingerprint not in fingerprints:
                raise _later(422, "a message of a plan that is not known here", _UNKNOWN)
            found.append((shard, message))
    except FormatError as error:
        raise HTTPException(400, str(error)) from None
    return found
