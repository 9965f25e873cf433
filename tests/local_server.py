"""A server of HTTP in a thread, which plays another party of a test."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Request:
    """A request that came; two are equal if they ask the same."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    #: The address of its connection.
    client: tuple[str, int] = field(compare=False)
    #: The connection itself, one object for all its requests; for an answer that is no whole HTTP.
    handler: BaseHTTPRequestHandler = field(compare=False, repr=False)


@dataclass(frozen=True)
class Answer:
    """An answer; unless its headers say otherwise, the length of its body is sent with it."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


#: Functions that answer nothing, or have answered themselves, return None: the connection ends.
Answering: TypeAlias = Callable[[Request], Answer | None]


class LocalServer(ThreadingHTTPServer):
    """A server on a free port of this machine, which serves until it is left.

    Parameters
    ----------
    answer : Answer or callable
        The answer to every request, or a function that gives each its own.
    context : ssl.SSLContext, optional
        For TLS.
    """

    daemon_threads = True

    def __init__(
        self, answer: Answer | Answering = Answer(), context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.answer = answer
        self.requests: list[Request] = []
        #: Released whenever a connection has ended.
        self.closed = threading.Semaphore(0)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        self.closed.release()

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        super().__exit__(*raised)


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = dict(self.headers)
        asked = Request(self.command, self.path, headers, body, self.client_address, self)
        self.server.requests.append(asked)
        answer = self.server.answer
        given = answer if isinstance(answer, Answer) else answer(asked)
        if given is None:
            self.close_connection = True
            return
        self.send_response(given.status)
        length = {} if given.status in (204, 304) else {"Content-Length": str(len(given.body))}
        for header in {**length, **given.headers}.items():
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(given.body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""
