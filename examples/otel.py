"""From OpenTelemetry to estimates in ten lines: ``python -m examples.otel``.

An unmodified instrumentation of httpx measures a request of each of 400 devices to a server on
loopback. A device sends neither how long its request took nor the status, but randomized answers;
the job estimates both.
"""

from __future__ import annotations

import tempfile
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

import sotto_cli
from clientsdk import EmbeddedLogPublisher
from clientsdk.otel import SottoMeterProvider
from clientsdk.testing import FakeClock, SeededClient
from pipelines.bounded.run import aggregate
from sotto.plan.compile import parse_plan

DEVICES = 400
PLAN = """\
collector: app.example
plan: requests
version: 1
owner: telemetry@app.example
expires: 2036-12-31
period: 7d
ceilings: {period: 8, lifetime: 400}
resolution: 1h
metrics:
  took:
    {type: number, range: [0, 50], unit: ms, outside: clip, window: 28d, ladder: [{epsilon: 4}],
     otel: {instrument: http.client.duration}}
  status:
    {type: category, domain: ["200", "404"], outside: other, window: 28d, ladder: [{epsilon: 4}],
     otel: {instrument: http.client.duration, attribute: http.status_code}}
"""


class _Absent(SimpleHTTPRequestHandler):
    """Finds nothing at three of four paths, and takes its time for it."""

    def do_GET(self) -> None:
        """Answer."""
        there = self.path.endswith("0")
        time.sleep(0 if there else 0.004)
        self.send_response(200 if there else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def collected(folder: Path, url: str, app: httpx.Client) -> None:
    """Write what 400 devices report about a request each: ten lines."""
    plan, log = parse_plan(PLAN).compile(), EmbeddedLogPublisher(folder / "log")
    for number in range(DEVICES):
        clock = FakeClock(time.time_ns() // 1_000_000 - 3 * 3_600_000)
        device = SeededClient(plan, seed=number, clock=clock, publisher=log, leaks_values=True)
        HTTPXClientInstrumentor.instrument_client(app, meter_provider=SottoMeterProvider(device))
        app.get(f"{url}/{number % 4}")
        HTTPXClientInstrumentor.uninstrument_client(app)
        clock.advance(hours=3)
        device.flush()
    aggregate(folder / "log", folder / "state", [plan])


def main() -> None:
    """Measure, randomize, send, count and print."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Absent)
    with server, tempfile.TemporaryDirectory() as folder, httpx.Client() as app:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        collected(Path(folder), f"http://127.0.0.1:{server.server_port}", app)
        sotto_cli.main(["estimates", "--state", f"{folder}/state"])
        server.shutdown()


if __name__ == "__main__":
    main()
