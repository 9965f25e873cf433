"""A server of HTTP in a thread, which plays another party of a test."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class LocalServer(ThreadingHTTPServer):
    """A server on a free port of this machine, which serves until it is left."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        handler.log_message = lambda *_: None  # type: ignore[method-assign, assignment]
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        super().__exit__(*raised)
