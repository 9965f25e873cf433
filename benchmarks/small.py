"""What the small deployment carries: collector and aggregator beside each other on one core.

Both are the processes that ``make serve`` starts, without TLS, which is Caddy's work. Requests of
one device each, with one report of each of three metrics, come from this process on another core,
as fast as they are answered. CPU time is the processes' own, the aggregator's until all is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Table
from benchmarks.soak.stage import wait_until
from deploy import serve
from deploy.ports import HOST, free_ports
from examples.compose.__main__ import PLAN
from mechanisms.coins import shard_of
from pipelines.sinks.sql import Results, of_state
from pipelines.sinks.tables import WINDOWS
from sotto.errors import AggregationError
from sotto.log.writer import now_ms
from sotto.plan.compile import load_plan
from sotto.wire.batch import join_messages
from sotto.wire.format import Row, encode_message

CONNECTIONS = 64
#: How long the aggregator may take to count what is left, in seconds.
PATIENCE = 300.0
_PLAN = load_plan(PLAN).compile()
_TICKS = os.sysconf("SC_CLK_TCK")


class Part:
    """One of the processes, bound to the last core."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        cores = os.sched_getaffinity(0)
        # What a process starts runs where it does itself.
        os.sched_setaffinity(0, {max(cores)})
        with open(log, "wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        os.sched_setaffinity(0, cores)
        self._proc = Path(f"/proc/{self.process.pid}")

    def cpu(self) -> float:
        """Return the CPU seconds that it has taken."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak(self) -> int:
        """Return the most MB that it has held."""
        found = re.search(r"VmHWM:\s+(\d+) kB", (self._proc / "status").read_text())
        assert found is not None
        return int(found[1]) // 1000

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def request() -> bytes:
    """Return a request of a device that has never sent before."""
    pseudonym, event = os.urandom(16), now_ms() // 1000 * 1000
    groups = []
    for metric in _PLAN.metrics:
        payload = bytes(metric.mechanism.payload_width)
        groups.append((metric.index, [Row(0, pseudonym, os.urandom(16), event, payload)]))
    shard = shard_of(pseudonym, _PLAN.shards)
    body = join_messages([encode_message(_PLAN.fingerprint, shard, groups)])
    head = f"POST /v1/reports HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def load(port: int, seconds: float) -> int:
    """Send for so long; return how many requests were answered with 204."""
    answered, end = 0, time.monotonic() + seconds

    async def send() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection(HOST, port)
        while time.monotonic() < end:
            writer.write(request())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 204"):
                raise RuntimeError(f"the collector answered {head[:60]!r}")
            answered += 1
        writer.close()

    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
    return answered


def counted(state: Path) -> int:
    """Return how many values count."""
    try:
        with Results(of_state(state), create=False) as results:
            return sum(int(str(row["n"])) for row in results.table(WINDOWS))
    except AggregationError:
        # The database, or its tables, are not there yet.
        return 0


def measure(folder: Path, seconds: float) -> None:
    """Send for so long, wait until all is counted, and print what it took."""
    (port,) = free_ports(1)
    commands = serve.commands(PLAN, folder, port)
    commands["sotto collect"] += ["--rate", "1e9"]
    parts = {name: Part(command, folder / f"{name}.log") for name, command in commands.items()}
    try:
        wait_until(lambda: "http://" in (folder / "sotto collect.log").read_text("utf-8"), 60)
        wait_until((folder / "state" / "MANIFEST.json").exists, 60)
        before = {name: part.cpu() for name, part in parts.items()}
        begin = time.monotonic()
        taken = asyncio.run(load(port, seconds))
        wall = time.monotonic() - begin
        wanted = taken * len(_PLAN.metrics)
        if not wait_until(lambda: counted(folder / "state") == wanted, PATIENCE):
            raise RuntimeError(f"{counted(folder / 'state')} of {wanted} values are counted")
        late = time.monotonic() - begin - wall
        table = Table("process<", "CPU, ms a request", "peak, MB")
        cost = {name: 1e3 * (part.cpu() - before[name]) / taken for name, part in parts.items()}
        for name, part in parts.items():
            table.row(name, f"{cost[name]:.3f}", part.peak())
        size = sum(path.stat().st_size for path in (folder / "log").rglob("*.seg"))
        print(f"{taken / wall:,.0f} requests a second were answered, for {wall:.0f} s")
        print(f"{1e3 / sum(cost.values()):,.0f} a second would fill one core, both together")
        print(
            f"the log has {size / taken:.0f} B of each; all are counted {late:.0f} s after the last"
        )
    finally:
        for part in parts.values():
            part.end()


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load; default: 60")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        measure(Path(folder), args.seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
