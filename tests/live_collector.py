"""Collectors in processes of their own, as `sotto collect` runs them, and raw requests to them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from device_plans import metric, plan
from log_records import records_of
from waiting import wait_until

from sotto.log.reader import LogRecord
from sotto.wire.batch import join_messages
from sotto.wire.format import Row, encode_message

PLAN = plan(metric("colour"))
ROOT = Path(__file__).parent.parent
#: A prelude for tests of one segment: else the log begins another one at midnight.
NO_MIDNIGHT = "from pipelines.collector import stores; stores._DAY = 1 << 62"
#: Seconds for what takes a moment on a machine that has nothing else to do.
PATIENCE = 300.0


def message(shard: int = 3, rows: int = 1, fingerprint: bytes = PLAN.fingerprint) -> bytes:
    """Return a message of a pseudonym of its own."""
    pseudonym = os.urandom(16)
    made = [Row(0, pseudonym, os.urandom(16), 0, b"\1") for _ in range(rows)]
    return encode_message(fingerprint, shard, [(0, made)])


def body(*messages: bytes) -> bytes:
    return join_messages(messages or [message()])


def request(content: bytes, *headers: str, target: str = "/v1/reports") -> bytes:
    """Return the bytes of a POST."""
    lines = [f"POST {target} HTTP/1.1", "Host: a", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


class LiveCollector:
    """`sotto collect` with a log in a folder.

    Parameters
    ----------
    folder : Path
    *options : str
        Of the command, beside plan, log and port.
    prelude : str
        Code that is run before it.
    """

    def __init__(self, folder: Path, *options: str, prelude: str = "") -> None:
        self.log = folder / "log"
        plan_file = folder / "plan.json"
        plan_file.write_bytes(PLAN.to_json())
        given = ["collect", "--plan", str(plan_file), "--port", "0", *options]
        if "--topic" not in options:
            given += ["--log", str(self.log)]
        script = f"import sys\n{prelude}\nfrom sotto_cli import main\nsys.exit(main({given!r}))"
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=output, stderr=output, cwd=ROOT
            )
        ready = re.compile(r"^(http://.*:(\d+))/v1/reports$", re.MULTILINE)
        try:
            found = wait_until(lambda: ready.search(self.output()) or self.process.poll())
            assert isinstance(found, re.Match), self.output()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.url, self.port = found[1], int(found[2])

    def __enter__(self) -> LiveCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    def output(self) -> str:
        """Return what it has printed."""
        return self._output.read_text("utf-8", "replace")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE, (source, 0))

    def ask(self, sent: bytes, source: str = "127.0.0.1") -> bytes:
        """Send bytes on a connection of their own; return what comes until it is closed."""
        with self.connect(source) as connection:
            connection.sendall(sent)
            return received(connection)

    def post(self, content: bytes, *headers: str, target: str = "/v1/reports") -> int:
        """Post a body; return the status."""
        answer = self.ask(request(content, *headers, "Connection: close", target=target))
        return int(answer.split(b" ", 2)[1])

    def records(self) -> list[LogRecord]:
        """Return what is in its log."""
        return records_of(self.log)


def received(connection: socket.socket) -> bytes:
    """Return what comes until the connection is closed, in whatever way."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
