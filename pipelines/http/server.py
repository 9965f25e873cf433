"""Serves an application with uvicorn, on plain HTTP, and hides from it who asks.

On a network a proxy in front of the server ends TLS, and cuts off clients that do not read.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.http.problems import Faults, problem
from sotto.errors import ParameterError

#: Seconds between two looks at files that may have changed: keys and plans.
LOOK = 2.0
#: Seconds that a connection may wait for the head of a request, and requests may take at the end.
_IDLE, _ENDING = 15, 30
#: The most bytes of a request's head, or of what is around the chunks of its body.
_HEAD_BYTES = 64 << 10
#: The most header fields of one request that an application is given: some may come twice.
_FIELDS = 32
#: Settings without which the framework exports requests and error texts if the environment says so.
NO_TELEMETRY: Any = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)
#: How many file descriptors are reserved for other things than connections.
_FILES = 64


class HeadFilter:
    """Hides from an application the client's address, and all header fields but the named ones.

    A head that is too long is refused.
    """

    def __init__(self, app: ASGIApp, names: frozenset[bytes]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields = scope["headers"]
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in fields)
        # Caddy sends an empty field if the client has sent none.
        kept = [(name, value) for name, value in fields if value and name in self._names]
        refusal = None
        if size > _HEAD_BYTES or len(kept) > _FIELDS:
            refusal = 431, "the head of the request is too long"
        elif {b"content-length", b"transfer-encoding"} <= dict(fields).keys():
            # A proxy that uses the other field would let the next request begin elsewhere.
            refusal = 400, "the request says in two ways how long its body is"
        if refusal is not None:
            await problem(*refusal, {"connection": "close"})(scope, receive, send)
            return
        await self._app({**scope, "client": None, "headers": kept}, receive, send)


def listen(host: str, port: int, *, behind_proxy: bool) -> socket.socket:
    """Return a socket that listens there; 0 is any port that is free.

    Raises ParameterError if it cannot, or shows to the network what a proxy does not encrypt.
    """
    if not behind_proxy and not is_loopback(host):
        raise ParameterError(
            f"--listen expects an address of this machine alone, such as 127.0.0.1; got {host}; if "
            "a proxy ends TLS, and only that reaches the address, give --behind-proxy"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = str(error.strerror or error).partition(" (")[0]
        raise ParameterError(f"--listen {host} --port {port}: {why}") from None


def serve(
    app: FastAPI,
    host: str,
    listening: socket.socket,
    connections: int,
    ready: Callable[[str], None],
    warn: Callable[[str], None],
    headers: frozenset[bytes],
    reload: Sequence[Callable[[], None]] = (),
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were taken are answered first.

    The process then ends with status 0 (SystemExit).

    Parameters
    ----------
    app : FastAPI
    host : str
        As :func:`listen` was given it; it stands in the URL.
    listening : socket
        As :func:`listen` makes it.
    connections : int
        Open at one time, if the limit of open files allows; further ones are answered with 503.
    ready : callable
        Is called with the server's URL once requests are taken.
    warn : callable
    headers : frozenset of bytes
        Names in lower case of all header fields that the application is given.
    reload : sequence of callable
        Called every few seconds, in a thread.
    """
    for name in ("uvicorn.error", "uvicorn.asgi", "uvicorn.access", "asyncio"):
        # Their lines about a request may hold parts of it.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises the signal that has ended it again, once all requests are answered.
        signal.signal(number, _end)
    name = f"[{host}]" if ":" in host else host
    started, faults = False, Faults(warn, "server")
    heads: dict[Any, int] = {}

    async def look() -> None:
        nonlocal started, heads
        if not started:
            started = True
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: faults.note(context.get("exception") or RuntimeError())
            )
            ready(f"http://{name}:{listening.getsockname()[1]}")
        # uvicorn waits without end for the head of a request.
        held: Any = server.server_state.connections
        waiting = ((each, each.cycle) for each in held)
        idle = (each for each in waiting if each[1] is None or each[1].response_complete)
        heads = {each: heads.get(each, 0) + 1 for each in idle}
        for (connection, _), looks in heads.items():
            if looks * LOOK > _IDLE:
                connection.transport.close()
        for each in reload:
            with suppress(OSError):
                await asyncio.to_thread(each)

    config = uvicorn.Config(
        HeadFilter(app, headers),
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        limit_concurrency=possible_connections(connections),
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_ENDING,
        callback_notify=look,
        timeout_notify=LOOK,  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listening])


def is_loopback(address: str) -> bool:
    """Return whether an address that is listened on is the machine's own alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    return address in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", address))


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def possible_connections(most: int) -> int:
    """Return how many connections may be open: ``most``, or fewer if few files may be open."""
    return min(most, _descriptors() - _FILES)


def _descriptors() -> int:
    """Return how many files this process may have open, after raising its limit to the most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
