"""Load that the HTTP collector carries on one core: requests of 1.3 kB, answered once on disk.

``sotto collect`` runs in a process that is bound to one core; the requests come from this one, on
another. First as fast as it answers, over 256 connections; then at half that rate, at random times
whether or not earlier ones are answered (open loop), where latency counts from the time at which a
request was due; then at twice that rate over 1,000 connections, where the memory of the server
must stay flat. CPU time a request is the server's own: what a core without other work would carry.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Table, processor_seconds, resident_bytes
from clientsdk.testing import small_plan
from sotto.wire.batch import join_messages
from sotto.wire.format import Row, encode_message

#: Rows of a message: a body of 1.3 kB, as of a device with many metrics.
ROWS = 31
#: Different requests that are made before, and sent over and over.
REQUESTS = 4096
CONNECTIONS, MANY = 256, 1000
SECONDS, MINUTES = 15.0, 10.0
SEED = 20_261_122


class Load(NamedTuple):
    """Answers to a load: requests by status, seconds in all and of each, and what they cost."""

    statuses: Counter[bytes]
    seconds: float
    latencies: list[float]
    cpu: float
    memory: list[int]


class Server:
    """A collector in a process that is bound to one core."""

    def __init__(self, folder: Path) -> None:
        plan = folder / "plan.json"
        plan.write_bytes(small_plan().to_json())
        given = ["--plan", str(plan), "--log", str(folder / "log"), "--port", "0", "--rate", "1e9"]
        command = [sys.executable, "-m", "sotto", "collect", *given]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        found = re.search(r":(\d+)/", self._process.stdout.readline())
        assert found is not None, "the collector did not start"
        self.port = int(found[1])
        self.pid = self._process.pid
        cores = sorted(os.sched_getaffinity(0))
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[-1]})
        if len(cores) > 1:
            os.sched_setaffinity(0, set(cores[:-1]))

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate(timeout=60)


class _Connection(asyncio.Protocol):
    """Sends one request after the other."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._due = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._client.free(self)

    def send(self, due: float) -> None:
        """Send a request that was due at some time."""
        assert self.transport is not None
        self._due = due
        self.transport.write(self._client.request())

    def data_received(self, data: bytes) -> None:
        self._client.answered(data[9:12], self._due)
        self._client.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.lost(self)


class _Client:
    """Sends requests over many connections, at given times or as fast as they are answered."""

    def __init__(self, requests: list[bytes], *, closed_loop: bool) -> None:
        self.statuses: Counter[bytes] = Counter()
        self.latencies: list[float] = []
        self._requests = requests
        self._next = 0
        self._closed_loop = closed_loop
        self._free: list[_Connection] = []
        self._due: deque[float] = deque()
        self._ended = False

    def request(self) -> bytes:
        self._next += 1
        return self._requests[self._next % len(self._requests)]

    def answered(self, status: bytes, due: float) -> None:
        self.statuses[status] += 1
        self.latencies.append(time.perf_counter() - due)

    def lost(self, connection: _Connection) -> None:
        if connection in self._free:
            # It was idle for long.
            self._free.remove(connection)
        elif not self._ended:
            self.statuses[b"cut"] += 1

    def free(self, connection: _Connection) -> None:
        if self._ended:
            return
        if self._closed_loop:
            connection.send(time.perf_counter())
        elif self._due:
            connection.send(self._due.popleft())
        else:
            self._free.append(connection)

    def due(self, moment: float) -> None:
        """Have a request sent, on the next connection that is free."""
        if self._free:
            self._free.pop().send(moment)
        elif len(self._due) < 2 * MANY:
            self._due.append(moment)

    def end(self) -> None:
        self._ended = True


async def _load(
    server: Server, requests: list[bytes], rate: float | None, connections: int, seconds: float
) -> Load:
    """Send requests at that rate, or as fast as they are answered."""
    loop = asyncio.get_running_loop()
    client = _Client(requests, closed_loop=rate is None)
    made = []
    for _ in range(connections):
        made.append(
            await loop.create_connection(lambda: _Connection(client), "127.0.0.1", server.port)
        )
    await asyncio.sleep(0.5)
    client.statuses.clear()
    client.latencies.clear()
    memory = [resident_bytes(server.pid)]
    before, begin = processor_seconds(server.pid), time.perf_counter()
    source, at = random.Random(SEED), begin
    while (now := time.perf_counter()) < begin + seconds:
        while rate is not None and at <= now:
            client.due(at)
            at += source.expovariate(rate)
        if now > begin + len(memory):
            memory.append(resident_bytes(server.pid))
        await asyncio.sleep(0.001)
    taken, cpu = time.perf_counter() - begin, processor_seconds(server.pid) - before
    found = Load(Counter(client.statuses), taken, list(client.latencies), cpu, memory)
    client.end()
    for transport, _ in made:
        transport.abort()
    await asyncio.sleep(0.1)
    return found


def requests_of(port: int) -> list[bytes]:
    """Return requests, each with a message of a device of its own."""
    plan = small_plan()
    found = []
    for _ in range(REQUESTS):
        pseudonym = os.urandom(16)
        rows = [Row(0, pseudonym, os.urandom(16), 0, b"\1") for _ in range(ROWS)]
        body = join_messages([encode_message(plan.fingerprint, 3, [(0, rows)])])
        head = f"POST /v1/reports HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}"
        found.append(f"{head}\r\n\r\n".encode() + body)
    return found


def _percentiles(seconds: list[float]) -> tuple[str, str]:
    """Return the 50th and the 99th, in ms."""
    order = statistics.quantiles(seconds, n=100)
    return f"{1e3 * order[49]:.1f}", f"{1e3 * order[98]:.1f}"


def _row(table: Table, name: str, load: Load) -> float:
    taken = load.statuses[b"204"]
    total = sum(load.statuses.values())
    table.row(
        name,
        round(taken / load.seconds),
        f"{(total - taken) / max(1, total):.1%}",
        f"{1e3 * load.cpu / max(1, total):.3f}",
        f"{load.cpu / load.seconds:.0%}",
        *_percentiles(load.latencies),
        f"{load.memory[min(len(load.memory) - 1, 30)] / 1e6:.0f} -> {load.memory[-1] / 1e6:.0f}",
    )
    return taken / load.seconds


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the first two loads")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of twice the load")
    args = parser.parse_args([] if arguments is None else arguments)
    cpu = "server CPU, ms"
    table = Table("load<", "answered/s", "refused", cpu, "core", "p50, ms", "p99, ms", "memory, MB")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        time.sleep(2)
        try:
            made = requests_of(server.port)
            asyncio.run(_load(server, made, None, CONNECTIONS, 3.0))
            load = asyncio.run(_load(server, made, None, CONNECTIONS, args.seconds))
            most = _row(table, "all it takes", load)
            load = asyncio.run(_load(server, made, most / 2, CONNECTIONS, args.seconds))
            _row(table, "half of that", load)
            load = asyncio.run(_load(server, made, most * 2, MANY, args.minutes * 60))
            _row(table, "twice", load)
        finally:
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
