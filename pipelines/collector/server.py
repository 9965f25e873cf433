"""Serves an application with uvicorn: nothing about a client is kept, slow ones are cut off."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.collector.certificates import Certificate
from pipelines.collector.limits import Limits
from sotto.errors import ParameterError, SottoError

#: Seconds between two looks at files that may have changed: keys, plans, certificates.
LOOK = 2.0
#: Seconds that a connection may be idle between requests; that a TLS handshake or the head of a
#: request may take; that a request and its answer may take; and that closing may take.
_IDLE, _HEAD, _REQUEST, _CLOSE = 15, 10.0, 60.0, 30.0
_HEAD_BYTES = 64 << 10
#: Descriptors that are kept for other things than connections.
_FILES = 64
#: All that the collector reads of a request's head, and how many of them: some may come twice. No
#: other header leaves the parser.
_FIELDS = 32
HEADERS = frozenset(
    {
        *(b"authorization", b"content-length", b"content-type", b"expect", b"if-none-match"),
        *(b"origin", b"access-control-request-method", b"access-control-request-headers"),
    }
)
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class _Connection(HttpToolsProtocol):
    """A connection that has no address, and is closed when it takes too long or asks too much."""

    most = Limits.connections
    kept = HEADERS
    _timer: asyncio.TimerHandle | None = None
    #: Bytes that came since the last request ended, or since the last chunk of its body, beside
    #: those of the body.
    _beside = 0
    #: Bytes of the head's target and fields.
    _head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = None
        if len(self.connections) > self.most:
            transport.write(_BUSY)
            transport.close()
            return
        self._limit(_HEAD)

    def data_received(self, data: bytes) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._timer is None:
            self._limit(_HEAD)
        self._beside += len(data)
        super().data_received(data)
        if self._beside > _HEAD_BYTES:
            # The parser keeps a field of the head, or after the last chunk, until it is whole.
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value)
        # Caddy sends an empty one where a client has sent none.
        if value and name.lower() in self.kept:
            if len(self.headers) == _FIELDS:
                # Kept one by one, short ones would take many times the bytes that were sent.
                self.transport.abort()
                raise httptools.HttpParserError("too many header fields")
            super().on_header(name, value)

    def _count(self, *parts: bytes) -> None:
        """Cut off a head that is too long, also one that came at once."""
        self._head += sum(map(len, parts))
        if self._head > _HEAD_BYTES:
            self.transport.abort()
            raise httptools.HttpParserError("too long a head")

    def on_headers_complete(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # Nobody sends a request before the last one is answered but to fill the memory.
            self.transport.abort()
            raise httptools.HttpParserError("a request before the answer to the last one")
        self._limit(_REQUEST)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        """Begin to count anew; the parser calls it after each chunk."""
        self._beside = 0

    def on_message_complete(self) -> None:
        self._beside = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._stop_timer()
        super().on_response_complete()
        self._limit_closing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._limit_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _limit_closing(self) -> None:
        """Have a connection that is being closed wait no longer for who does not read."""
        if self.transport.is_closing():
            self._limit(_CLOSE)

    def _limit(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _TlsServer:
    """Accepts connections, and limits how many are in their TLS handshake: nothing else does."""

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        most: int,
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._context = context
        self._protocol = protocol
        self._most = most
        self._opening: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more, and let go what is in its handshake."""
        for task in (self._accepting, *self._opening):
            task.cancel()

    async def wait_closed(self) -> None:
        """Return once nothing is accepted any more."""
        await asyncio.gather(self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError:
                # It was gone before it was accepted, or there are no descriptors.
                await asyncio.sleep(0.05)
                continue
            if len(self._opening) >= self._most:
                connection.close()
                continue
            task = asyncio.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=_HEAD,
            )
        except OSError:
            # Who does not speak TLS is left alone.
            connection.close()


class _Server(uvicorn.Server):
    """Uvicorn's server, which says when it is ready, logs no address and ends with status 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        context: ssl.SSLContext | None,
        most: int,
        ready: Callable[[], None],
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self.servers: list[asyncio.Server] = []
        self._context = context
        self._most = most
        self._ready = ready
        self._warn = warn
        self._warned: set[str] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise SottoError("the application did not start")
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._report)
        for each in sockets or []:
            if self._context is None:
                server = await loop.create_server(
                    self._connection, sock=each, backlog=self.config.backlog
                )
                self.servers.append(server)
            else:
                each.listen(self.config.backlog)
                made = _TlsServer(each, self._context, self._connection, self._most)
                self.servers.append(made)  # type: ignore[arg-type]
        self.started = True
        self._ready()

    def _connection(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def _report(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Warn of an error in the server, once for each kind: its text may hold an address."""
        what = type(context.get("exception")).__name__
        if what not in self._warned:
            self._warned.add(what)
            with suppress(OSError):
                self._warn(f"an error in the server ({what})")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # They have been obeyed, and are not raised again.
            self._captured_signals.clear()


def serve(
    app: FastAPI,
    host: str,
    port: int,
    limits: Limits,
    ready: Callable[[int], None],
    warn: Callable[[str], None],
    certificate: Certificate | None = None,
    reload: Sequence[Callable[[], None]] = (),
    headers: frozenset[bytes] = HEADERS,
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were taken are answered first.

    Parameters
    ----------
    app : FastAPI
    host : str
    port : int
        0 for any that is free.
    limits : Limits
    ready : callable
        Is called with the port once requests are taken.
    warn : callable
    certificate : Certificate, optional
        For TLS.
    reload : sequence of callable
        Called every few seconds, in a thread.
    headers : frozenset of bytes
        Names in lower case of all header fields that the application is given.

    Raises
    ------
    ParameterError
        The address cannot be listened on.
    """

    async def look() -> None:
        for each in reload:
            with suppress(OSError):
                await asyncio.to_thread(each)

    sockets = _bind(host, port)
    for name in ("uvicorn.error", "uvicorn.asgi", "uvicorn.access", "asyncio"):
        # What they say of a request may hold parts of it.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    most = min(limits.connections, _descriptors() - _FILES)
    if certificate is not None:
        # As many again may be in their handshake.
        most = min(limits.connections, (_descriptors() - _FILES) // 2)
    config = uvicorn.Config(
        app,
        http=type("Connection", (_Connection,), {"most": most, "kept": headers}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=30,
        backlog=2048,
        callback_notify=look,
        timeout_notify=LOOK,  # type: ignore[arg-type]
    )
    context = None if certificate is None else certificate.context
    found = sockets[0].getsockname()[1]
    _Server(config, context, most, lambda: ready(found), warn).run(sockets=sockets)


def _bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host that this machine has, all on one port."""
    made: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in found:
            try:
                made.append(socket.create_server((address[0], port), family=family))
                port = made[-1].getsockname()[1]
            except OSError as error:
                # As ::1 of localhost where there is no IPv6.
                if error.errno != errno.EADDRNOTAVAIL or (address == found[-1][-1] and not made):
                    raise
    except OSError as error:
        for each in made:
            each.close()
        why = str(error.strerror or error).partition(" (")[0]
        raise ParameterError(f"--listen {host} --port {port}: {why}") from None
    return made


def _descriptors() -> int:
    """Return how many files this process may have open, after it has asked for the most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 20
