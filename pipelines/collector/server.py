"""Serves the collector with uvicorn: no access log, no server header, slow clients cut off."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.collector.limits import Limits

#: Seconds that a connection may be idle between requests, and that a request's head may take.
_IDLE, _HEAD = 15, 10.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class _Connection(HttpToolsProtocol):
    """A connection that is closed when the head of a request takes too long."""

    most = Limits.connections
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_BUSY)
            transport.close()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def serve(app: FastAPI, host: str, port: int, limits: Limits, **options: Any) -> None:
    """Serve until SIGINT or SIGTERM; requests that were taken are answered first.

    Parameters
    ----------
    app : FastAPI
    host : str
    port : int
    limits : Limits
    **options
        Of ``uvicorn.Config``: ``ssl_certfile`` and ``ssl_keyfile``, say.
    """
    protocol = type("Connection", (_Connection,), {"most": limits.connections})
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol,
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=30,
        backlog=2048,
        **options,
    )
    uvicorn.Server(config).run()
