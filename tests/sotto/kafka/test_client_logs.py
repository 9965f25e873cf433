"""Log lines of kafka-python that commands print: none, unless somebody asks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from messages import message

from clientsdk.testing import small_plan
from sotto.log.writer import LogWriter

pytest.importorskip("kafka")


@pytest.fixture
def rude() -> Iterator[str]:
    """The address of a server that takes connections and closes them at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(300)


AGGREGATE = ("aggregate", "--plan", "plan.json", "--state", "state")
#: Loads less, and says the same of a broker.
COPY = ("log", "copy", "log")


def started(rude: str, folder: Path, *command: str, level: str = "") -> subprocess.Popen[str]:
    """Start a command that needs a broker; it gives up after many seconds."""
    (folder / "plan.json").write_bytes(small_plan().to_json())
    with LogWriter(folder / "log", "a") as log:
        log.append(message())
    return subprocess.Popen(
        [sys.executable, "-m", "sotto", *command, "--kafka", rude, "--topic", "reports-e1-p1"],
        cwd=folder,
        env=os.environ | ({"SOTTO_KAFKA_LOG": level} if level else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def errors(process: subprocess.Popen[str]) -> list[str]:
    """Return what a run prints on standard error."""
    with process:
        try:
            return process.communicate(timeout=600)[1].splitlines()
        finally:
            process.kill()


@pytest.mark.real_randomness
@pytest.mark.slow
def test_our_error_is_the_only_line_but_for_whoever_asks(rude: str, tmp_path: Path) -> None:
    both = started(rude, tmp_path, *AGGREGATE), started(rude, tmp_path, *COPY, level="ERROR")
    (line,), (*lines, last) = map(errors, both)
    assert line.startswith("sotto: error: ")
    assert "does not let us in" in line
    assert lines
    assert lines[0].startswith("ERROR:kafka.")
    assert last.startswith("sotto: error: ")


@pytest.mark.real_randomness
def test_what_is_asked_for_is_a_level(rude: str, tmp_path: Path) -> None:
    (line,) = errors(started(rude, tmp_path, *COPY, level="loud"))
    assert "SOTTO_KAFKA_LOG='loud' must be one of INFO" in line
