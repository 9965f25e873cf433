"""The small deployment, run natively for a test."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from programs import needed
from waiting import PATIENCE, wait_until

from deploy.ports import HOST, free_ports
from pipelines.results.reader import ResultsReader
from sotto.errors import AggregationError

ROOT = Path(__file__).parent.parent


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program whose output goes to a file; it is ended at the end."""
    with open(log, "wb") as file:
        settings = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=settings, cwd=log.parent)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def sotto(*command: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command of ours that serves; yield its process and the address that it prints.

    It has to end well when it is told to.
    """
    words = [sys.executable, "-m", "sotto", *map(str, command)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip().rstrip("/")
            process.terminate()
            process.wait(PATIENCE)
        finally:
            # One that does not end when it is told to would be waited for without an end.
            process.kill()
    assert process.returncode == 0


@contextmanager
def caddy(folder: Path, config: Path, **settings: str) -> Iterator[Path]:
    """Run Caddy, or skip the test where there is none; yield its log."""
    places = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = [needed("caddy"), "run", "--config", str(config)]
    with running(command, folder / "caddy.log", {**places, **settings}):
        yield folder / "caddy.log"


def trusted(folder: Path, port: int) -> ssl.SSLContext:
    """Return a TLS context that trusts the authority of a Caddy, once that answers."""
    root = folder / "caddy/pki/authorities/local/root.crt"
    wait_until(root.exists)
    context = ssl.create_default_context(cafile=root)
    # An answer, be it that nobody is behind the proxy.
    wait_until(lambda: status(port, context=context))
    return context


def status(port: int, context: ssl.SSLContext | None = None) -> int:
    """Return the status that is answered; 0 if nothing is."""
    if context is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
    else:
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def counted(state: Path) -> list[object]:
    """Return the numbers of reports in the windows that have been estimated, if any."""
    try:
        with ResultsReader.of_state(state) as reader:
            return [window.reports for window in reader.windows()]
    except AggregationError:
        # The database, or its tables, are not there yet.
        return []


@contextmanager
def served(folder: Path, plan: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Serve natively, as ``make serve`` does, and yield the process and where it answers."""
    port, page = free_ports(2)
    command = [sys.executable, "-m", "deploy.serve", "--plan", str(plan), "--port", str(port)]
    command += ["--page-port", str(page)]
    with running(command, folder / "serve.log") as process:
        wait_until(lambda: process.poll() is not None or status(port) == 200)
        yield process, f"http://localhost:{port}"
