"""What ``sotto serve`` answers programs at ``/api/v1``, by request and CPU.

The server runs in a process of its own; one client asks over one connection, so that requests a
second are those of one core that does nothing else: 1 / CPU time. The results are 40 metrics of
ten values in 52 windows, 20,800 estimates. A page is first read for each request, of another metric
each time; then again, when it is kept; then with ``If-None-Match``.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Table
from pipelines.sinks.sql import Projection, Results
from pipelines.sinks.tables import Row

METRICS, WINDOWS, VALUES = 40, 52, 10
#: Requests of a round, and rounds, of which the least is taken: the machine has other work.
REQUESTS, ROUNDS = 150, 5
_WEEK = 7 * 86_400_000
_TICKS = os.sysconf("SC_CLK_TCK")


def rows() -> tuple[list[Row], list[Row]]:
    """Return rows of windows and of their estimates."""
    windows: list[Row] = []
    estimates: list[Row] = []
    for metric in range(METRICS):
        for number in range(WINDOWS):
            key = {
                "collector": "benchmark.example",
                "plan": "p",
                "version": 1,
                "metric": f"metric{metric}",
                "window_start": number * _WEEK,
                "segment": "",
                "window_end": (number + 1) * _WEEK,
                "revision": 1,
                "withheld": None,
                "n": 5000,
                "reports_by_level": [1000, 1000, 3000],
            }
            about = {"type": "category", "mechanism": "grr", "minimum_reports": 20}
            windows.append({**key, **about})
            for value in range(VALUES):
                share = {"value": 0.1, "standard_error": 0.01, "low": 0.08, "high": 0.12}
                more = {"display": 0.1, "detection_floor": 0.03, "method": "unbiased"}
                item = {"kind": "share", "item": f"v{value}", "position": value, "unit": "share"}
                estimates.append({**key, **item, **share, **more})
    return windows, estimates


class Server:
    """`sotto serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        url = f"sqlite:///{folder / 'results.db'}"
        with Results(url) as results:
            results.projected("benchmark.example", "benchmark")
            results.project(
                Projection("benchmark.example", "benchmark", 1, 0, [rows()], [], [], "digest")
            )
        command = [sys.executable, "-m", "sotto", "serve", "--database", url, "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r":(\d+)/", self._process.stdout.readline())
        assert found is not None, "the server did not start"
        self._connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))

    def ask(self, path: str, etag: str | None = None) -> tuple[int, int, str]:
        """Return status, bytes and ETag of an answer."""
        headers = {} if etag is None else {"if-none-match": etag}
        self._connection.request("GET", f"/api/v1/{path}", headers=headers)
        answer = self._connection.getresponse()
        return answer.status, len(answer.read()), answer.headers["etag"]

    def cpu(self) -> float:
        """Return the CPU seconds that it has taken."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def stop(self) -> None:
        """End it."""
        self._connection.close()
        self._process.terminate()
        self._process.communicate(timeout=60)


def measured(server: Server, paths: Sequence[str], etag: str | None = None) -> Iterator[str]:
    """Ask for paths in turn, and yield bytes an answer, milliseconds of CPU, requests a second."""
    status, size, _ = server.ask(paths[0], etag)
    rounds = []
    # Of several, each once: what has been asked for is kept.
    number = REQUESTS * ROUNDS if len(paths) == 1 else min(len(paths), REQUESTS * ROUNDS)
    for first in range(0, number - REQUESTS + 1, REQUESTS):
        before = server.cpu()
        for number in range(first, first + REQUESTS):
            assert server.ask(paths[number % len(paths)], etag)[0] == status
        rounds.append((server.cpu() - before) / REQUESTS)
    seconds = min(rounds)
    yield from (f"{size:,}", f"{seconds * 1000:.2f}", f"{1 / seconds:,.0f}")


def main() -> None:
    """Measure, and print a table."""
    one = [
        f"shares?metric=metric{n}&since=1970-{m:02d}-01&newest=true&limit={limit}"
        for limit in (100, 101)
        for m in range(1, 13)
        for n in range(METRICS)
    ]
    hundred = [
        f"estimates?metric=metric{n}&limit={limit}"
        for limit in range(95, 106)
        for n in range(METRICS)
    ]
    table = Table("request                    <", "bytes", "CPU ms", "requests/s a core")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            table.row("a metric's newest window, read", *measured(server, one))
            table.row("100 rows, read", *measured(server, hundred))
            table.row("100 rows, kept", *measured(server, hundred[:1]))
            table.row("1,000 rows, kept", *measured(server, ["estimates"]))
            etag = server.ask("estimates")[2]
            table.row("not changed", *measured(server, ["estimates"], etag))
            table.row("metrics, kept", *measured(server, ["metrics"]))
            table.row("health", *measured(server, ["health"]))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
