"""What a relay costs: a message sent to a collector, and the same through relay and gateway.

Both in turn, on loopback; the collector is a stub that answers at once, and the relay a proxy in
this process. So the difference is encryption, padding and two hops, without their distance.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from benchmarks.harness import Table, cpu_seconds
from clientsdk.publishers import Publisher
from clientsdk.publishers.http import HttpPublisher
from clientsdk.publishers.ohttp import KeyConfiguration, ObliviousPublisher
from deploy.ohttp.service import LocalGateway
from deploy.ports import HOST
from sotto.wire.batch import join_messages
from sotto.wire.format import Row, encode_message

MESSAGES, ROUNDS = 200, 5
_ORIGIN, _APP_KEY = "telemetry.example", 32 * "k"


class _Server(ThreadingHTTPServer):
    """Answers requests: as a collector that takes everything, or as a relay to a gateway."""

    daemon_threads = True

    def __init__(self, gateway: int = 0) -> None:
        super().__init__((HOST, 0), _Handler)
        self.gateway = HTTPConnection(HOST, gateway) if gateway else None
        self.received = 0
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def server_close(self) -> None:
        self.shutdown()
        super().server_close()
        if self.gateway is not None:
            self.gateway.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received += len(body)
        if self.server.gateway is None:
            self.send_response(204)
            self.end_headers()
            return
        self.server.gateway.request("POST", "/gateway", body, {"Content-Type": "message/ohttp-req"})
        answer = self.server.gateway.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Way(NamedTuple):
    """A publisher, and the server that it connects to."""

    publisher: Publisher
    server: _Server


@contextmanager
def _ways() -> Iterator[tuple[dict[str, _Way], bytes]]:
    """Yield both ways, and the gateway's keys."""
    with tempfile.TemporaryDirectory() as folder, _Server() as collector:
        url = f"http://{HOST}:{collector.server_port}"
        gateway = LocalGateway(folder)
        gateway.start(_ORIGIN, url)
        try:
            with _Server(gateway.port) as relay:
                keys = gateway.public_keys()
                through = f"http://{HOST}:{relay.server_port}/ohttp"
                direct = HttpPublisher(url, key=_APP_KEY)
                oblivious = ObliviousPublisher(through, f"https://{_ORIGIN}", keys, key=_APP_KEY)
                yield {"direct": _Way(direct, collector), "relay": _Way(oblivious, relay)}, keys
                direct.close()
                oblivious.close()
        finally:
            gateway.stop()


def main() -> None:
    """Print what a message costs either way."""
    sent = encode_message(bytes(32), 3, [(0, [Row(0, bytes(16), os.urandom(16), 0, b"\1")])])
    with _ways() as (ways, keys):
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                for _ in range(MESSAGES):
                    start = time.perf_counter()
                    way.publisher.publish(3, sent)
                    taken[name].append(1000 * (time.perf_counter() - start))
        # What the stub has received from the gateway is not the direct way's.
        bodies = {"direct": len(join_messages([sent])), "relay": ways["relay"].server.received}
        bodies["relay"] //= ROUNDS * MESSAGES
    table = Table("way<", "bytes sent", "median, ms", "p90, ms")
    for name, times in taken.items():
        tenths = statistics.quantiles(times, n=10)
        table.row(name, bodies[name], f"{tenths[4]:.2f}", f"{tenths[8]:.2f}")
    configuration = KeyConfiguration.parse(keys)
    seconds = cpu_seconds(lambda: configuration.encapsulate(bytes(1024)), calls=200)
    print(f"encryption of a request: {1e6 * seconds:.0f} µs")


if __name__ == "__main__":
    main()
