"""A server on loopback that keeps what is posted to it, and an alert to post."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

from moving_results import when

from pipelines.alerts.kept import Alert
from pipelines.alerts.notifiers.base import Notifier

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)

#: An alert, as the file of alerts has it.
ALERT = {
    "raised": NOW,
    "collector": "tests.example",
    "plan": "moving",
    "metric": "colour",
    "segment": "",
    "kind": "share",
    "unit": "share",
    "revision": 4,
    "direction": "up",
    "since": when(30),
    "window_start": when(31),
    "window_end": when(32),
    "expected": 0.2,
    "change": 0.1,
    "low": 0.06,
    "high": 0.14,
    "sigma": 5,
    "false_alarms_per_year": 1,
    "figures": 3,
    "windows_between_false_alarms": 156.5,
    "windows": 2,
    "predicted_windows": 3,
    "news": True,
}


def alert(item="red", id="a1"):
    return Alert.model_validate({**ALERT, "item": item, "id": id})


class Receiver(BaseHTTPRequestHandler):
    """Notes what is posted, and answers as the server says."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, dict(self.headers), body))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/other")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def receiving(*answers: int, context: ssl.SSLContext | None = None) -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.received, server.answers = [], list(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Calling(Notifier):
    """Calls a function with each alert."""

    function: Callable[[Alert, datetime], None]

    def send(self, alert: Alert, now: datetime) -> None:
        self.function(alert, now)


def calling(function: Callable[[Alert, datetime], None]) -> dict[str, Notifier]:
    """Return notifiers that call a function, under the name of a webhook."""
    return {"webhook": Calling(function=function)}
